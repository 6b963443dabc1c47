"""A conversation with tools: an answer, its calls, their results, until an answer has no calls."""

from __future__ import annotations

import asyncio
import os
import re
import time
import zlib
from collections.abc import Coroutine
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from msgspec.structs import replace

from localspec import process
from localspec.agent.server import NO_COMMAND, ToolError, ToolServer
from localspec.errors import InvalidOptions, LocalspecError
from localspec.protocol.jsonrpc import shorten
from localspec.protocol.messages import CallResult, Instead
from localspec.protocol.requests import CallBegun, Delta, Result, Tool, ToolCall
from localspec.tools.families import as_json
from localspec.tools.words import is_written_call
from localspec.wording import duration, one_line

MOST_TURNS = 20
"""answers with calls, after which a conversation is ended"""
LONGEST_CALL, TAIL, SHOWN_CALL = 32_768, 2_000, 60
"""characters of a call's arguments, beyond which they are taken to have no end; those at their end by which
this is seen earlier; those that are shown while they are written"""
REPEATED = 12
"""times that such an end is longer than compressed; code and prose: up to 5"""
SHOWN_RESULT = 120
"""characters in the line of a call's result"""
FORMS = 'Give FILE.py with functions, or FILE.json with {"mcpServers": {NAME: {"command": …, "args": […]}}}.'
NO_FUNCTION = (
    "Of a Python file the public functions with a docstring and annotated parameters are tools. "
    f"It runs in localspec's Python, {process.python('localspec')[0]}: install there what it imports."
)

COMMENT = r"//[^\n]*|/\*.*?\*/"
EXTRA = re.compile(rf'("(?:\\.|[^"\\])*")|{COMMENT}|,(?=(?>\s|{COMMENT})*+[}}\]])', re.DOTALL)
"""in JSON: a text, which stays, a comment, or a comma behind a last item"""
VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
"""of the environment, with a value for where it is not set"""
UNSET = "is left out: the environment has no {0}; run `export {0}=VALUE` before"

Consent = Literal["yes", "no", "always"]
REFUSED, CANCELLED = "The user refused this call.", "the user cancelled this call"
"""results for the model"""


class _Command(msgspec.Struct):
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class _Commands(msgspec.Struct, rename="camel"):
    mcp_servers: dict[str, _Command] = {}
    servers: dict[str, _Command] = {}


def servers_in(path: Path) -> list[ToolServer]:
    """The programs that a file names: one for a Python file, and the servers of a JSON file, which may have
    comments, commas behind last items, and variables of the environment; a server whose variable is not set
    has a fault. Raises :class:`InvalidOptions`."""
    try:
        data = path.read_bytes()
        if path.suffix == ".py":
            return [ToolServer(path.name, process.python("localspec.agent.functions", str(path)))]
        text = EXTRA.sub(lambda found: found[1] or "", data.decode("utf-8-sig"))
        read = msgspec.json.decode(text, type=_Commands)
        if not (commands := {**read.servers, **read.mcp_servers}):
            raise msgspec.ValidationError("nothing is in mcpServers or servers")
    except OSError as error:
        raise InvalidOptions(f"{path} cannot be read: {error.strerror}", FORMS) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise InvalidOptions(f"{path} names no tools: {error}", FORMS) from None

    def value(found: re.Match[str]) -> str:
        return os.environ[found[1]] if found[2] is None else os.environ.get(found[1], found[2])

    servers = []
    for name, each in commands.items():
        try:
            added = {key: VARIABLE.sub(value, text) for key, text in each.env.items()}
            line = tuple(VARIABLE.sub(value, part) for part in (each.command, *each.args))
            servers.append(ToolServer(name, line if each.command else NO_COMMAND, added))
        except KeyError as error:
            servers.append(ToolServer(name, UNSET.format(error.args[0])))
    return servers


class Toolbox:
    """The tools of programs, which run until they are closed, and the user's lasting consents."""

    def __init__(self) -> None:
        self._servers: list[ToolServer] = []
        self._places: dict[str, tuple[ToolServer, Tool]] = {}
        self.allowed: set[str] = set()
        """tools that are called without a question; a name is that of one tool until its program ends"""

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(replace(tool, name=name) for name, (_, tool) in self._places.items())

    @property
    def listing(self) -> str:
        lines: dict[str, list[str]] = {}
        for name, (server, _) in self._places.items():
            lines.setdefault(server.name, []).append(f"{name} (allowed)" if name in self.allowed else name)
        return "\n".join(f"{program}: {', '.join(names)}" for program, names in lines.items())

    async def open(self, servers: list[ToolServer]) -> list[str]:
        """Start programs besides those that run, or in the place of those started alike; returns sentences on
        missing tools. A taken name gets its program's before it, and a number if need be. Raises
        :class:`LocalspecError` without any tool."""
        try:
            listed = await asyncio.gather(*(server.tools() for server in servers))
            remarks = [remark for _, remark in listed if remark]
            if not any(tools for tools, _ in listed):
                raise LocalspecError("; ".join(remarks) or "there are no tools", NO_FUNCTION)
        except BaseException:
            await _end(servers)
            raise
        replaced = [each for each in self._servers if each.program in [new.program for new in servers]]
        self._places = {name: at for name, at in self._places.items() if at[0] not in replaced}
        self.allowed.intersection_update(self._places)
        self._servers = [*(each for each in self._servers if each not in replaced), *servers]
        for server, (tools, _) in zip(servers, listed, strict=True):
            for tool in tools:
                full = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server.name[:20]}_{tool.name}")
                names = chain((tool.name, full), (f"{full}_{n}" for n in count(2)))
                self._places[next(name for name in names if name not in self._places)] = (server, tool)
        await _end(replaced)
        return remarks

    async def call(self, call: ToolCall) -> str:
        """The result of a call; raises :class:`ToolError`."""
        arguments = call.object
        if call.name not in self._places or arguments is None:
            raise ToolError("there is no such tool, or its arguments are no JSON object")
        server, tool = self._places[call.name]
        return await server.call(tool.name, arguments)

    async def close(self) -> None:
        servers, self._servers, self._places = self._servers, [], {}
        self.allowed.clear()
        await _end(servers)


async def _end(servers: list[ToolServer]) -> None:
    await asyncio.gather(*(server.close() for server in servers))


@dataclass(eq=False)
class Writing:
    """The call that an answer writes, as far as it has come; one without an end is to be stopped."""

    call: CallBegun | None = None
    arguments: str = ""

    def take(self, delta: Delta) -> None:
        if delta.call != self.call and not self.is_endless:
            self.call, self.arguments = delta.call, ""
        self.arguments += delta.text if delta.call is not None else ""

    @property
    def is_endless(self) -> bool:
        """True if the arguments are too long, or have gone on in a circle, or in numbers, for long."""
        if len(self.arguments) <= TAIL:
            return re.search(r"\d{64}$", self.arguments) is not None
        tail = self.arguments[-TAIL:]
        repeats = REPEATED * len(zlib.compress(tail.encode())) < TAIL
        return repeats or not re.search(r"[^\W\d]", tail) or len(self.arguments) > LONGEST_CALL

    @property
    def shown(self) -> str:
        """The tool, the end of the arguments, and their length, in a line; empty without a call."""
        if self.call is None:
            return ""
        end = self.arguments if len(self.arguments) <= SHOWN_CALL else f"…{self.arguments[-SHOWN_CALL:]}"
        return one_line(f"{self.call.name} {end} ({len(self.arguments):,} characters)")


@dataclass(eq=False)
class CallRun:
    """A call that is made, then its ``text``: the result, or the refusal or failure in words."""

    call: ToolCall
    text: str | None = None
    began: float | None = None
    seconds: float | None = None
    """the time that it took; None: it runs, or the time is not known"""

    @property
    def key(self) -> tuple[str, str]:
        return self.call.name, _arguments(self.call)

    @property
    def begun(self) -> str:
        """The tool with all of its arguments, in a line; what a screen does not show is escaped."""
        line = f"{self.call.name} {_arguments(self.call)}"
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)

    @property
    def ended(self) -> str:
        """The tool with the beginning of the result and the time taken, in a line."""
        text = one_line(shorten(" ".join((self.text or "").split()), SHOWN_RESULT))
        return f"{one_line(self.call.name)}: {text}{self.took}"

    @property
    def took(self) -> str:
        so_far = None if self.began is None else time.monotonic() - self.began
        seconds = so_far if self.seconds is None else self.seconds
        return "" if seconds is None else f" ({duration(seconds)})"


def _arguments(call: ToolCall) -> str:
    """The arguments in one spelling; those that are no object as they are."""
    return call.arguments if (found := call.object) is None else as_json(found)


class Front(Protocol):
    """The chat and the user, as a front end has them."""

    json: bool
    """True if the answer may be JSON"""

    @property
    def writing(self) -> Writing: ...  # of the last answer

    async def answer(self, results: tuple[CallResult, ...], how: Instead | None = None) -> Result | None:
        """Have the question answered, or the answer go on after these results, perhaps by an answer of this
        kind; returns it, None if it failed."""

    async def answer_instead(self, how: Instead) -> Result | None:
        """Have another answer, of this kind, take the place of the last one."""

    async def consent(self, made: CallRun) -> Consent: ...
    async def work(self, call: Coroutine[Any, Any, str]) -> str:
        """Run a call. Raises :class:`ToolError` if the user cancels it, but goes on."""

    def show(self, made: CallRun) -> None:
        """Show a call, before the user is asked and after its end."""

    def fail(self, error: LocalspecError) -> None: ...


async def converse(box: Toolbox, front: Front) -> bool:
    """Have a question answered, making the calls that the user consents to, until an answer has none; returns
    False if it ends with a call, or without a word. Small models go on to call: an answer that repeats calls
    whose results are known, is empty, or is a call of a tool that is not there, is replaced: before the first
    result by a call, then by words from the results. So is an answer that was stopped in a call without an
    end."""
    answer = await front.answer(())
    if not box.tools:
        return True
    if _is_call(answer, front):
        answer = await front.answer_instead("call")
    known, last = dict[tuple[str, str], str](), dict[tuple[str, str], str]()
    for turn in range(MOST_TURNS):
        made = [] if answer is None or front.writing.is_endless else [CallRun(call) for call in answer.calls]
        if all(one.key in last for one in made):
            break
        for one in made:
            front.show(one)
            one.text = last[one.key] if one.key in last else await _result(one, box, front)
            front.show(one)
        last = {one.key: one.text or "" for one in made}
        results = tuple(CallResult(one.call.id, one.text or "") for one in made)
        is_last = last.items() <= known.items() or turn == MOST_TURNS - 1
        answer = await front.answer(results, "words" if is_last else None)
        known |= last
    if is_endless := front.writing.is_endless:
        what = f"a call was stopped: its arguments did not end in {len(front.writing.arguments):,} characters"
        front.fail(LocalspecError(what, "It is not made. Ask in other words, or a larger model."))
    if is_endless or (known and not _is_useful(answer, front)):
        answer = await front.answer_instead("words")
    return _is_useful(answer, front)


def _is_call(answer: Result | None, front: Front) -> bool:
    return answer is not None and not front.json and is_written_call(answer.text)


def _is_useful(answer: Result | None, front: Front) -> bool:
    """Return False for an answer with calls, without a word, or that is a call, unless it was ended."""
    if answer is None or answer.finish_reason in ("cancelled", "deadline"):
        return True
    return bool(answer.text.strip()) and not answer.calls and not _is_call(answer, front)


async def _result(made: CallRun, box: Toolbox, front: Front) -> str:
    name = made.call.name
    consent = "yes" if name in box.allowed else await front.consent(made)
    if consent == "no":
        return REFUSED
    if consent == "always":
        box.allowed.add(name)
    made.began = time.monotonic()
    try:
        return await front.work(box.call(made.call))
    except ToolError as error:
        return f"error: {error}"
    finally:
        made.seconds = time.monotonic() - made.began
