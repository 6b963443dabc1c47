"""``localspec run`` and ``complete`` as people call them: the real command, the real daemon, a real model."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest

from tests.cli.harness import LONG, Cli, ended

GREEDY = ("--temperature", "0", "--max-tokens", "64")
CODE = "def add(a, b):\n"

DOCUMENTED = {
    *("text", "finish_reason", "model", "draft", "backend"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "stats"),
}


def test_an_answer_streams_to_stdout_and_the_rest_to_stderr(cli: Cli) -> None:
    done = cli.process("run", "--stats", *GREEDY, "What does textwrap.dedent do?")
    assert done.returncode == 0 and done.stdout.strip()
    assert "tok/s" in done.stderr and "tokens per round" in done.stderr and "tok/s" not in done.stdout


def test_a_seeded_answer_is_the_same_everywhere(cli: Cli) -> None:
    arguments = ("run", "--seed", "7", "--temperature", "0.9", "--max-tokens", "40", "Explain `json.dumps`.")
    one, two = cli.json(*arguments), cli.json(*arguments, "--no-daemon")
    assert one["text"] == two["text"] and one["text"]
    assert cli.json(*arguments[:2], "8", *arguments[3:])["text"] != one["text"]


def test_the_json_object_has_the_documented_fields(cli: Cli) -> None:
    result = cli.json("run", *GREEDY, "hello")
    assert set(result) == DOCUMENTED
    assert (result["model"], result["draft"], result["backend"]) == ("stdlib-6m", "stdlib-1m", "llama_cpp")


@pytest.mark.slow
def test_no_tokens_at_all_only_read_the_prompt(cli: Cli) -> None:
    for where in ((), ("--no-daemon",)):
        done = cli("run", "--raw", "--max-tokens", "0", *where, CODE)
        assert done.returncode == 0 and not done.stdout
        assert "localspec: no text was generated, because max_tokens is 0 (" in done.stderr
        assert " tokens of the prompt were read)." in done.stderr and "is empty" not in done.stderr
    result = cli.json("run", "--raw", "--max-tokens", "0", CODE)
    assert (result["text"], result["finish_reason"]) == ("", "length") and result["prompt_tokens"] > 4


def test_on_a_terminal_the_answer_ends_its_line_before_the_statistics(cli: Cli) -> None:
    arguments = ("run", "--raw", "--stats", "--temperature", "0", "--max-tokens", "3", CODE)
    alone, terminal = cli(*arguments).stdout, cli.terminal(*arguments)
    assert ended(terminal) == 0
    answer = alone.replace("\n", "\r\n")
    assert f"{answer}\r\n3 tokens (length)" in str(terminal.before)


def test_events_a_line_each(cli: Cli) -> None:
    done = cli("run", "--stream-json", *GREEDY, "hello")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[-1] == "result" and "delta" in kinds
    assert "".join(e["text"] for e in events if e["event"] == "delta") == events[-1]["text"]
    refused = cli("run", "--stream-json", "--session", "none-such", "hello")
    last = json.loads(refused.stdout.splitlines()[-1])
    assert refused.returncode == 1 and last["error"]["code"] == "session_not_found"


def test_a_session_goes_on(cli: Cli) -> None:
    cli("run", *GREEDY, "What does `shutil.move` do?")
    # A strict request takes over whole chunks of a prompt only; any other all that is there.
    first = cli.json("run", "-c", *GREEDY, "--exactness", "fast", "And `shutil.copy`?")
    second = cli.json("run", "-c", *GREEDY, "--exactness", "fast", "And `shutil.rmtree`?")
    assert second["prompt_tokens"] > first["prompt_tokens"] > 40
    # What was said before is still in the model's cache.
    assert second["cached_tokens"] >= first["prompt_tokens"]


def test_a_private_answer_leaves_no_session(cli: Cli) -> None:
    cli("run", *GREEDY, "public")
    cli("run", *GREEDY, "--private", "very secret words")
    history = (cli.home / "data").rglob("*")
    assert not any(b"very secret words" in path.read_bytes() for path in history if path.is_file())
    assert b"very secret words" not in (cli.home / "state" / "daemon.log").read_bytes()


def test_a_refused_message_leaves_no_session(cli: Cli) -> None:
    refused = cli.process("run", "--regex", f"{'a' * 4000}(", "refused")
    assert refused.returncode == 2 and "unclosed group" in refused.stderr
    with closing(sqlite3.connect(cli.home / "data" / "history.sqlite")) as history:
        assert not history.execute("SELECT 1 FROM sessions WHERE title = 'refused'").fetchall()


@pytest.mark.slow
def test_fill_in_the_middle(cli: Cli, tmp_path: Path) -> None:
    prefix, suffix = tmp_path / "a", tmp_path / "b"
    prefix.write_text("def __init__(self, name, value):\n        self.name = name\n        ")
    suffix.write_text("\n\n    def get(self):\n        return self.value\n")
    arguments = ("complete", "--prefix-file", str(prefix), "--suffix-file", str(suffix), "--max-tokens", "12")
    result = cli.json(*arguments)
    assert result["text"] and set(result) == DOCUMENTED
    assert cli.json(*arguments, "--no-daemon")["text"] == result["text"]
    assert cli(*arguments).stdout == result["text"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("run", "-m", "/etc/hostname", "x"), 1, "GGUF"),
        (("run", "--draft", "no-such-model", "x"), 1, "the draft model: there is no model named"),
        (("run", "--opt", "n_ctx=512", "x"), 2, "--no-daemon"),
        (("run", "--opt", "memory=false", "--proposer", "memory", "--no-daemon", "x"), 2, "set memory true"),
        (("run", "--draft", "none", "--proposer", "draft", "x"), 2, "--draft"),
        (("run",), 2, "no prompt"),
        (("run", "-c", "--no-daemon", "x"), 2, "daemon"),
        (("run", "-c", "--session", "a", "x"), 2, "-c cannot be combined with --session"),
        (("run", "x" * 9000), 1, "context"),
        (("complete", "--prefix-file", "/nowhere"), 2, "/nowhere"),
        (("memory", "prime", "/nowhere"), 2, "/nowhere"),
    ],
)
def test_a_mistake_has_its_sentence(cli: Cli, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    done = cli(*arguments)
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr and "Traceback" not in done.stderr and not done.stdout


@pytest.mark.slow
def test_engine_settings_without_a_daemon(cli: Cli) -> None:
    done = cli(
        "run", "--no-daemon", "--opt", "n_ctx=64", "--raw", "--temperature", "0", "--json", "def f(x):"
    )
    assert json.loads(done.stdout)["finish_reason"] == "context_full"
    assert "the context is full. Enlarge it: `localspec config set n_ctx N`" in done.stderr


@pytest.mark.slow
def test_a_closed_pipe_ends_quietly(cli: Cli) -> None:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        (*cli.command, *LONG), stdin=DEVNULL, stdout=writer, stderr=PIPE, env=cli.environment
    )
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    _, stderr = process.communicate(timeout=60)
    assert b"Traceback" not in stderr and b"Broken" not in stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("--version",), ("run", "--temperature", "0", "--max-tokens", "2", "hi")]
)
def test_a_full_disk_behind_stdout_is_a_sentence(cli: Cli, arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            (*cli.command, *arguments), stdin=DEVNULL, stdout=full, stderr=PIPE, env=cli.environment
        )
    assert done.returncode == 1 and b"No space left" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.slow
def test_texts_of_files_and_of_stdin(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("def f(x):\n")
    few = ("--max-tokens", "3", "--temperature", "0", "-m", "bundled", "--private", "--raw")
    plain = cli("run", *few, "def f(x):\n    return").stdout
    for given in (("-f", str(file)), ("-f", "-"), ("-",)):
        read = "" if given[-1] == str(file) else file.read_text()
        rest = () if given == ("-",) else ("    return",)
        done = cli("run", *few, *rest, *given, input=read if rest else read + "    return")
        assert (done.returncode, done.stdout) == (0, plain), done.stderr
    schema = ("--schema", "-", "--max-tokens", "8", "-m", "bundled", "--private", "Name one")
    assert cli("run", *schema, input='{"const": 7}').stdout.strip() == "7"
    gap = ("complete", "-m", "bundled", "--max-tokens", "3")
    by_flag = cli(*gap, "--prefix-file", "-", input=file.read_text())
    assert by_flag.stdout == cli(*gap, input=file.read_text()).stdout and by_flag.returncode == 0


def test_a_pipe_that_is_empty_no_text_or_without_an_end_is_refused(cli: Cli) -> None:
    asked = (*cli.command, "run", "-m", "bundled", "Write a commit message")
    with open("/dev/zero", "rb") as endless:
        for stdin, piped, said in (
            (PIPE, b"", "the pipe to stdin is empty"),
            (PIPE, b"\xff\xfe", "UTF-8"),
            (endless, None, "more than 16 MiB"),
        ):
            with subprocess.Popen(asked, stdin=stdin, stderr=PIPE, env=cli.environment) as run:
                _, errors = run.communicate(piped)
            assert run.returncode == 2 and said in errors.decode()


def test_a_request_larger_than_the_daemon_takes(cli: Cli) -> None:
    done = cli("run", "--raw", input="x" * 5_000_000)
    assert done.returncode == 2 and "larger than 4194304 bytes" in done.stderr.splitlines()[-1]


def test_the_environment_is_for_one_command(cli: Cli) -> None:
    there = Cli(cli.home)
    there.environment["LOCALSPEC_MODEL"] = "nonsense"
    assert "nonsense" in there("run", "hi").stderr
    assert cli("run", "--temperature", "0", "--max-tokens", "2", "hi").returncode == 0


def test_words_without_quotes_are_one_prompt(cli: Cli) -> None:
    one = cli.json("run", *GREEDY, "Tell", "me", "more")
    assert one["text"] == cli.json("run", *GREEDY, "Tell me more")["text"]


@pytest.mark.slow
def test_the_id_of_a_session_can_be_had(cli: Cli) -> None:
    opened = cli("run", *GREEDY, "--stats", "x").stderr
    id = re.findall(r"; session (run-[0-9a-f]{16})$", opened, re.MULTILINE)[0]
    assert f"session {id}\n" in cli("run", *GREEDY, "--stats", "-c", "y").stderr
    assert cli("run", *GREEDY, "--session", id, "z").returncode == 0
    refused = cli("run", "--session", "none-such", "x")
    assert "there is no session 'none-such'. Continue the last one with -c; `localspec run --stats`" in (
        refused.stderr
    )


def test_an_answer_has_the_form_that_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    """By a schema, a grammar, an expression or a list, in this process and by the daemon alike."""
    schema, grammar = tmp_path / "city.json", tmp_path / "dates.gbnf"
    schema.write_text('{"properties": {"size": {"enum": ["small", "large"]}}, "required": ["size"], '
                      '"type": "object", "additionalProperties": false}')  # fmt: skip
    grammar.write_text('root ::= [0-9]{4} "-" [0-9]{2}')
    for flags, pattern in [
        (("--schema", str(schema)), r'\{"size": "(small|large)"\}'),
        (("--grammar", str(grammar)), r"\d{4}-\d{2}"),
        (("--regex", "[A-Z][a-z]{2,7}!"), "[A-Z][a-z]{2,7}!"),
        (("--choice", "yes,no"), "yes|no"),
    ]:
        one, two = (cli.json("run", *GREEDY, *flags, *more, "Paris?") for more in ((), ("--no-daemon",)))
        assert one["text"] == two["text"] and re.fullmatch(pattern, one["text"])
        assert one["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--regex", "a(", "-m", "not-here", "--no-daemon"), "unclosed group"),
        (("--grammar", "{here}/words.lark", "-m", "not-here"), 'unknown name: "word"'),
        (("--schema", "{here}/x.json"), "is not JSON"),
        (("--schema", "{here}/y.json", "-m", "not-here"), "schema: Unimplemented keys: "),
    ],
)
def test_an_impossible_form_is_refused(
    cli: Cli, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    (tmp_path / "x.json").write_text("{")
    (tmp_path / "words.lark").write_text("start: word")
    (tmp_path / "y.json").write_text('{"type": "array", "items": {"not": {}}}')
    done = cli("run", *(flag.replace("{here}", str(tmp_path)) for flag in flags), "Hello")
    assert done.returncode == 2 and message in done.stderr
