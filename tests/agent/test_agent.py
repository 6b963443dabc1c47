"""Tools in the terminal: programs that offer them, hostile ones too, and the conversation with calls."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pexpect
import pytest
from msgspec.structs import replace

from localspec.agent import loop, server
from localspec.agent.loop import CallRun, Consent, Toolbox, Writing, servers_in
from localspec.agent.server import ToolError
from localspec.cli.printer import Printer
from localspec.cli.tools import Terminal
from localspec.client import Client
from localspec.errors import EngineError, InvalidOptions, LocalspecError
from localspec.protocol.messages import CallResult, Instead, StoredMessage
from localspec.protocol.options import Options
from localspec.protocol.requests import CallBegun, Delta, Result, ToolCall
from tests.client.conftest import connected, shared
from tests.waiting import DEADLINE_S, run, until

SERVER = str(Path(__file__).with_name("mcp_server.py"))
FUNCTIONS = '''
from __future__ import annotations
import os, time as clock
from dataclasses import dataclass

@dataclass
class Point:
    x: int

def weather(city: str = "?") -> str:
    """The weather."""
    print("noise", input if city == "?" else "")
    return f"\\x1b[2Jrain in {city}"

def time() -> dict[str, int]:
    """The time."""
    return {"hour": 12}

async def total(points: list[Point], *, scale: float = 1) -> float:
    """The sum."""
    return sum(point.x for point in points) * scale

def die() -> None:
    """End."""
    os._exit(3)

def hang() -> None:
    """Wait."""
    clock.sleep(1000)

def again() -> str:
    """Another call."""
    return "call"

def _private(x: int) -> int:
    """No tool."""
def undocumented(x: int) -> int: ...
def unannotated(x) -> int:
    """No tool."""
def path(path: __import__("pathlib").Path) -> None:
    """No tool, as the next one."""
def mutable(x: list[int] = [1]) -> None: "Neither."
'''


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    return path


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[Toolbox, list[str]]]:
    box = Toolbox()
    try:
        yield box, await box.open(servers_in(path))
    finally:
        await box.close()


async def called(box: Toolbox, name: str, arguments: str) -> str:
    try:
        return await box.call(ToolCall("1", name, arguments))
    except ToolError as error:
        return f"error: {error}"


async def test_functions_of_a_file(functions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(functions) as (box, remarks):
        assert [tool.name for tool in box.tools] == ["weather", "time", "total", "die", "hang", "again"]
        assert remarks[0].startswith(
            "functions.py has 8 tools, of which 2 are left out: path (type <class 'pathlib.Path'> is not "
            "supported), mutable (Using a non-empty mutable collection ([1]) as a default value is unsafe."
        )
        weather = box.tools[0]
        assert weather.description == "The weather." and not weather.parameters["additionalProperties"]
        assert weather.parameters["properties"] == {"city": {"type": "string", "default": "?"}}
        assert "Point" in box.tools[2].parameters["$defs"]
        for name, arguments, result in (
            ("time", "{}", '{"hour":12}'),
            ("total", '{"points": [{"x": 1}, {"x": "2"}], "scale": 2}', "6.0"),
            ("total", '{"points": 1}', "error: ValidationError: Expected `array`, got `int` - at `$.points`"),
            ("total", "[]", "error: there is no such tool, or its arguments are no JSON object"),
            ("unannotated", "{}", "error: there is no such tool, or its arguments are no JSON object"),
            ("die", "{}", "error: functions.py has ended with code 3"),
            ("time", "{}", '{"hour":12}'),
        ):
            assert await called(box, name, arguments) == result
        monkeypatch.setattr(server, "CALL_S", 0.5)
        assert await called(box, "hang", "{}") == "error: hang gave no result within 0.5 s"
        monkeypatch.setattr(server, "CALL_S", DEADLINE_S)
        assert await called(box, "time", "{}") == '{"hour":12}'


def written(folder: Path, *faults: str) -> Path:
    """A file with a server for each of the faults, and one that cannot be started."""
    servers = {fault: {"command": sys.executable, "args": [SERVER, fault]} for fault in faults}
    path = folder / "mcp.json"
    others = {"none": {"command": "/nowhere/x"}, "far": {"type": "http", "url": "https://x"}}
    others["unset"] = {"command": "${NOT_SET_HERE}"}
    path.write_text(json.dumps({"mcpServers": {**servers, **others}, "other": 1}))
    return path


async def test_servers_that_fail_leave_the_others(tmp_path: Path) -> None:
    async with opened(written(tmp_path, "fine", "dies", "wrong", "odd", "many")) as (box, remarks):
        assert remarks == [
            "dies has ended with code 1: no licence",
            "wrong breaks the protocol in tools/list: Expected `array`, got `int` - at `$.tools`",
            "odd has 3 tools, of which 2 are left out: 1, empty",
            remarks[3],
            "none cannot be started: /nowhere/x: No such file or directory",
            f"far {server.NO_COMMAND}",
            "unset is left out: the environment has no NOT_SET_HERE; run `export NOT_SET_HERE=VALUE` before",
        ]
        names = [tool.name for tool in box.tools]
        assert len(names) == 130 and names[:2] == ["echo", "odd_echo"]
        assert remarks[3].startswith("many has 10,000 tools, of which 9,872 are left out: tool128, tool129, ")
        assert await called(box, "odd_echo", '{"text": "a"}') == "a\n[image]"
    with pytest.raises(LocalspecError, match="none cannot be started: .*; far has no command"):
        async with opened(written(tmp_path)):
            pass


async def test_results_that_break_the_protocol_or_are_late_or_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(written(tmp_path, "fine")) as (box, _):
        for text, outcome in (
            ("a latin", "a \ufffd\n[image]"),
            ("NaN", "error: fine breaks the protocol: JSON is malformed: invalid character (byte 76)"),
            ("a", "a\n[image]"),
        ):
            assert await called(box, "echo", json.dumps({"text": text})) == outcome
        large = await called(box, "echo", '{"text": "large"}')
        assert len(large) < 100_100 and large.endswith("[shortened from 10,000,008 characters]")
        huge = await called(box, "echo", '{"text": "huge"}')
        assert huge == "error: fine is ended: a message had over 16.0 MB"
        monkeypatch.setattr(server, "CALL_S", 0.5)
        assert await called(box, "echo", '{"text": "late"}') == "error: echo gave no result within 0.5 s"
        monkeypatch.setattr(server, "CALL_S", DEADLINE_S)
        assert await called(box, "echo", '{"text": "a"}') == "a\n[image]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "names no tools: Input data was truncated"),
        ("{}", "names no tools: nothing is in mcpServers or servers"),
        (None, "cannot be read: No such file"),
    ],
)
def test_files_that_name_no_tools(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "mcp.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidOptions, match=message):
        servers_in(path)


def test_files_as_other_programs_write_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "/x")
    path, env = tmp_path / "mcp.json", '{"D": "${env:PLACE}"}'
    server = f'"command": "e", /* "x", */ "args": ["${{PLACE}}/a", "//b,]", "${{OTHER:-c}}",], "env": {env}'
    path.write_text(f'\ufeff{{"servers": {{ // mine\n"a": {{{server}}}, {"/" * 99}\n"b": {{}}, // end,\n}}}}')
    assert servers_in(path)[0].program == (("e", "/x/a", "//b,]", "c"), {"D": "/x"})


class Script(Terminal):
    def __init__(self, client: Client, box: Toolbox, *consents: Consent) -> None:
        super().__init__(client, box, Printer(), Options(), yes=False)
        self._consents, self.lines = iter(consents), list[str]()

    async def answer(self, results: tuple[CallResult, ...], how: Instead | None = None) -> Result:
        self.lines += [how] if how else []
        return await super().answer(results, how)

    async def answer_instead(self, how: Instead) -> Result:
        self.lines.append(how)
        return await super().answer_instead(how)

    async def consent(self, made: CallRun) -> Consent:
        return next(self._consents)

    def show(self, made: CallRun) -> None:
        line = made.begun if made.text is None else made.ended
        self.lines.append(line.rpartition(" (")[0] or line)

    def fail(self, error: LocalspecError) -> None:
        self.lines.append(error.message)


home = shared


async def conversation(path: Path, *consents: Consent) -> tuple[list[str], tuple[StoredMessage, ...]]:
    async with connected() as client, opened(path) as (box, _):
        session = (await client.open().result()).session
        script = Script(client, box, *consents)
        await script.converse("call", session)
        return script.lines, (await client.session(session)).messages


async def test_a_conversation_with_calls(home: Path, functions: Path) -> None:
    lines, messages = await conversation(functions, "yes", "no")
    assert lines == [
        'weather {"city": "Oslo"}',
        "weather: \ufffd[2Jrain in Oslo",
        "time {}",
        "time: The user refused this call.",
    ]
    assert [(each.role, each.content, each.tool_call_id) for each in messages[1:]] == [
        ("assistant", "I look.", ""),
        ("tool", "\x1b[2Jrain in Oslo", "call_1"),
        ("tool", "The user refused this call.", "call_2"),
        ("assistant", "The user refused this call. ", ""),  # the last message
    ]
    assert [call.name for call in messages[1].tool_calls] == ["weather", "time"]


async def test_words_take_the_place_of_calls_that_are_repeated(home: Path, functions: Path) -> None:
    functions.write_text(FUNCTIONS.replace('{"hour": 12}', '"call"'))
    lines, messages = await conversation(functions, "yes", "yes")
    assert [line.split()[0] for line in lines] == ["weather", "weather:", "time", "time:", "words"]
    assert [each.role for each in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[-1].content.startswith("call") and "time {} returned:" in messages[-1].content


async def test_a_call_that_a_limit_cut_is_no_answer(home: Path, functions: Path) -> None:
    class Cut(Script):
        async def answer(self, results: tuple[CallResult, ...], how: Instead | None = None) -> Result:
            return replace(await super().answer(results, how), finish_reason="length", text="")

    async with connected() as client, opened(functions) as (box, _):
        session = (await client.open().result()).session
        script = Cut(client, box)
        with pytest.raises(EngineError, match="did not answer in words"):
            await script.converse("call", session)
        assert script.lines == []


async def test_a_call_without_an_end_is_not_made(
    home: Path, functions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "TAIL", 10)
    monkeypatch.setattr(loop, "LONGEST_CALL", 10)
    lines, messages = await conversation(functions)
    assert "its arguments did not end in" in lines[0] and lines[1:] == ["words"]
    assert [each.role for each in messages] == ["user", "assistant"] and not messages[1].tool_calls


def test_of_a_call_that_is_written_the_end_is_shown() -> None:
    writing, call = Writing(), CallBegun(0, "1", "total")
    for text in ('{"numbers": [', *["100, "] * 20):
        writing.take(Delta(text, (), "call", call))
    assert writing.shown == f"total …{'100, ' * 12} (113 characters)" and not writing.is_endless
    writing.take(Delta("", ()))
    assert writing.shown == ""


@pytest.mark.parametrize(
    ("piece", "is_endless"),
    [
        (lambda n: "100, ", True),
        (lambda n: "20" if n < 33 else "", True),
        (lambda n: f"{n}, ", True),
        (lambda n: "so it goes on and ", True),
        (lambda n: f"def f{n}(a, b):\n    return {n * n % 97} * a + b\n\n", False),
        (lambda n: f"第{n}节的内容，", False),
    ],
)
def test_arguments_in_a_circle_or_in_numbers_have_no_end(
    piece: Callable[[int], str], is_endless: bool
) -> None:
    writing, call = Writing(), CallBegun(0, "1", "write")
    for n in range(500):
        writing.take(Delta(piece(n), (), "call", call))
    assert writing.is_endless == is_endless
    writing.take(Delta("x" * 33_000, (), "call", call))
    assert writing.is_endless


def test_a_call_is_shown_in_full_with_what_is_not_seen() -> None:
    hidden = '{"command": "' + 5_000 * "#" + " rm -rf ~ \u202e\u200b\U000e0041\x9b" + 5_000 * "#" + '"}'
    escaped = hidden.replace("\u202e\u200b\U000e0041\x9b", r"\u202e\u200b\U000e0041\x9b")
    assert CallRun(ToolCall("1", "run", hidden)).begun == f"run {escaped}"


async def test_a_conversation_ends_and_asks_once_for_what_is_always_allowed(
    home: Path, functions: Path
) -> None:
    functions.write_text("""number = 0
def weather(city: str = "?") -> str:
    \"\"\"The weather.\"\"\"
    global number
    number += 1
    return f"rain {number}"
def time() -> str:
    \"\"\"The time.\"\"\"
    return "call"
""")
    lines, messages = await conversation(functions, "always", "always")
    assert lines[-1] == "words"
    assert [each.role for each in messages[-4:]] == ["assistant", "tool", "tool", "assistant"]


async def test_programs_are_added_and_replaced(functions: Path, tmp_path: Path) -> None:
    async with opened(functions) as (box, _):
        await box.open(servers_in(written(tmp_path, "fine"))[:1])
        functions.write_text("def time() -> int:\n    'The time.'\n    return 12\n")
        await box.open(servers_in(functions))
        assert [tool.name for tool in box.tools] == ["echo", "time"]
        assert await called(box, "time", "{}") == "12"
        with pytest.raises(LocalspecError, match="none cannot be started"):
            await box.open(servers_in(written(tmp_path)))
        results = await asyncio.gather(*(called(box, "echo", f'{{"text": "{n}"}}') for n in range(3)))
        assert results == [f"{n}\n[image]" for n in range(3)]
        await box.close()
        assert box.tools == ()


async def test_consent_is_to_one_tool_of_one_program() -> None:
    def offering(name: str, *tools: str) -> list[server.ToolServer]:
        return [server.ToolServer(name, (sys.executable, SERVER, name, *tools))]

    box = Toolbox()
    await box.open(offering("good", "evil_read", "read"))
    box.allowed.add("evil_read")
    await box.open(offering("evil", "read"))
    assert box.listing == "good: evil_read (allowed), read\nevil: evil_read_2"
    await box.open(offering("good", "evil_read", "read"))
    assert box.allowed == set()
    await box.close()


async def test_no_call_starts_a_program_that_was_ended(functions: Path) -> None:
    async with opened(functions) as (box, _):
        calls = [asyncio.create_task(called(box, name, "{}")) for name in ("hang", "time")]
        await asyncio.sleep(0)
        await box.close()
        assert await asyncio.gather(*calls) == 2 * ["error: functions.py was ended"]


async def test_ctrl_c_ends_the_call_and_a_second_one_the_conversation(home: Path, functions: Path) -> None:
    begun = functions.with_name("begun")
    waits = f"open({str(begun)!r}, 'w').close(); clock.sleep(1000)\n    return "
    functions.write_text(FUNCTIONS.replace("    return ", f"    {waits}"))
    printer = Printer()
    async with connected() as client, opened(functions) as (box, _):
        session = (await client.open().result()).session
        front = Terminal(client, box, printer, Options(), yes=True)
        talk = asyncio.create_task(front.converse("call", session))
        for _ in range(2):
            await until(begun.exists, "the call has begun")
            begun.unlink()
            talk.cancel()
        with pytest.raises(asyncio.CancelledError):
            await talk


async def start() -> None:
    async with connected():
        pass


def asked_of_none(command: list[str]) -> subprocess.CompletedProcess[str]:
    none = subprocess.DEVNULL
    return subprocess.run(command, stdin=none, capture_output=True, text=True, timeout=DEADLINE_S)


def test_the_command_asks_and_prints_the_answer_alone(home: Path, functions: Path) -> None:
    run(start())
    command = [sys.executable, "-m", "localspec", "run", "--json", "--tools", str(functions), "call"]
    asked = pexpect.spawn(command[0], command[1:], timeout=DEADLINE_S, encoding="utf-8")
    asked.expect_exact('weather {"city": "Oslo"}')
    for word in ("what", "a", "n"):
        asked.expect(r"Call it\? \[y\]es, \[n\]o, \[a\]lways \w+ in this run, then Enter")
        asked.sendline(word)
    asked.expect(pexpect.EOF)
    assert "\x1b[2J" not in str(asked.before) and "The user refused this call." in str(asked.before)
    result = json.loads(asked_of_none([*command, "--yes"]).stdout)
    roles = [each["role"] for each in result["messages"]]
    assert result["text"] == '{"hour":12} ' and roles == ["user", "assistant", "tool", "tool", "assistant"]
    more = asked_of_none([*command[:-1], "-c", "then what", "--yes"])
    assert json.loads(more.stdout)["text"] == "\nwhat"
    private = asked_of_none([*command, "--private", "--yes"])
    assert json.loads(private.stdout)["messages"] == result["messages"]
    refused = asked_of_none(command)
    assert refused.returncode == 2 and "Add --yes" in refused.stdout
