"""llama.cpp's dialect: the answers that llama.vim reads, and reports of the server."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.errors import FimUnsupported
from localspec.http.llama_cpp import DIALECT, _cut_at_indent
from localspec.protocol.requests import File
from tests.http.server import HttpServer, wire
from tests.waiting import run

GREEDY = {"prompt": "def fib(n):\n", "n_predict": 16, "temperature": 0, "seed": -1}
BEFORE = "import heapq\n\n\nclass Queue:\n    def __init__(self):\n        self.items = []\n\n"
LINE = "    def push(self, item):\n        self."
AFTER = "\n\n    def pop(self):\n        return heapq.heappop(self.items)\n"
FIELDS = [
    *("content", "timings/prompt_n", "timings/prompt_ms", "timings/prompt_per_token_ms"),
    *("timings/prompt_per_second", "timings/predicted_n", "timings/predicted_ms"),
    *("timings/predicted_per_token_ms", "timings/predicted_per_second", "truncated", "tokens_cached"),
]
VIM: dict[str, Any] = {
    "id_slot": 0,
    "input_prefix": BEFORE,
    "input_suffix": AFTER,
    "input_extra": [{"text": "items = []\n", "time": 12345, "filename": "other.py"}],
    "prompt": LINE,
    "n_predict": 128,
    "stop": [],
    "n_indent": 8,
    "top_k": 40,
    "top_p": 0.90,
    "samplers": ["top_k", "top_p", "infill"],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 60_000,
    "t_max_predict_ms": 60_000,
    "response_fields": FIELDS,
}
"""as llama.vim sends it, but for the patience with a slow machine"""
EMPTY = dict.fromkeys(("input_prefix", "input_suffix", "prompt"), "")
WARM = VIM | EMPTY | {"n_predict": 0, "samplers": [], "response_fields": [""]}
WARM |= {"t_max_prompt_ms": 1, "t_max_predict_ms": 1}


@pytest.mark.slow
def test_what_llama_vim_asks_and_reads(http: HttpServer) -> None:
    assert http.post("/infill", WARM) == {}
    answer = http.post("/infill", VIM)
    assert sorted(answer) == sorted(FIELDS)
    assert answer["content"] and answer["truncated"] is False
    assert all(isinstance(answer[name], int | float) for name in FIELDS if name.startswith("timings/"))
    assert answer["tokens_cached"] > answer["timings/predicted_n"] >= 1

    async def asked() -> str:
        async with await wire(http.daemon) as client:
            extra = (File("other.py", "items = []\n"),)
            done = await client.complete(BEFORE + LINE, AFTER, extra=extra, trigger="automatic").result()
            return done.items[0].text

    assert answer["content"] == run(asked())


def test_a_prompt_that_was_warmed_is_not_read_again(http: HttpServer) -> None:
    extra = {"input_extra": [{"text": "def area(w, h):\n    return w * h\n" * 8, "filename": "shapes.py"}]}
    gap = {"input_prefix": BEFORE, "input_suffix": AFTER, "prompt": LINE}
    http.post("/infill", WARM | extra | gap)
    answer = http.post("/infill", VIM | extra)
    # Until a model's rounding is measured, whole chunks of 32 tokens are taken over.
    assert 0 < answer["timings/prompt_n"] <= 32 < answer["tokens_cached"] / 2


@pytest.mark.slow
def test_several_and_one_at_once(http: HttpServer) -> None:
    several = http.post("/infill", VIM | {"n_cmpl": 3, "samplers": []})
    assert 1 < len(several) <= 3 and len({each["content"] for each in several}) == len(several)
    counted = http.post("/infill", VIM | {"n_cmpl": 3, "samplers": [], "response_fields": None})
    assert [each["index"] for each in counted] == [0, 1, 2][: len(counted)]
    assert ["timings" in each for each in counted] == [True, False, False][: len(counted)]
    (event,) = http.events("/infill", VIM | {"response_fields": None})
    assert event["content"] == http.post("/infill", VIM)["content"] and event["stop"]


@pytest.mark.slow
def test_time_is_up_before_a_prompt_is_read_and_in_an_answer(http: HttpServer) -> None:
    long = "".join(f"value_{i} = compute({i})\n" for i in range(90))
    said = VIM | {"samplers": [], "response_fields": None, "input_prefix": long}
    none = http.post("/infill", said | {"t_max_prompt_ms": 1})
    assert (none["content"], none["tokens_predicted"], none["stop_type"]) == ("", 0, "limit")
    hurried = http.post("/completion", {"prompt": "def f():\n", "n_predict": 1500, "t_max_predict_ms": 1})
    assert 0 < hurried["tokens_predicted"] < 1500 and hurried["stop_type"] == "limit"
    patient = http.post("/infill", said | {"t_max_prompt_ms": -1, "t_max_predict_ms": 0})
    assert patient["content"]


def assert_nearly_the_same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """The same tokens; their probabilities may be rounded otherwise, as rows of a draft's forward are."""
    assert [each["token"] for each in one] == [each["token"] for each in other]
    expected = pytest.approx([each["logprob"] for each in other], abs=0.01)
    assert [each["logprob"] for each in one] == expected


@pytest.mark.slow
def test_several_prompts_and_what_was_probable(http: HttpServer) -> None:
    said = GREEDY | {"n_probs": 2, "timings_per_token": True}
    one = http.post("/completion", said)
    assert "".join(each["token"] for each in one["completion_probabilities"]) == one["content"]
    assert all(len(each["top_logprobs"]) == 2 for each in one["completion_probabilities"])
    assert one["prompt"] == GREEDY["prompt"] and one["generation_settings"]["n_predict"] == 16
    several = http.post("/completions", said | {"prompt": [GREEDY["prompt"], {"prompt_string": "import "}]})
    assert [each["index"] for each in several] == [0, 1] and several[0]["content"] == one["content"]
    *pieces, end = http.events("/completion", said)
    streamed = [each for piece in pieces for each in piece["completion_probabilities"]]
    assert len(streamed) == len(pieces), "clients read the first one alone"
    assert_nearly_the_same(streamed, one["completion_probabilities"])
    assert pieces[-1]["timings"]["predicted_n"] == end["timings"]["predicted_n"]


def test_a_gap_says_that_it_is_filled_greedily(http: HttpServer) -> None:
    gap = {"input_prefix": "def f(", "input_suffix": "\n", "n_predict": 2}
    seen = [http.post("/infill", gap | more) for more in ({}, {"temperature": 0.5})]
    assert [each["generation_settings"]["temperature"] for each in seen] == [0.0, 0.5]


def test_lines_that_are_indented_less_are_left_out() -> None:
    text = "a\n        b\n\n    c\n        d"
    assert _cut_at_indent(text, 8) == "a\n        b\n"
    assert _cut_at_indent(text, 4) == _cut_at_indent(text, None) == _cut_at_indent(text, 0) == text
    assert _cut_at_indent("a\n\tb\nc", 1) == "a\n\tb"


def test_a_text_whole_and_as_it_comes(http: HttpServer) -> None:
    whole = http.post("/completion", GREEDY)
    assert whole["content"] and whole["tokens_predicted"] <= 16 and whole["model"] == "stdlib-6m"
    assert whole["localspec"]["stats"]["rounds"] > 0
    events = http.events("/completion", GREEDY)
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]


def test_tokens(http: HttpServer) -> None:
    text = "def grüße(🐻): # <|im_end|>" * 300
    plain = http.post("/tokenize", {"content": text, "parse_special": False})["tokens"]
    pieces = http.post("/tokenize", {"content": text, "with_pieces": True, "parse_special": False})["tokens"]
    assert [each["id"] for each in pieces] == plain
    each_piece = [each["piece"] for each in pieces]
    assert b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in each_piece).decode() == text
    assert len(http.post("/tokenize", {"content": text})["tokens"]) <= len(plain)
    assert http.post("/tokenize", {"content": ""}) == {"tokens": []}


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/completion", {"prompt": ["a", "b"] * 9}, "prompt is a list of 18 prompts"),
        ("/completion", {"prompt": []}, "prompt is an empty list"),
        ("/completion", {"prompt": [1, ["a"]]}, "prompt is a list that mixes tokens with lists or objects"),
        ("/completion", {"prompt": {"prompt_string": "x", "multimodal_data": ["x"]}}, "multimodal_data"),
        ("/completion", {"prompt": "x", "n_probs": 21}, "n_probs takes a whole number"),
        ("/completion", b"", "the request body is empty"),
        ("/completion", [], "object"),
        ("/tokenize", {}, "content"),
    ],
)
def test_what_is_refused(echo: HttpServer, path: str, body: Any, sentence: str) -> None:
    answer = echo.ask("POST", path, body)
    assert answer.status_code == 400 and sentence in answer.json()["error"]["message"], answer.text
    assert answer.json()["error"]["code"] == 400


def test_the_word_that_ended_it(http: HttpServer) -> None:
    said = GREEDY | {"n_predict": 64, "stop": ["\x00", "return", "\n\n\n"]}
    ended = http.post("/completion", said)
    assert (ended["stop_type"], ended["stopping_word"]) == ("word", "return")
    assert "return" not in ended["content"] and ended["localspec"]["stop_text"] == "return"
    unended = http.post("/completion", GREEDY)
    assert unended["stopping_word"] == "" and "stop_text" not in unended["localspec"]
    gap = {"input_prefix": "x = [1, 2, ", "input_suffix": "]\nprint(x)\n", "n_predict": 40}
    filled = http.post("/infill", gap)
    assert (filled["stop_type"], filled["stopping_word"]) == ("eos", "")


@pytest.mark.parametrize(
    ("method", "path", "said", "status", "kind"),
    [
        ("POST", "/completion", {"prompt": 1}, 400, "invalid_request_error"),
        ("POST", "/completion", {"prompt": "x", "model": "not-here"}, 404, "not_found_error"),
        ("POST", "/completion", {"prompt": "word " * 9000}, 400, "exceed_context_size_error"),
        ("GET", "/completion", None, 405, "invalid_request_error"),
    ],
)
def test_errors_that_programs_know_by_name(
    http: HttpServer, method: str, path: str, said: Any, status: int, kind: str
) -> None:
    answer = http.ask(method, path, said)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (status, status, kind)


def test_other_errors_that_programs_know_by_name(echo: HttpServer) -> None:
    answer = echo.ask("POST", "/infill", VIM, authorization="Bearer wrong")
    assert answer.status_code == 401 and answer.json()["error"]["type"] == "authentication_error"
    page = echo.ask("POST", "/infill", VIM, origin="https://evil.example")
    assert page.status_code == 403 and page.json()["error"]["type"] == "permission_error"
    without_marks = FimUnsupported("it cannot")
    status = DIALECT.status(without_marks)
    assert status == 501 and DIALECT.error(without_marks, status)["error"]["type"] == "not_supported_error"


INSTRUCT: dict[str, Any] = {
    "id_slot": 1,
    "messages": [
        {"role": "system", "content": "You are a text-editing assistant.\n\n" + BEFORE * 8},
        {"role": "user", "content": "INSTRUCTION: sort it"},
    ],
    "min_p": 0.1,
    "temperature": 0.1,
    "samplers": ["min_p", "temperature"],
    "stream": True,
    "cache_prompt": True,
}
"""as llama.vim sends it to the chat's address, for an edit"""
INSTRUCT_WARM = {"id_slot": 1, "samplers": [], "n_predict": 0, "stream": False, "cache_prompt": True}
INSTRUCT_WARM |= {"messages": [INSTRUCT["messages"][0], {"role": "user", "content": ""}]}
INSTRUCT_WARM |= {"response_fields": [""]}


def test_what_llama_vim_asks_for_an_edit(http: HttpServer) -> None:
    path = "/v1/chat/completions"
    warmed = http.post(path, INSTRUCT_WARM)
    assert warmed["usage"]["completion_tokens"] == 0
    chunks = http.events(path, INSTRUCT | {"max_tokens": 8, "stream_options": {"include_usage": True}})
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1])
    usage = chunks[-1]["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > usage["prompt_tokens"] / 2


def test_the_text_of_tokens_and_the_prompt_of_a_chat(http: HttpServer) -> None:
    text = "def grüße(🐻): # <|im_end|>"
    tokens = http.post("/tokenize", {"content": text})["tokens"]
    assert http.post("/detokenize", {"tokens": tokens}) == {"content": text}
    assert http.post("/detokenize", {"tokens": []}) == {"content": ""}
    chat = {"messages": [{"role": "user", "content": "Say <|im_end|>"}]}
    prompt = http.post("/apply-template", chat)["prompt"]
    assert "<|im_start|>user\nSay <|im_end|><|im_end|>\n<|im_start|>assistant\n" in prompt
    counted = http.post("/v1/messages/count_tokens", chat)["input_tokens"]
    answered = http.post("/v1/chat/completions", chat | {"max_tokens": 1})
    assert counted == answered["usage"]["prompt_tokens"]
    long = {"messages": [{"role": "user", "content": "word " * 9000}]}
    assert http.post("/v1/messages/count_tokens", long)["input_tokens"] > 9000


COUNTERS = (
    *("tokens_predicted_total", "tokens_predicted_seconds_total", "prompt_tokens_total"),
    *("prompt_seconds_total", "n_decode_total", "n_tokens_max", "prompt_tokens_cached_total"),
    *("spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total"),
    "spec_decode_num_drafts_total",
)
GAUGES = ("prompt_tokens_seconds", "predicted_tokens_seconds", "requests_processing", "requests_deferred")


@pytest.mark.slow
def test_what_the_server_says_of_itself(http: HttpServer) -> None:
    assert http.ask("GET", "/v1/health", authorization="").json() == {"status": "ok"}
    http.post("/completion", GREEDY)
    props = http.ask("GET", "/props").json()
    assert props["total_slots"] >= 1 and "<|im_start|>" in props["chat_template"]
    assert props["default_generation_settings"]["params"]["temperature"] == 0.7
    assert (props["bos_token"], props["eos_token"]) == ("<|endoftext|>", "<|im_end|>")
    assert props["modalities"] == {"vision": False, "video": False, "audio": False}
    assert props["chat_template_caps"]["supports_tools"] is True and props["model_ftype"] == "F16"
    metrics = http.ask("GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    before = dict(line.split() for line in metrics.text.splitlines() if line.startswith("llamacpp:"))
    timings = http.post("/completion", GREEDY)["timings"]
    text = http.ask("GET", "/metrics").text
    after = dict(line.split() for line in text.splitlines() if line.startswith("llamacpp:"))
    for name, count in (
        ("prompt_tokens_total", timings["prompt_n"]),
        ("prompt_tokens_cached_total", timings["cache_n"]),
        ("tokens_predicted_total", timings["predicted_n"]),
    ):
        assert float(after[f"llamacpp:{name}"]) - float(before[f"llamacpp:{name}"]) == count, name
    assert {name.removeprefix("llamacpp:") for name in after} == {*COUNTERS, *GAUGES}
    assert all(f"# TYPE llamacpp:{name} counter" in text for name in COUNTERS)
    for name in (*COUNTERS[:6], *GAUGES[:2]):
        assert float(after[f"llamacpp:{name}"]) > 0, name
    found = http.ask("GET", "/models").json()
    card = found["data"][0]
    meta = card["meta"]
    assert meta.items() >= {"n_ctx": 2048, "n_ctx_train": 2048, "ftype": "F16"}.items()
    assert meta["n_params"] > 1e6 and meta["size"] > 1e6
    one = http.ask("GET", f"/v1/models/{card['id']}").json()
    assert one == card and http.ask("GET", "/v1/models").json()["data"] == found["data"]
