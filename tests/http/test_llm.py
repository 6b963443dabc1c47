"""The real `llm` command, with the plugin installed beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.conftest import own_home
from tests.editors.found import ROOT

PLUGIN = ROOT / "plugins" / "llm"
INTERRUPT = "raise KeyboardInterrupt"
SHORT = ("-o", "temperature", "0", "-o", "max_tokens", "16")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a directory with the plugin and its entry point; the first request starts its own daemon."""
    with own_home():
        path = tmp_path_factory.mktemp("llm")
        installed = path / "llm_localspec-0.1.0.dist-info"
        installed.mkdir()
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-localspec\nVersion: 0.1.0\n")
        (installed / "entry_points.txt").write_text("[llm]\nlocalspec = llm_localspec\n")
        (path / "llm_localspec.py").symlink_to(PLUGIN / "llm_localspec.py")
        yield path


def llm(place: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return python(place, "-m", "llm", *words, stdin=stdin)


def python(place: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    paths = (str(place), str(ROOT), os.environ.get("PYTHONPATH", ""))
    own = {"PYTHONPATH": ":".join(filter(None, paths)), "LLM_USER_PATH": str(place / "user")}
    command = (sys.executable, *words)
    return subprocess.run(command, env=os.environ | own, input=stdin, capture_output=True, text=True)


@pytest.mark.slow
def test_the_models_that_it_brings(place: Path) -> None:
    listed = llm(place, "models").stdout
    assert "localspec\n" in listed.replace(": ", ":\n").replace("Localspec:\n", "")
    assert "localspec/stdlib-6m" in listed and "localspec/stdlib-1m" in listed


@pytest.mark.slow
def test_a_question_whole_as_it_comes_and_gone_on_with(place: Path) -> None:
    whole = llm(place, "-m", "localspec", "--no-stream", *SHORT, "Sort a list.")
    assert whole.returncode == 0 and whole.stdout.strip(), whole.stderr
    assert llm(place, "-m", "localspec", *SHORT, "Sort a list.").stdout == whole.stdout
    other = llm(place, "-m", "localspec/stdlib-1m", *SHORT, "-s", "You write Python.", stdin="Sort a list.")
    assert other.returncode == 0 and other.stdout.strip(), other.stderr
    gone_on = llm(place, "-c", *SHORT, "Shorter, please.")
    assert gone_on.returncode == 0 and gone_on.stdout.strip(), gone_on.stderr
    assert "output" in llm(place, "logs", "-n", "1", "--usage").stdout


@pytest.mark.slow
def test_a_schema_and_the_messages_of_a_call(place: Path) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    done = llm(place, "-m", "localspec", *SHORT, "--schema", json.dumps(schema), "Is it?")
    assert isinstance(json.loads(done.stdout)["ok"], bool), done.stderr
    program = """
import llm, llm_localspec
from llm.parts import ToolCallPart, ToolResultPart
called = llm.Message("assistant", [ToolCallPart("f", {"x": 1}, "c1"), ToolCallPart("g", {}, "c2")])
answered = llm.Message("tool", [ToolResultPart("f", "2", "c1"), ToolResultPart("g", "3", "c2")])
for each in (called, answered):
    for message in llm_localspec._messages(each):
        calls = [call.arguments for call in message.tool_calls]
        print(message.role, message.content, message.tool_call_id, calls)
model = llm.get_model("localspec")
print(model.prompt("Hello", tools=[llm.Tool("f", "", {})], temperature=0, max_tokens=4).text() != "")
"""
    done = python(place, "-c", program)
    messages = ["assistant   ['{\"x\": 1}', '{}']", "tool 2 c1 []", "tool 3 c2 []"]
    assert done.stdout.splitlines() == [*messages, "True"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("temperature", "9", "-o temperature takes a number from 0 to 5, not 9.0."),
        ("proposer", "psychic", "-o proposer takes auto, draft"),
        ("draft", "not-here", "not-here"),
    ],
)
def test_a_refusal_has_no_traceback(place: Path, option: str, value: str, sentence: str) -> None:
    done = llm(place, "-m", "localspec", "-o", option, value, "Hello")
    assert done.returncode == 1 and sentence in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_program_may_ask_while_its_own_loop_runs(place: Path) -> None:
    program = """
import asyncio, llm
async def main():
    model = llm.get_model("localspec")
    text = model.prompt("Sort a list.", temperature=0, max_tokens=16).text()
    pieces = iter(model.prompt("Sort a list.", temperature=0, max_tokens=16))
    assert text.startswith(next(pieces)) and text
    del pieces
    other = await llm.get_async_model("localspec").prompt("Sort a list.", temperature=0, max_tokens=16).text()
    assert text == other
    print(text)
asyncio.run(main())
"""
    done = python(place, "-c", program)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout == llm(place, "-m", "localspec", *SHORT, "Sort a list.").stdout


@pytest.mark.slow
@pytest.mark.parametrize("left", ["", "raise SystemExit(3)", INTERRUPT, "pieces.close()"])
def test_a_program_ends_wherever_it_leaves_an_answer(place: Path, left: str) -> None:
    program = f"""
import llm
def ask():
    pieces = iter(llm.get_model("localspec").prompt("Sort a list.", temperature=0, max_tokens=1500))
    print(next(pieces), flush=True)
    {left or "return pieces"}
kept = ask()
"""
    done = python(place, "-c", program)
    assert done.stdout
    assert done.returncode == {"raise SystemExit(3)": 3, INTERRUPT: -signal.SIGINT}.get(left, 0), done.stderr
