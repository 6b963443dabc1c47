"""llama.cpp's dialect: what llama.vim sends is answered with what it reads."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from localspec._version import __version__
from localspec.errors import FimUnsupported
from localspec.http.llama_cpp import DIALECT
from localspec.protocol.messages import LoadedModel
from tests.http.door import Door, opened, wire
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
WARM = VIM | {
    "input_prefix": "",
    "input_suffix": "",
    "prompt": "",
    "n_predict": 0,
    "samplers": [],
    "t_max_prompt_ms": 1,
    "t_max_predict_ms": 1,
    "response_fields": [""],
}


def test_what_llama_vim_asks_and_reads(door: Door) -> None:
    assert door.post("/infill", WARM) == {}
    answer = door.post("/infill", VIM)
    assert sorted(answer) == sorted(FIELDS)
    assert answer["content"] and answer["truncated"] is False
    assert all(isinstance(answer[name], int | float) for name in FIELDS if name.startswith("timings/"))
    assert answer["tokens_cached"] > answer["timings/predicted_n"] >= 1

    async def asked() -> str:
        from localspec.protocol.requests import File

        async with await wire(door.daemon) as client:
            extra = (File("other.py", "items = []\n"),)
            done = await client.complete(BEFORE + LINE, AFTER, extra=extra, trigger="automatic").result()
            return done.items[0].text

    assert answer["content"] == run(asked())


def test_a_prompt_that_was_warmed_is_not_read_again(door: Door) -> None:
    extra = [{"text": "def area(w, h):\n    return w * h\n" * 8, "filename": "shapes.py"}]
    door.post(
        "/infill",
        WARM | {"input_extra": extra, "input_prefix": BEFORE, "input_suffix": AFTER, "prompt": LINE},
    )
    answer = door.post("/infill", VIM | {"input_extra": extra})
    # Until a model's rounding is measured, whole chunks of 32 tokens are taken over.
    assert 0 < answer["timings/prompt_n"] <= 32 < answer["tokens_cached"] / 2


def test_who_asks_for_it_is_told_more(door: Door) -> None:
    unsure, asked = (
        door.post("/infill", VIM | {"samplers": samplers})["content"] for samplers in (["infill"], ["top_k"])
    )
    assert asked.startswith(unsure) and len(asked) > len(unsure)


def test_what_is_left_open_is_as_if_it_was_not_said(door: Door) -> None:
    said = GREEDY | {"temperature": 1, "seed": 3}
    plain = door.post("/completion", said)
    same = door.post("/completion", said | {"response_fields": [], "top_k": -1, "localspec": None})
    assert same["content"] == plain["content"] and same.keys() == plain.keys()
    extra = [{"text": "x = 1\n", "filename": None}]
    assert door.post("/infill", VIM | {"input_extra": extra})["content"]


def test_several_and_one_at_once(door: Door) -> None:
    several = door.post("/infill", VIM | {"n_cmpl": 3, "samplers": []})
    assert 1 < len(several) <= 3 and len({each["content"] for each in several}) == len(several)
    counted = door.post("/infill", VIM | {"n_cmpl": 3, "samplers": [], "response_fields": None})
    assert [each["index"] for each in counted] == [0, 1, 2][: len(counted)]
    assert ["timings" in each for each in counted] == [True, False, False][: len(counted)]
    lines = door.ask("POST", "/infill", VIM | {"stream": True, "response_fields": None}).text.split("\n\n")
    (event,) = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert event["content"] == door.post("/infill", VIM)["content"] and event["stop"]


def test_time_is_up_before_a_prompt_is_read_and_in_an_answer(door: Door) -> None:
    long = "".join(f"value_{i} = compute({i})\n" for i in range(90))
    said = VIM | {"samplers": [], "response_fields": None, "input_prefix": long}
    none = door.post("/infill", said | {"t_max_prompt_ms": 1})
    assert (none["content"], none["tokens_predicted"], none["stop_type"]) == ("", 0, "limit")
    hurried = door.post("/completion", {"prompt": "def f():\n", "n_predict": 1500, "t_max_predict_ms": 1})
    assert 0 < hurried["tokens_predicted"] < 1500 and hurried["stop_type"] == "limit"
    patient = door.post("/infill", said | {"t_max_prompt_ms": -1, "t_max_predict_ms": 0})
    assert patient["content"]


def test_the_rate_is_that_of_the_tokens_that_were_timed(door: Door) -> None:
    one = door.post("/completion", GREEDY | {"n_predict": 1})["timings"]
    assert (one["predicted_n"], one["predicted_per_second"], one["predicted_per_token_ms"]) == (1, 0.0, 0.0)
    answer = door.post("/completion", GREEDY)
    timings, stats = answer["timings"], answer["localspec"]["stats"]
    assert timings["predicted_per_second"] == pytest.approx(stats["decode_tokens_per_s"])
    assert timings["predicted_per_second"] == pytest.approx(
        1000 * (timings["predicted_n"] - 1) / timings["predicted_ms"]
    )


def test_several_prompts_and_what_was_probable(door: Door) -> None:
    said = GREEDY | {"n_probs": 2, "timings_per_token": True}
    one = door.post("/completion", said)
    assert "".join(each["token"] for each in one["completion_probabilities"]) == one["content"]
    assert all(len(each["top_logprobs"]) == 2 for each in one["completion_probabilities"])
    assert one["prompt"] == GREEDY["prompt"] and one["generation_settings"]["n_predict"] == 16
    several = door.post("/completions", said | {"prompt": [GREEDY["prompt"], {"prompt_string": "import "}]})
    assert [each["index"] for each in several] == [0, 1] and several[0]["content"] == one["content"]
    text = door.ask("POST", "/completion", said | {"stream": True}).text
    *pieces, end = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]
    assert [each for piece in pieces for each in piece["completion_probabilities"]] == one[
        "completion_probabilities"
    ]
    assert pieces[-1]["timings"]["predicted_n"] == end["timings"]["predicted_n"]


def test_a_gap_says_that_it_is_filled_greedily(door: Door) -> None:
    gap = {"input_prefix": "def f(", "input_suffix": "\n", "n_predict": 2}
    told = [door.post("/infill", gap | more) for more in ({}, {"temperature": 0.5})]
    assert [each["generation_settings"]["temperature"] for each in told] == [0.0, 0.5]


def test_progress_of_a_long_prompt_comes_in_the_stream(door: Door) -> None:
    prompt = "".join(f"value_{i} = other_{i} + {i}\n" for i in range(60))
    begun = [_progress(door, "/completion", {"prompt": prompt}) for _ in range(2)]
    for told in begun:
        total = told[0]["total"]
        processed = [each["processed"] for each in told]
        assert all((each["total"], each["cache"]) == (total, told[0]["cache"]) for each in told)
        assert processed == sorted(processed) and processed[-1] == total > 256
        assert all(each["time_ms"] >= 0 for each in told)
    assert begun[0][0]["cache"] == 0 < begun[1][0]["cache"] and len(begun[0]) > 1
    chat = _progress(door, "/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}]})
    assert chat[-1]["processed"] == chat[-1]["total"]


def _progress(door: Door, path: str, said: dict[str, Any]) -> list[dict[str, int]]:
    """The ``prompt_progress`` of a stream, all of which comes before the answer's text."""
    asked = said | {"stream": True, "return_progress": True, "max_tokens": 2, "temperature": 0}
    lines = door.ask("POST", path, asked).text.split("\n\n")
    data = [line.removeprefix("data: ") for line in lines if line]
    chunks = [json.loads(each) for each in data if each != "[DONE]"]
    at = [i for i, chunk in enumerate(chunks) if "prompt_progress" in chunk]
    assert at == list(range(at[0], at[0] + len(at))) and at[0] <= 1
    return [chunks[i]["prompt_progress"] for i in at]


def test_slots_are_told_without_a_load() -> None:
    with opened(real=True) as door:
        before = door.ask("GET", "/slots").json()
        assert run(_loaded(door)) == ()
        door.post("/completion", GREEDY)
        assert len(run(_loaded(door))) == 1
        after = door.ask("GET", "/slots").json()
        assert [(slot["id"], slot["n_ctx"]) for slot in before] == [
            (slot["id"], slot["n_ctx"]) for slot in after
        ]


async def _loaded(door: Door) -> tuple[LoadedModel, ...]:
    async with await wire(door.daemon) as client:
        return (await client.status()).models


def test_what_the_server_says_of_itself(door: Door) -> None:
    assert door.ask("GET", "/v1/health", authorization="").json() == {"status": "ok"}
    door.post("/completion", GREEDY)
    slots = door.ask("GET", "/slots").json()
    assert slots and all(slot["n_ctx"] == 2048 and slot["is_processing"] is False for slot in slots)
    props = door.ask("GET", "/props").json()
    assert props["total_slots"] == len(slots) and "<|im_start|>" in props["chat_template"]
    assert props["default_generation_settings"]["params"]["temperature"] == 0.7
    metrics = door.ask("GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    before = dict(line.split() for line in metrics.text.splitlines() if line.startswith("llamacpp:"))
    timings = door.post("/completion", GREEDY)["timings"]
    text = door.ask("GET", "/metrics").text
    after = dict(line.split() for line in text.splitlines() if line.startswith("llamacpp:"))
    for name, count in (
        ("prompt_tokens_total", timings["prompt_n"]),
        ("prompt_tokens_cached_total", timings["cache_n"]),
        ("tokens_predicted_total", timings["predicted_n"]),
    ):
        assert float(after[f"llamacpp:{name}"]) - float(before[f"llamacpp:{name}"]) == count, name
    (card, *_) = door.ask("GET", "/models").json()["data"]
    assert card["meta"]["n_ctx_train"] == 2048 and card["meta"]["n_params"] > 1e6


def test_a_prompt_that_is_too_long_has_its_numbers(door: Door) -> None:
    refused = door.ask("POST", "/completion", {"prompt": "word " * 9000})
    error = refused.json()["error"]
    assert (refused.status_code, error["type"]) == (400, "exceed_context_size_error")
    assert error["n_prompt_tokens"] > error["n_ctx"] == 2048


def test_lines_that_are_indented_less_are_left_out() -> None:
    from localspec.http.llama_cpp import _indented

    text = "a\n        b\n\n    c\n        d"
    assert _indented(text, 8) == "a\n        b\n"
    assert _indented(text, 4) == _indented(text, None) == _indented(text, 0) == text
    assert _indented("a\n\tb\nc", 1) == "a\n\tb"


def test_a_text_whole_and_as_it_comes(door: Door) -> None:
    whole = door.post("/completion", GREEDY)
    assert whole["content"] and whole["tokens_predicted"] <= 16 and whole["model"] == "stdlib-6m"
    assert whole["localspec"]["stats"]["lossless"] is True
    text = door.ask("POST", "/completion", GREEDY | {"stream": True}).text
    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]


def test_tokens(door: Door) -> None:
    text = "def grüße(🐻): # <|im_end|>"
    plain = door.post("/tokenize", {"content": text, "parse_special": False})["tokens"]
    pieces = door.post("/tokenize", {"content": text, "with_pieces": True, "parse_special": False})["tokens"]
    assert [each["id"] for each in pieces] == plain
    joined = b"".join(
        each["piece"].encode() if isinstance(each["piece"], str) else bytes(each["piece"]) for each in pieces
    )
    assert joined.decode() == text
    assert len(door.post("/tokenize", {"content": text})["tokens"]) <= len(plain)
    assert door.post("/tokenize", {"content": ""}) == {"tokens": []}


def test_what_is_loaded(door: Door) -> None:
    props = door.post("/tokenize", {"content": "x"}) and door.ask("GET", "/props").json()
    assert props["default_generation_settings"]["n_ctx"] == 2048
    assert Path(props["model_path"]).name == "stdlib-6m.gguf" and __version__ in props["build_info"]


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/infill", {"lora": [{"id": 0, "scale": 0.5}]}, "lora is not supported"),
        ("/infill", {"n_cmpl": 9}, "n_cmpl"),
        ("/infill", {"input_extra": [{"filename": "x"}]}, "text"),
        ("/completion", {"prompt": ["a", "b"] * 9}, "prompt has 18 prompts"),
        ("/completion", {"prompt": []}, "prompt is an empty list"),
        ("/completion", {"prompt": [1, ["a"]]}, "prompt has lists beside tokens"),
        (
            "/completion",
            {"prompt": {"prompt_string": "x", "multimodal_data": ["x"]}},
            "multimodal_data is not",
        ),
        ("/completion", {}, "prompt"),
        ("/completion", {"prompt": "x", "grammar": "root ::= [0-9]"}, "grammar is not supported"),
        ("/completion", {"prompt": "x", "n_probs": 21}, "n_probs takes a whole number"),
        ("/infill", {"n_probs": 5}, "n_probs is not supported"),
        ("/infill", {"return_tokens": True}, "return_tokens is not supported"),
        ("/completion", b"", "the body is empty"),
        (
            "/completion",
            {"prompt": "x", "localspec": {"k": 99}},
            "localspec.k takes a whole number from 1 to 20, not 99",
        ),
        ("/completion", [], "object"),
        ("/tokenize", {}, "content"),
    ],
)
def test_what_is_refused(echo: Door, path: str, body: Any, sentence: str) -> None:
    answer = echo.ask("POST", path, body)
    assert answer.status_code == 400 and sentence in answer.json()["error"]["message"], answer.text
    assert answer.json()["error"]["code"] == 400


def options(echo: Door, **said: Any) -> dict[str, Any]:
    """What the model is told of it."""
    told: dict[str, Any] = json.loads(echo.post("/completion", {"prompt": "options", **said})["content"])
    return {name: value for name, value in told.items() if value is not None}


SAID = {"temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.1, "repeat_penalty": 1.5}
NAMES = ["penalties", "top_k", "top_p", "min_p", "temperature"]


def test_samplers_that_are_left_out_do_nothing(echo: Door) -> None:
    plain = options(echo, **SAID)
    assert plain | SAID == plain
    neutral = ["dry", "top_n_sigma", "typ_p", "xtc"]
    here = ["penalties", "temperature", "top_k", "top_p", "min_p"]
    aliases = ["penalties", "Top-K", "nucleus", "minp", "temp"]
    for all_of_them in (None, NAMES, [*neutral, *NAMES], here, aliases, "edskypmxt"):
        assert options(echo, samplers=all_of_them, **SAID) == plain
    few = options(echo, samplers=["top_k", "top_p", "infill"], **SAID)
    off = {"temperature": 1, "min_p": 0, "repeat_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0}
    assert few == plain | off
    unsaid = options(echo, samplers="kp")
    assert "temperature" not in unsaid and "top_k" not in unsaid and unsaid["min_p"] == 0
    assert (
        options(echo, samplers=[], **SAID)
        == options(echo, samplers="", **SAID)
        == few | {"top_k": 0, "top_p": 1}
    )
    for odd in (["top_p", "top_k"], ["temp", "temperature"], "kk"):
        refused = echo.ask("POST", "/completion", {"prompt": "x", "samplers": odd})
        assert refused.status_code == 400 and "penalties, top_k, top_p, min_p, temperature" in refused.text


def test_what_nothing_looks_at_may_be_said(echo: Door) -> None:
    nothing = {
        "repeat_last_n": 64,
        "repeat_penalty": 1.0,
        "top_n_sigma": -1.0,
        "n_predict": 8.0,
        "top_k": 40.0,
    }
    told = options(echo, **nothing)
    assert (told["max_tokens"], told["top_k"]) == (8, 40)
    assert options(echo, repeat_last_n=-1, repeat_penalty=1.2)["repeat_penalty"] == 1.2
    assert options(echo, repeat_last_n=0, repeat_penalty=1.2)["repeat_last_n"] == 0
    told = options(echo, repeat_last_n=64, repeat_penalty=1.2)
    assert (told["repeat_last_n"], told["repeat_penalty"]) == (64, 1.2)
    assert options(echo, repeat_last_n=64, repeat_penalty=1.2, samplers=["top_k"])["repeat_penalty"] == 1


@pytest.mark.parametrize("seed", [-1, 2**32 - 1])
def test_seeds_that_are_none(echo: Door, seed: int) -> None:
    assert "seed" not in options(echo, seed=seed)
    assert options(echo, seed=7)["seed"] == 7


def test_the_word_that_ended_it(door: Door) -> None:
    said = GREEDY | {"n_predict": 64, "stop": ["\x00", "return", "\n\n\n"]}
    ended = door.post("/completion", said)
    assert (ended["stop_type"], ended["stopping_word"]) == ("word", "return")
    assert "return" not in ended["content"] and ended["localspec"]["stop_text"] == "return"
    unended = door.post("/completion", GREEDY)
    assert unended["stopping_word"] == "" and "stop_text" not in unended["localspec"]
    gap = door.post(
        "/infill", {"input_prefix": "x = [1, 2, ", "input_suffix": "]\nprint(x)\n", "n_predict": 40}
    )
    assert (gap["stop_type"], gap["stopping_word"]) == ("eos", "")


def test_lengths_and_numbers_by_all_their_names(echo: Door) -> None:
    for said in ({"n_predict": 5}, {"max_tokens": 5}, {"max_completion_tokens": 5.0, "max_tokens": 3}):
        assert options(echo, **said)["max_tokens"] == 5
    assert options(echo, seed=42.0)["seed"] == 42
    assert isinstance(echo.post("/infill", {"prompt": "then word", "n": 2.0, "n_indent": 0.0}), list)


def test_tokens_for_who_wants_them(door: Door) -> None:
    told = door.post("/completion", GREEDY | {"return_tokens": True})
    assert len(told["tokens"]) == told["tokens_predicted"] > 0
    assert door.post("/completion", GREEDY)["tokens"] == []


@pytest.mark.parametrize(
    ("method", "path", "said", "status", "kind"),
    [
        ("POST", "/completion", {"prompt": 1}, 400, "invalid_request_error"),
        ("POST", "/completion", {"prompt": "x", "model": "nobody-has-this"}, 404, "not_found_error"),
        ("POST", "/completion", {"prompt": "word " * 9000}, 400, "exceed_context_size_error"),
        ("GET", "/completion", None, 405, "invalid_request_error"),
    ],
)
def test_errors_that_programs_know_by_name(
    door: Door, method: str, path: str, said: Any, status: int, kind: str
) -> None:
    answer = door.ask(method, path, said)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (status, status, kind)


def test_other_errors_that_programs_know_by_name(echo: Door) -> None:
    stranger = echo.ask("POST", "/infill", VIM, authorization="Bearer wrong")
    assert stranger.status_code == 401 and stranger.json()["error"]["type"] == "authentication_error"
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
INSTRUCT_WARM = {
    "id_slot": 1,
    "messages": [INSTRUCT["messages"][0], {"role": "user", "content": ""}],
    "samplers": [],
    "n_predict": 0,
    "stream": False,
    "cache_prompt": True,
    "response_fields": [""],
}


def test_what_llama_vim_asks_for_an_edit(door: Door) -> None:
    path = "/v1/chat/completions"
    warmed = door.post(path, INSTRUCT_WARM)
    assert warmed["usage"]["completion_tokens"] == 0
    text = door.ask(
        "POST", path, INSTRUCT | {"max_tokens": 8, "stream_options": {"include_usage": True}}
    ).text
    chunks = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n")[:-2]]
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1])
    usage = chunks[-1]["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > usage["prompt_tokens"] / 2


def test_curl(door: Door, tmp_path: Path) -> None:
    secret = tmp_path / "headers"
    secret.write_text(f"Authorization: Bearer {door.token}\n")
    done = subprocess.run(
        ("curl", "-sSN", "--noproxy", "*", "-H", f"@{secret}", f"{door.url}/completion", "-d", "@-"),
        input=json.dumps(GREEDY),
        capture_output=True,
        text=True,
        check=True,
    )
    content = json.loads(done.stdout)["content"]
    assert content and content == door.post("/completion", GREEDY)["content"]


def test_time_until_the_first_token_is_told(door: Door) -> None:
    began = time.perf_counter()
    timings = door.post("/completion", {"prompt": "x = " * 200, "n_predict": 8})["timings"]
    whole_ms = 1000 * (time.perf_counter() - began)
    assert 0 < timings["prompt_ms"] + timings["predicted_ms"] < whole_ms
    assert timings["prompt_n"] + timings["cache_n"] > 200
