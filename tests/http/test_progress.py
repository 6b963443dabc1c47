"""Progress of a prompt and its timings, as llama.cpp's dialect reports them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.server import HttpServer

FIELDS = {"/completion": "prompt", "/v1/completions": "prompt", "/v1/chat/completions": "messages"}
FIELDS["/responses"] = "input"
"""the field of the prompt by path"""


@pytest.mark.parametrize("path", FIELDS)
def test_progress_of_a_short_prompt_comes_before_and_after_it_is_read(http: HttpServer, path: str) -> None:
    text = f"def short_{path.count('/')}{len(path)}(x):\n"
    said: dict[str, Any] = {FIELDS[path]: [{"role": "user", "content": text}] if "chat" in path else text}
    for _ in range(2):
        begin, *more = seen = _progress(http, path, said)
        end = more[-1]
        processed = [each["processed"] for each in seen]
        assert processed == sorted({*processed}), "each tells something new"
        assert begin["processed"] == begin["cache"] == end["cache"] < begin["total"]
        assert end["processed"] == end["total"] == begin["total"] and end["time_ms"] >= begin["time_ms"]


def test_timings_of_chunks_are_those_of_the_answer(http: HttpServer) -> None:
    asked = {"prompt": "timings = [", "n_predict": 24, "temperature": 0, "timings_per_token": True}
    *pieces, end = http.events("/completion", asked)
    assert not any("prompt_progress" in piece for piece in pieces)
    seen, whole = pieces[-1]["timings"], end["timings"]
    assert seen.keys() == whole.keys() - {"draft_n", "draft_n_accepted"}
    for name in ("cache_n", "prompt_n", "predicted_n"):
        assert seen[name] == whole[name], name
    assert seen["prompt_ms"] > 0 and seen["prompt_per_second"] > 0
    rates = [piece["timings"]["predicted_per_second"] for piece in pieces]
    assert rates[0] == 0.0 and all(rate > 0 for rate in rates[1:])


def _progress(http: HttpServer, path: str, said: dict[str, Any]) -> list[dict[str, int]]:
    """The ``prompt_progress`` of a stream, all of which comes before the answer's text."""
    asked = said | {"stream": True, "return_progress": True, "max_tokens": 2, "temperature": 0}
    asked["timings_per_token"] = True
    lines = http.ask("POST", path, asked).text.split("\n\n")
    data = [line.partition("data: ")[2] for line in lines if line]
    chunks = [json.loads(each) for each in data if each != "[DONE]"]
    at = [i for i, chunk in enumerate(chunks) if "prompt_progress" in chunk]
    assert at == list(range(at[0], at[0] + len(at))) and at[0] <= 2
    seen = [(chunks[i]["prompt_progress"], chunks[i]["timings"]) for i in at]
    for progress, timings in seen:
        assert timings["prompt_n"] == progress["processed"] - progress["cache"]
        assert (timings["prompt_ms"] > 0) == (timings["prompt_n"] > 0) and timings["predicted_ms"] == 0
    return [progress for progress, _ in seen]
