"""Start, requests and end of llama-server, with a stand-in: the real one is not on every machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from localspec.bench.references import (
    Answer,
    LlamaServer,
    Question,
    Setting,
    draft_simple,
    llama_server,
    ngram_mod,
    ngram_simple,
)
from localspec.bench.references.setting import PLAIN
from localspec.errors import EngineCrashed, EngineError
from localspec.models.bundled import bundled_model
from localspec.protocol.engine_config import EngineConfig
from tests.bench import stand_in

MODEL, DRAFT = bundled_model("stdlib-1m"), bundled_model("stdlib-6m")
CONFIG = EngineConfig(n_ctx=256, parallel=1, threads=3, gpu_layers=0)
QUESTION = Question((1, 2, 3), max_tokens=40, temperature=0.5, seed=2**32 + 7, end_tokens=frozenset({99}))

Start = Callable[..., LlamaServer]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a stand-in that behaves in some way."""

    def start(mode: str = "fine", setting: Setting = PLAIN, draft: Path | None = None) -> LlamaServer:
        program = tmp_path / "llama-server"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{stand_in.__file__}" "{mode}" "$@"\n')
        program.chmod(0o755)
        return LlamaServer(MODEL, setting, draft=draft, config=CONFIG, program=program)

    return start


def told(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.text)
    return found


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def value(arguments: list[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


def test_it_runs_with_our_sizes_alone_and_undisturbed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "64")
    monkeypatch.setenv("LLAMA_LOG", "x")
    with start(setting=ngram_simple(3, 8), draft=DRAFT) as server:
        found = told(server.answer(QUESTION))
    arguments = found["argv"]
    assert value(arguments, "--model") == str(MODEL)
    assert value(arguments, "--ctx-size") == "256"
    assert value(arguments, "--threads") == value(arguments, "--threads-batch") == "3"
    assert value(arguments, "--n-gpu-layers") == "0"
    assert (value(arguments, "--parallel"), value(arguments, "--host")) == ("1", "127.0.0.1")
    assert value(arguments, "--spec-ngram-simple-size-m") == "8"
    assert "--model-draft" not in arguments  # this setting has no use for one
    assert "LLAMA_ARG_CTX_SIZE" not in found["environment"] and "LLAMA_LOG" in found["environment"]


def test_a_question_is_sent_with_its_whole_prompt_every_time(start: Start) -> None:
    with start() as server:
        body = told(server.answer(QUESTION))["body"]
    assert (body["prompt"], body["n_predict"], body["temperature"]) == ([1, 2, 3], 40, 0.5)
    assert body["seed"] == 7 and body["cache_prompt"] is False
    assert body["samplers"] == ["temperature"] and body["return_tokens"] is True


def test_an_answer_has_the_servers_own_figures(start: Start) -> None:
    with start() as server:
        answer = server.answer(QUESTION)
        assert (answer.ttft_s, answer.decode_s, answer.decoded) == (0.5, 2.0, 4)
        assert (answer.tokens, answer.drafted, answer.accepted) == (tuple(stand_in.TOKENS), 0, 0)
        assert answer.tokens_per_s == 2.0
        ended = server.answer(QUESTION._replace(end_tokens=frozenset({7, 8})))
        assert ended.tokens == (5, 6) and ended.completion_tokens == 2


def test_a_setting_that_remembers_is_started_anew_and_has_its_draft_model(start: Start) -> None:
    with start(setting=ngram_mod()) as server:
        first = server.answer(QUESTION)
        assert (first.drafted, first.accepted) == (9, 4)
        assert told(server.answer(QUESTION))["pid"] == told(first)["pid"]
        server.fresh()
        assert told(server.answer(QUESTION))["pid"] != told(first)["pid"]
        assert not psutil.pid_exists(told(first)["pid"])
    with start(setting=draft_simple(5), draft=DRAFT) as server:
        first = server.answer(QUESTION)
        assert value(told(first)["argv"], "--model-draft") == str(DRAFT)
        assert value(told(first)["argv"], "--spec-draft-n-max") == "5"
        server.fresh()
        assert told(server.answer(QUESTION))["pid"] == told(first)["pid"]


def test_it_is_waited_for_while_the_model_is_loaded(start: Start) -> None:
    with start("slow") as server:
        assert server.answer(QUESTION).completion_tokens == 4


def test_two_servers_do_not_meet(start: Start) -> None:
    with start() as one, start() as other:
        ports = {value(told(server.answer(QUESTION))["argv"], "--port") for server in (one, other)}
    assert len(ports) == 2


def test_a_refusal_is_quoted_and_the_next_question_is_answered(start: Start) -> None:
    with start("refuses") as server:
        with pytest.raises(EngineError, match="400: the prompt is too long"):
            server.answer(QUESTION)
        assert server.answer(QUESTION).completion_tokens == 4


def test_the_last_words_of_a_server_that_died_are_quoted(start: Start) -> None:
    before = children()
    with start("dies") as server, pytest.raises(EngineCrashed, match="out of memory, they say"):
        server.answer(QUESTION)
    assert children() == before


def test_a_server_that_is_never_ready_is_given_up_and_ended(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_server, "START_S", 0.2)
    before = children()
    with pytest.raises(EngineError, match=r"did not answer within 0\.2 s"):
        start("never ready")
    assert children() == before


def test_a_server_that_does_not_want_to_end_is_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_server, "STOP_S", 0.05)
    before = children()
    start("stubborn").close()
    assert children() == before


@pytest.mark.parametrize("mode", sorted(stand_in.HOSTILE))
def test_a_server_of_another_make_is_a_typed_error(start: Start, mode: str) -> None:
    """Such as an old one, which gives no tokens."""
    with start(mode) as server, pytest.raises(EngineError):
        server.answer(QUESTION)
