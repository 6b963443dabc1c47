"""localspec beside llama-server, which is a stand-in: the real one is not on every machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from assets.bench import beside
from assets.bench.beside import (
    PLAIN,
    SETTINGS,
    Answer,
    Ask,
    Question,
    measure,
    question_of,
    table,
    their_server,
)
from assets.bench.servers import VARIABLE, LlamaServer
from localspec.bench.run import Case, load_cases
from localspec.models.bundled import bundled_model
from tests.bench import stand_in

MODEL = bundled_model("stdlib-1m")
CHAT = Question("chat", ({"role": "user", "content": "hi"},), raw=False)


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "llama-server"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{stand_in.__file__}" "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(path))


def fixed(rate: float | None) -> Ask:
    return lambda question, tokens: Answer(5.0, rate, f"after {len(question.messages)}")


def test_answers_are_read_in_both_dialects() -> None:
    with their_server(SETTINGS[0], MODEL, None, 2) as ask:
        chat, raw = ask(CHAT, 8), ask(CHAT._replace(raw=True), 8)
    assert (chat.text, raw.text) == ("to: hi", "ab")
    assert min(chat.first_ms, raw.first_ms) > 0


def test_a_setting_that_remembers_is_started_again_for_each_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, start = [], LlamaServer.start

    def counted(server: LlamaServer) -> None:
        starts.append(server)
        start(server)

    monkeypatch.setattr(LlamaServer, "start", counted)
    (remembering,) = (setting for setting in SETTINGS if setting.remembers)
    with their_server(remembering, MODEL, None, 2) as ask:
        ask(CHAT, 8)
        ask(CHAT, 8)
    assert len(starts) == 3


def test_the_settings_are_the_programs_arguments(tmp_path: Path) -> None:
    (drafting,) = (setting for setting in SETTINGS if setting.needs_draft)
    server = LlamaServer(MODEL, (*drafting.arguments, "--model-draft", "d.gguf"))
    server.close()
    assert f"--model {MODEL} --parallel 1 --cache-ram 0 --spec-type draft-simple" in server.log
    assert "--model-draft d.gguf --host 127.0.0.1 --port" in server.log


def test_a_server_that_does_not_start_is_an_error_with_its_log() -> None:
    with pytest.raises(SystemExit, match="did not start: --model .* --fail"):
        LlamaServer(MODEL, ("--fail",))


def test_without_the_program_it_says_where_to_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/no/such/program")
    with pytest.raises(SystemExit, match="put it on PATH"):
        LlamaServer(MODEL)


def test_a_second_turn_has_the_same_first_answer_for_all() -> None:
    question = question_of(Case("second turn", ("one", "two")), fixed(1.0), 8)
    assert [message["content"] for message in question.messages] == ["one", "after 1", "two"]
    assert question.numbered(7).messages[0]["content"] == "7. one"


def test_ratios_are_to_plain_llama_server_of_the_same_repeat() -> None:
    contestants = {PLAIN: fixed(10.0), "localspec auto": fixed(15.0), "short": fixed(None)}
    found = measure(contestants, load_cases(("chat",)), 8, 2)
    assert [ratio for _, ratio in found["chat", "localspec auto"]] == [1.5] * 4
    _, plain, ours = table(found).splitlines()
    assert plain.split()[-5:] == ["10.0", "1.00x", "1.00x", "5", "ms"] and "1.50x" in ours


@pytest.mark.slow
def test_a_daemon_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", "")  # it has one of its own
    arguments = ["beside", "--workload", "code", "--workload", "second turn", "--repeats", "1"]
    only = ["--tokens", "24", "--only", "localspec auto", "--only", "localspec draft"]
    monkeypatch.setattr(sys, "argv", [*arguments, *only])
    beside.main()
    shown = capsys.readouterr().out
    assert shown.count("localspec draft") == 2 and "llama-server ngram" not in shown
