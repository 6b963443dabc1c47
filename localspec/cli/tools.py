"""``localspec run --tools``: a conversation whose calls are shown, and confirmed, on stderr."""

from __future__ import annotations

import asyncio
import sys
import termios
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.agent import loop
from localspec.agent.loop import Consent, Made, Toolbox, servers_in
from localspec.agent.server import ToolError
from localspec.cli.answer import show
from localspec.cli.output import Printer, note
from localspec.protocol.messages import CallResult
from localspec.protocol.options import Options
from localspec.protocol.requests import Message, Result, ToolCall

if TYPE_CHECKING:
    from localspec.client import Client

CONSENTS: dict[str, Consent] = {
    **{"y": "yes", "yes": "yes", "n": "no", "no": "no", "a": "always", "always": "always"}
}


@asynccontextmanager
async def opened(files: tuple[Path, ...]) -> AsyncIterator[Toolbox]:
    """The tools of these files; says which are missing."""
    box = Toolbox()
    try:
        for remark in await box.open([server for file in files for server in servers_in(file)]):
            note(f"localspec: {remark}.")
        yield box
    finally:
        await box.close()


class Terminal:
    """A conversation with tools, whose questions and calls go to stderr; with ``yes`` without questions. The
    printer keeps its messages."""

    def __init__(
        self, client: Client, box: Toolbox, printer: Printer, options: Options, *, yes: bool
    ) -> None:
        self._client, self._box = client, box
        self._printer, self._options, self._yes = printer, options, yes
        self._line = ""
        """shown last: repeated calls are shown once"""

    async def converse(self, text: str, session: str | None = None) -> Result:
        """The last answer to a text, in a session or to the printer's messages; the answers and results
        before it go to the printer."""
        self._text, self._session = text, session
        await loop.converse(self._box, self)
        return self._result

    async def answer(self, results: tuple[CallResult, ...]) -> tuple[ToolCall, ...]:
        said, session = self._printer.messages, self._session
        said += [Message("tool", each.content, (), each.tool_call_id) for each in results]
        tools, options = self._box.tools, self._options
        if session is None:
            stream = self._client.generate(messages=tuple(said), tools=tools, options=options)
        elif results:
            stream = self._client.results(session, results, tools=tools, options=options)
        else:
            stream = self._client.chat(session, self._text, tools=tools, options=options)
        self._result = result = await show(stream, self._printer)
        said.append(Message("assistant", result.text, result.tool_calls))
        if result.finish_reason != "tool_calls":
            return ()
        self._printer.calls()
        return result.tool_calls

    async def consent(self, made: Made) -> Consent:
        """Ask until the answer is clear; the end of the input means no."""
        while not self._yes:
            termios.tcflush(sys.stdin, termios.TCIFLUSH)  # typed before the call was shown
            note("Call it? [y: yes, n: no, a: always in this run]")
            line = await _line()
            word = line.strip().lower()
            if not line or word in CONSENTS:
                return CONSENTS.get(word, "no")
        return "always"

    async def work(self, call: Coroutine[Any, Any, str]) -> str:
        """Run a call; the first Ctrl-C of a run cancels only the call."""
        try:
            return await call
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling() > 1:
                raise
            raise ToolError("the user cancelled this call") from None

    def show(self, made: Made) -> None:
        if made.repeated and made.text is None:
            return
        line = made.begun if made.text is None else made.ended
        if line != self._line:
            self.note(line)
        self._line = line

    def note(self, line: str) -> None:
        note(f"localspec: {line}")


async def _line() -> str:
    """A line of stdin. Meanwhile the connection goes on, and Ctrl-C is heard."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
