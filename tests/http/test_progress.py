"""Progress of a prompt and its timings, as llama.cpp's dialect reports them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.http.server import HttpServer

GREEDY = {"prompt": "def fib(n):\n", "n_predict": 16, "temperature": 0, "seed": -1}


@pytest.mark.slow
def test_the_rate_is_that_of_the_tokens_that_were_timed(door: HttpServer) -> None:
    one = door.post("/completion", GREEDY | {"n_predict": 1})["timings"]
    assert (one["predicted_n"], one["predicted_per_second"], one["predicted_per_token_ms"]) == (1, 0.0, 0.0)
    answer = door.post("/completion", GREEDY)
    timings, stats = answer["timings"], answer["localspec"]["stats"]
    assert timings["predicted_per_second"] == pytest.approx(stats["decode_tokens_per_s"])
    assert timings["predicted_per_second"] == pytest.approx(
        1000 * (timings["predicted_n"] - 1) / timings["predicted_ms"]
    )


@pytest.mark.slow
def test_progress_of_a_long_prompt_comes_in_the_stream(door: HttpServer) -> None:
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


@pytest.mark.parametrize("path", ["/completion", "/v1/completions", "/v1/chat/completions"])
def test_progress_of_a_short_prompt_comes_before_and_after_it_is_read(door: HttpServer, path: str) -> None:
    text = f"def short_{path.count('/')}{len(path)}(x):\n"
    said = {"messages": [{"role": "user", "content": text}]} if "chat" in path else {"prompt": text}
    for _ in range(2):
        begin, *more = told = _progress(door, path, said)
        end = more[-1]
        processed = [each["processed"] for each in told]
        assert processed == sorted({*processed}), "each tells something new"
        assert begin["processed"] == begin["cache"] == end["cache"] < begin["total"]
        assert end["processed"] == end["total"] == begin["total"] and end["time_ms"] >= begin["time_ms"]


def test_timings_of_chunks_are_those_of_the_answer(door: HttpServer) -> None:
    asked = {"prompt": "timings = [", "n_predict": 24, "temperature": 0, "timings_per_token": True}
    text = door.ask("POST", "/completion", asked | {"stream": True}).text
    *pieces, end = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]
    assert not any("prompt_progress" in piece for piece in pieces)
    told, whole = pieces[-1]["timings"], end["timings"]
    assert told.keys() == whole.keys() - {"draft_n", "draft_n_accepted"}
    for name in ("cache_n", "prompt_n", "predicted_n"):
        assert told[name] == whole[name], name
    assert told["prompt_ms"] > 0 and told["prompt_per_second"] > 0
    rates = [piece["timings"]["predicted_per_second"] for piece in pieces]
    assert rates[0] == 0.0 and all(rate > 0 for rate in rates[1:])


def _progress(door: HttpServer, path: str, said: dict[str, Any]) -> list[dict[str, int]]:
    """The ``prompt_progress`` of a stream, all of which comes before the answer's text."""
    asked = said | {"stream": True, "return_progress": True, "max_tokens": 2, "temperature": 0}
    lines = door.ask("POST", path, asked).text.split("\n\n")
    data = [line.removeprefix("data: ") for line in lines if line]
    chunks = [json.loads(each) for each in data if each != "[DONE]"]
    at = [i for i, chunk in enumerate(chunks) if "prompt_progress" in chunk]
    assert at == list(range(at[0], at[0] + len(at))) and at[0] <= 1
    return [chunks[i]["prompt_progress"] for i in at]


def test_time_until_the_first_token_is_told(door: HttpServer) -> None:
    began = time.perf_counter()
    timings = door.post("/completion", {"prompt": "x = " * 200, "n_predict": 8})["timings"]
    whole_ms = 1000 * (time.perf_counter() - began)
    assert 0 < timings["prompt_ms"] + timings["predicted_ms"] < whole_ms
    assert timings["prompt_n"] + timings["cache_n"] > 200
