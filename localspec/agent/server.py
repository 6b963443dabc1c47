"""Programs that offer tools: a client of the Model Context Protocol (MCP) over their stdin and stdout.

Of the protocol it needs initialize, tools/list, tools/call, cancelled and ping. Sizes and times are bounded.
A program that has ended is started again by the next call of one of its tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from localspec._version import __version__
from localspec.process import NOTHING_ADDED
from localspec.protocol.jsonrpc import LONGEST_FAULT, notification, request, result, shorten
from localspec.protocol.requests import Tool
from localspec.wording import MB, one_line, size

T = TypeVar("T")

VERSION = "2025-06-18"
"""of the protocol"""
START_S, CALL_S = 60.0, 120.0
"""seconds for the start of a program with the list of its tools, and for the result of a call"""
REPLY_S, END_S = 2.0, 1.0
"""seconds for the answer to a ping after a cancelled call, and for a program's end after that of its stdin;
one that takes longer is killed"""
LONGEST_MESSAGE = 16 * MB
"""a program that writes a longer one is ended"""
LONGEST_RESULT = 100_000
"""characters of a result; beyond that its middle is left out"""
MOST_TOOLS = 128
LONGEST_DESCRIPTION, LONGEST_SCHEMA = 4_000, 65_536
"""characters, and bytes of JSON"""
NAME = re.compile(r"[A-Za-z0-9_./-]{1,100}")

NO_COMMAND = "has no command, and MCP over HTTP is not supported: name a program (`npx mcp-remote URL`)"


class ToolError(Exception):
    """A failed call, or a program without tools, as a sentence without its full stop."""


class _Message(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: dict[str, Any] | None = None


class _ListedTool(msgspec.Struct, rename="camel"):
    name: Any = None
    description: Any = None
    input_schema: Any = {}

    @property
    def tool(self) -> Tool | None:
        """The tool; None if a type or a size is wrong."""
        name, schema = self.name, self.input_schema
        is_usable = isinstance(name, str) and NAME.fullmatch(name) and isinstance(schema, dict)
        if not is_usable or len(msgspec.json.encode(schema)) > LONGEST_SCHEMA:
            return None
        return Tool(name, shorten(str(self.description or ""), LONGEST_DESCRIPTION), schema)


class _Page(msgspec.Struct, rename="camel"):
    tools: list[_ListedTool] = []
    next_cursor: str | None = None


class _ToolContent(msgspec.Struct):
    type: str = ""
    text: str = ""
    resource: _ToolContent | None = None


class _Outcome(msgspec.Struct, rename="camel"):
    content: list[_ToolContent] | None = None
    is_error: bool = False


class ToolServer:
    """One program, started by its first request in the current directory, with variables ``added`` to its
    environment; a text in the place of its command is the reason why there is none. Requests are sent one
    after another."""

    def __init__(
        self, name: str, command: tuple[str, ...] | str, added: Mapping[str, str] = NOTHING_ADDED
    ) -> None:
        self.name, self.program = name, (command, added)
        self._turn = asyncio.Lock()
        """held during a call"""
        self._closed = False
        self._process: Process | None = None
        self._errors = b""
        self._id = 0

    async def tools(self) -> tuple[list[Tool], str]:
        """Its tools, and a sentence on those that are missing; empty if all are there."""
        page, found = _Page(next_cursor=""), list[_ListedTool]()
        try:
            async with asyncio.timeout(START_S):
                await self._connect()
                while page.next_cursor is not None and len(found) <= MOST_TOOLS:
                    cursor = {"cursor": page.next_cursor} if page.next_cursor else {}
                    page = await self._exchange("tools/list", cursor, _Page)
                    found += page.tools
        except (TimeoutError, ToolError) as error:
            return [], str(error) or f"{self.name} has not listed its tools within {START_S:g} s"
        tools = [tool for each in found if (tool := each.tool) is not None][:MOST_TOOLS]
        used = {tool.name for tool in tools}
        left = [name for each in found if (name := str(each.name)) not in used]
        names = one_line(shorten(", ".join(left), LONGEST_FAULT))
        remark = f"{self.name} has {len(found):,} tools, of which {len(left):,} are left out: {names}"
        return tools, remark * bool(left)

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """The result of a call as text, after earlier ones; raises :class:`ToolError`. One that is cancelled
        or takes too long is cancelled in the program, which is ended if it does not react."""
        async with self._turn:
            try:
                async with asyncio.timeout(CALL_S):
                    await self._connect()
                    params = {"name": tool, "arguments": arguments}
                    outcome = await self._exchange("tools/call", params, _Outcome)
            except TimeoutError:
                await self._give_up()
                raise ToolError(f"{tool} gave no result within {CALL_S:g} s") from None
            except asyncio.CancelledError:
                await self._give_up()
                raise
        parts = ((c.resource or c).text or (c.type != "text") * f"[{c.type}]" for c in outcome.content or ())
        if len(text := "\n".join(parts)) > LONGEST_RESULT:
            text = f"{shorten(text, LONGEST_RESULT)}\n[shortened from {len(text):,} characters]"
        if outcome.is_error:
            raise ToolError(text or f"{tool} failed without a reason")
        return text

    async def close(self) -> None:
        """End the program and all that it has started in its process group. Calls do not start it again."""
        self._closed = True
        await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), END_S)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait((asyncio.ensure_future(process.wait()), self._drainer), timeout=END_S)

    @property
    def _running(self) -> Process:
        """The program; raises :class:`ToolError` if it was ended meanwhile."""
        if self._process is None or self._closed:
            raise ToolError(f"{self.name} was ended")
        return self._process

    async def _connect(self) -> None:
        if self._process is not None and self._process.returncode is None:
            return
        command, added = self.program
        if isinstance(command, str):
            raise ToolError(f"{self.name} {command}")
        await self._end()
        if self._closed:
            raise ToolError(f"{self.name} was ended")
        around: dict[str, Any] = {"env": {**os.environ, **added}, "start_new_session": True}
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=LONGEST_MESSAGE, **around
            )
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise ToolError(f"{self.name} cannot be started: {command[0]}: {reason}") from None
        assert self._process.stderr is not None
        self._drainer = asyncio.create_task(self._drain(self._process.stderr))
        about = {"name": "localspec", "version": __version__}
        hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": about}
        try:
            await self._exchange("initialize", hello, dict[str, Any])
        except ToolError:
            await self._end()
            raise
        await self._send(notification("notifications/initialized", {}))

    async def _drain(self, stderr: asyncio.StreamReader) -> None:
        self._errors = b""
        while data := await stderr.read(4096):
            self._errors = (self._errors + data)[-4096:]

    async def _exchange(self, method: str, params: Any, kind: type[T]) -> T:
        """Send a request and wait for its answer; answers to earlier ones are skipped."""
        self._id = id = self._id + 1
        await self._send(request(id, method, params))
        while (message := await self._receive()).method is not None or message.id != id:
            if message.method is not None and message.id is not None:
                await self._send(result(message.id, {}))  # a ping: no capability offers more
        if message.error is not None:
            raise ToolError(f"{self.name}: {shorten(str(message.error.get('message')), LONGEST_FAULT)}")
        try:
            return msgspec.json.decode(message.result, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ToolError(f"{self.name} breaks the protocol in {method}: {error}") from None

    async def _send(self, text: str) -> None:
        stdin = self._running.stdin
        assert stdin is not None
        try:
            stdin.write(text.encode() + b"\n")
            await stdin.drain()
        except OSError:
            raise await self._make_end_error() from None

    async def _receive(self) -> _Message:
        """The message in the next line; an empty one for a line that is none, such as a log."""
        stdout = self._running.stdout
        assert stdout is not None
        try:
            line = (await stdout.readline()).decode(errors="replace")
        except ValueError:
            await self._end()
            raise ToolError(f"{self.name} is ended: a message had over {size(LONGEST_MESSAGE)}") from None
        if not line:
            raise await self._make_end_error()
        try:
            return msgspec.json.decode(line, type=_Message)
        except (msgspec.DecodeError, RecursionError) as error:
            if '"jsonrpc"' in line:
                raise ToolError(f"{self.name} breaks the protocol: {error}") from None
        return _Message()

    async def _make_end_error(self) -> ToolError:
        """The end of the program, with the last line of its stderr."""
        process = self._running
        await self._end()
        last = one_line(self._errors.decode(errors="replace").strip().rpartition("\n")[2])
        return ToolError(f"{self.name} has ended with code {process.returncode}{last and f': {last}'}")

    async def _give_up(self) -> None:
        """Cancel the last request; end the program if it does not answer a ping then."""
        try:
            async with asyncio.timeout(REPLY_S):
                await self._send(notification("notifications/cancelled", {"requestId": self._id}))
                await self._exchange("ping", {}, dict[str, Any])
        except (TimeoutError, ToolError, asyncio.CancelledError) as error:
            await self._end()  # in 3.11.2 a timeout within a cancelled task is a CancelledError, too
            if isinstance(error, asyncio.CancelledError):
                raise
