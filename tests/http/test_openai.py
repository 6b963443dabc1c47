"""OpenAI's own client, on the bundled pair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.http.server import HttpServer

HELLO: Any = [{"role": "system", "content": "You write Python."}, {"role": "user", "content": "Sort a list."}]
PROMPT = "def fib(n):\n    "
SHORT: dict[str, Any] = {"model": "localspec", "max_tokens": 24, "temperature": 0}


@pytest.fixture(scope="module")
def client(http: HttpServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{http.url}/v1", api_key=http.token, max_retries=0) as client:
        yield client


def test_a_chat_whole_and_as_it_comes(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=HELLO, **SHORT)
    choice = whole.choices[0]
    assert whole.id.startswith("chatcmpl-") and choice.message.role == "assistant"
    assert choice.message.content and choice.finish_reason == "length"
    assert whole.usage is not None and whole.usage.completion_tokens == 24
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 24
    stream = client.chat.completions.create(messages=HELLO, stream=True, **SHORT)
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == choice.message.content
    assert {chunk.model for chunk in chunks} == {"localspec"}
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
    assert not any("usage" in chunk.model_fields_set for chunk in chunks)


def test_our_statistics_and_our_options(client: openai.OpenAI) -> None:
    drafted = {"localspec": {"proposer": "prompt-lookup", "k": 4, "exactness": "fast"}}
    repeating = "x = 1\ny = 2\n" * 8
    said: dict[str, Any] = {**SHORT, "prompt": repeating}
    alone = {"localspec": {"proposer": "none"}}
    fast, plain = (client.completions.create(**said, extra_body=extra) for extra in (drafted, alone))
    assert fast.choices[0].text == plain.choices[0].text
    seen = fast.model_extra
    assert seen is not None and plain.model_extra is not None
    stats = seen["localspec"]["stats"]
    assert stats["accepted"] > 0 and plain.model_extra["localspec"]["stats"]["drafted"] == 0
    assert "text" not in seen["localspec"]


def test_a_gap_is_filled_whole_and_as_it_comes(client: openai.OpenAI) -> None:
    said: dict[str, Any] = {**SHORT, "prompt": "import os\n\nprint(os.", "suffix": ")\n"}
    text = client.completions.create(**said).choices[0].text
    assert text and "\n" not in text
    chunks = list(client.completions.create(stream=True, **said))
    assert "".join(chunk.choices[0].text for chunk in chunks) == text


def test_probabilities_of_a_chat(client: openai.OpenAI) -> None:
    choice = client.chat.completions.create(messages=HELLO, logprobs=True, **SHORT).choices[0]
    assert choice.logprobs is not None and choice.logprobs.content is not None
    tokens = choice.logprobs.content
    assert "".join(token.token for token in tokens) == choice.message.content
    assert all(token.logprob <= 0 and bytes(token.bytes or []).decode() == token.token for token in tokens)
    streamed = [
        token
        for chunk in client.chat.completions.create(messages=HELLO, logprobs=True, stream=True, **SHORT)
        if chunk.choices[0].logprobs is not None
        for token in chunk.choices[0].logprobs.content or []
    ]
    assert [token.token for token in streamed] == [token.token for token in tokens]


def test_probabilities_of_a_text(client: openai.OpenAI) -> None:
    choice = client.completions.create(prompt=PROMPT, logprobs=0, **SHORT).choices[0]
    columns = choice.logprobs
    assert columns is not None and columns.tokens is not None and columns.text_offset is not None
    for token, at in zip(columns.tokens, columns.text_offset, strict=True):
        assert choice.text[at : at + len(token)] == token
    assert columns.token_logprobs is not None and len(columns.token_logprobs) == len(columns.tokens) > 1
    assert "".join(columns.tokens) == choice.text


def test_stops_and_seeds(client: openai.OpenAI) -> None:
    said: dict[str, Any] = {"model": "localspec", "prompt": PROMPT, "max_tokens": 40, "temperature": 1}
    one, same, other = (client.completions.create(seed=seed, **said).choices[0].text for seed in (7, 7, -7))
    assert one == same != other
    stop = one[8:11]
    ended = client.completions.create(seed=7, stop=stop, **said).choices[0]
    assert (ended.text, ended.finish_reason) == (one[: one.index(stop)], "stop")
    several = client.completions.create(seed=7, stop=["\x00", stop, ""], **said).choices[0]
    assert several.text == ended.text


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"model": "not-here"}, "not-here"),
        ({"temperature": 9}, "temperature"),
        ({"n": 17}, "n takes a whole number from 1 to 16, not 17"),
        ({"tools": [{"type": "web_search"}]}, "a tool of the type 'web_search' is not supported"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "there is no tool named 'f'"),
        ({"tool_choice": "required"}, "a tool call is required"),
        ({"response_format": {"type": "grammar"}}, "the format 'grammar' is not supported"),
        ({"response_format": {"type": "json_schema"}}, "the format json_schema has no schema"),
        ({"top_logprobs": 3}, "top_logprobs needs logprobs"),
        ({"extra_body": {"continue_final_message": True}}, "continue_final_message"),
        ({"messages": [{"role": "assistant", "content": text} for text in "ab"]}, "two assistant messages"),
        ({"messages": []}, "messages is empty"),
        ({"messages": [{"role": "function", "content": "x"}]}, "no role named 'function'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "text": "x"}]}]}, "image_url"),
        ({"extra_body": {"localspec": {"propposer": "none"}}}, "'proposer'"),
    ],
    ids=str,
)
def test_what_is_refused(client: openai.OpenAI, said: dict[str, Any], sentence: str) -> None:
    error = openai.NotFoundError if "model" in said else openai.BadRequestError
    for stream in (False, True):
        with pytest.raises(error) as refused:
            client.chat.completions.create(**{**SHORT, "messages": HELLO, "stream": stream, **said})
        assert sentence in str(refused.value)
        assert isinstance(refused.value.body, dict) and refused.value.body["code"]


def test_a_model_by_its_name(client: openai.OpenAI) -> None:
    listed = {model.id: model for model in client.models.list()}
    assert all(client.models.retrieve(name) == model for name, model in listed.items())
    assert 1_500_000_000 < listed["localspec"].created == listed["stdlib-6m"].created
    assert client.models.retrieve("bundled").id == "bundled"
    with pytest.raises(openai.NotFoundError, match=r"no model named 'org/none'") as refused:
        client.models.retrieve("org/none")
    assert isinstance(refused.value.body, dict) and refused.value.body["code"] == "model_not_found"


def test_errors_that_programs_know_by_name(client: openai.OpenAI, http: HttpServer) -> None:
    with pytest.raises(openai.BadRequestError) as longer:
        client.completions.create(model="localspec", prompt="word " * 9000)
    assert longer.value.code == "context_length_exceeded" and longer.value.type == "invalid_request_error"
    for part in ("maximum context length", "choose a model of more than 2048 tokens", "Agents need 16,000"):
        assert part in str(longer.value)
    with pytest.raises(openai.AuthenticationError) as unknown:
        client.with_options(api_key="wrong").models.list()
    assert unknown.value.code == "invalid_api_key"
    amiss = client.with_options(base_url=f"{http.url}/v2")
    offered = r"GET /v2/models is not offered\. This dialect offers .*/v1/responses"
    with pytest.raises(openai.NotFoundError, match=offered):
        amiss.models.list()
    nothing = "POST /v1/embeddings is not offered: the models here make text, no embeddings. Run another"
    with pytest.raises(openai.NotFoundError, match=nothing) as nowhere:
        client.embeddings.create(model="localspec", input="x")
    assert nowhere.value.code == "unknown_url"


def test_as_long_as_it_gets(client: openai.OpenAI) -> None:
    said: dict[str, Any] = {"model": "localspec", "prompt": PROMPT, "temperature": 0, "stop": "\n\n"}
    plain = client.completions.create(**said).choices[0]
    unlimited = client.completions.create(max_tokens=-1, **said).choices[0]
    assert unlimited.text == plain.text and plain.finish_reason == "stop"
    for lengths in ({"n_predict": 5, "max_tokens": 3}, {"max_tokens": 5}):
        usage = client.completions.create(**said, extra_body=lengths).usage
        assert usage is not None and usage.completion_tokens == 5


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"logprobs": 21}, "logprobs takes a whole number from 0 to 20, not 21"),
        ({"logprobs": 0, "suffix": ")"}, "logprobs is not supported with suffix"),
        ({"n": 9, "suffix": ")"}, "n takes a whole number from 1 to 8, not 9. Set n to at most 8;"),
        ({"prompt": [1, 2, 3], "suffix": ")"}, "a prompt of tokens is not supported with suffix"),
    ],
    ids=str,
)
def test_texts_that_are_refused(client: openai.OpenAI, said: dict[str, Any], sentence: str) -> None:
    with pytest.raises(openai.BadRequestError, match=sentence):
        client.completions.create(**{**SHORT, "prompt": PROMPT, **said})


def test_several_prompts_and_several_answers_to_each(client: openai.OpenAI, http: HttpServer) -> None:
    tokens = http.post("/tokenize", {"content": PROMPT, "add_special": True})["tokens"]
    plain = client.completions.create(prompt=PROMPT, **SHORT).choices[0].text
    several = client.completions.create(prompt=[PROMPT, "import "], n=2, **SHORT)
    texts = [choice.text for choice in several.choices]
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert texts[:2] == [plain, plain] and texts[2] == texts[3] != plain
    same: list[Any] = [tokens, [tokens, tokens]]
    for prompt in same:
        found = client.completions.create(prompt=prompt, **SHORT)
        assert {choice.text for choice in found.choices} == {plain}
    mixed = http.post("/v1/completions", SHORT | {"prompt": [*tokens[:2], "!", *tokens[2:]]})
    assert mixed["usage"]["prompt_tokens"] == len(tokens) + 1
    streamed = {0: "", 1: "", 2: "", 3: ""}
    for chunk in client.completions.create(prompt=[PROMPT, "import "], n=2, stream=True, **SHORT):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert [streamed[i] for i in range(4)] == texts
    with pytest.raises(openai.BadRequestError, match="32 answers"):
        client.completions.create(model="localspec", prompt=["a", "b"], n=16)
    with pytest.raises(openai.BadRequestError, match="the model has no token 999999"):
        client.completions.create(model="localspec", prompt=[999999])


def test_several_answers_to_a_chat_differ_and_come_again_with_their_seed(client: openai.OpenAI) -> None:
    said: Any = {**SHORT, "messages": HELLO, "temperature": 1.5, "n": 3, "seed": 5}
    answers = [client.chat.completions.create(**said).choices for _ in range(2)]
    first, again = ([choice.message.content for choice in choices] for choices in answers)
    assert first == again and len(set(first)) == 3
    streamed = ["", "", ""]
    for chunk in client.chat.completions.create(stream=True, **said):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == first


def test_an_answer_goes_on_after_its_beginning(client: openai.OpenAI) -> None:
    begun: Any = [*HELLO, {"role": "assistant", "content": "```python\ndef sort_list("}]
    answer = client.chat.completions.create(messages=begun, **SHORT)
    prompt = (
        "<|im_start|>system\nYou write Python.<|im_end|>\n<|im_start|>user\nSort a list.<|im_end|>\n"
        "<|im_start|>assistant\n```python\ndef sort_list("
    )
    raw = client.completions.create(prompt=prompt, **SHORT)
    assert answer.choices[0].message.content == raw.choices[0].text


@pytest.mark.parametrize("is_chat", [True, False], ids=["chat", "text"])
@pytest.mark.parametrize("is_streamed", [True, False], ids=["stream", "whole"])
def test_usage_counts_the_prompt_once_and_every_answer(
    client: openai.OpenAI, is_chat: bool, is_streamed: bool
) -> None:
    said: dict[str, Any] = {**SHORT, "max_tokens": 4}
    said |= {"messages": HELLO} if is_chat else {"prompt": PROMPT}
    create: Any = client.chat.completions.create if is_chat else client.completions.create
    one = create(**said).usage
    if is_streamed:
        *others, last = create(**said, n=4, stream=True, stream_options={"include_usage": True})
        assert all("usage" in other.model_fields_set and other.usage is None for other in others)
        assert last.choices == [] and {other.choices[0].finish_reason for other in others[-4:]} == {"length"}
        four = last.usage
    else:
        four = create(**said, n=4).usage
    assert (one.completion_tokens, four.completion_tokens) == (4, 16)
    assert four.prompt_tokens == one.prompt_tokens
    assert four.total_tokens == four.prompt_tokens + 16
    assert four.prompt_tokens_details.cached_tokens <= four.prompt_tokens


def test_a_new_turn_after_the_assistants_is_begun_where_it_is_wanted(http: HttpServer) -> None:
    begun = {**SHORT, "messages": [*HELLO, {"role": "assistant", "content": "Use sorted"}]}
    ways: list[dict[str, bool]] = [{}, {"continue_final_message": False}, {"add_generation_prompt": True}]
    usages = [http.post("/v1/chat/completions", begun | more)["usage"] for more in ways]
    goes_on, new, new_too = (usage["prompt_tokens"] for usage in usages)
    assert new_too == new > goes_on
    twice = [*HELLO, *({"role": "assistant", "content": text} for text in ("Use", "sorted"))]
    assert http.post("/v1/chat/completions", {**SHORT, "messages": twice, "continue_final_message": False})


def test_tokens_that_are_banned_and_wanted(client: openai.OpenAI, http: HttpServer) -> None:
    plain = client.completions.create(prompt=PROMPT, logprobs=2, **SHORT).choices[0]
    assert plain.logprobs and plain.logprobs.top_logprobs
    first, second = plain.logprobs.top_logprobs[0]
    tokens = http.post("/tokenize", {"content": first, "parse_special": False})["tokens"]
    for banned in ({str(tokens[0]): -100}, {str(tokens[0]): False}, [[tokens[0], False]]):
        body = {**SHORT, "max_tokens": 1, "prompt": PROMPT, "logit_bias": banned}
        assert http.post("/v1/completions", body)["choices"][0]["text"] == second
        drafted = {**body, "max_tokens": 24, "localspec": {"proposer": "draft"}}
        alone = {**body, "max_tokens": 24, "localspec": {"proposer": "none"}}
        one, other = (http.post("/v1/completions", each)["choices"][0]["text"] for each in (drafted, alone))
        assert one == other


def test_timings_come_with_the_pieces_on_request(http: HttpServer) -> None:
    said = {**SHORT, "messages": HELLO, "stream": True, "timings_per_token": True}
    text = http.ask("POST", "/chat/completions", said | {"stream_options": {"include_usage": True}}).text
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    first, *others, usage = map(json.loads, events[:-1])
    assert "timings" not in first and first["choices"][0]["delta"] == {"role": "assistant", "content": None}
    counts = [each["timings"]["predicted_n"] for each in others]
    assert counts == sorted(counts)
    assert usage["choices"] == [] and usage["timings"]["predicted_n"] == counts[-1]
