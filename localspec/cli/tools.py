"""``localspec run --tools``: a conversation whose calls are shown, and confirmed, on stderr."""

from __future__ import annotations

import asyncio
import sys
import termios
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from localspec.agent import loop
from localspec.agent.loop import CANCELLED, CallRun, Consent, Toolbox, Writing, servers_in
from localspec.agent.server import ToolError
from localspec.cli.answer import show
from localspec.cli.output import failure, note
from localspec.cli.printer import Printer
from localspec.client import Client, Stream
from localspec.errors import EngineError, LocalspecError
from localspec.protocol.messages import CallResult, ChatRegenerate, ChatResults, ChatSend, ChatTurn, Instead
from localspec.protocol.options import Options
from localspec.protocol.requests import Delta, Message, Result
from localspec.tools.words import ask_in_words, limit_to_words, may_be_json

CONSENTS: dict[str, Consent] = {
    **{"y": "yes", "yes": "yes", "n": "no", "no": "no", "a": "always", "always": "always"}
}


@asynccontextmanager
async def open_tools(files: tuple[Path, ...]) -> AsyncIterator[Toolbox]:
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

    async def converse(self, text: str, session: str | None = None) -> Result:
        """The last answer to a text, in a session or to the printer's messages; the answers and results
        before it go to the printer. Raises :class:`EngineError` if it says nothing."""
        self._text, self._session, self.json = text, session, may_be_json(text, self._options)
        if not await loop.converse(self._box, self):
            raise EngineError("the model did not answer in words", "Ask in other words, or a larger model.")
        return self._result

    async def answer(self, results: tuple[CallResult, ...], how: Instead | None = None) -> Result:
        said, session = self._printer.messages, self._session
        said += [Message("tool", each.content, (), each.tool_call_id) for each in results]
        if session is None:
            stream = self._generate(how)
        elif results:
            stream = self._take_turn(ChatResults, results=results, instead=how)
        else:
            stream = self._take_turn(ChatSend, content=self._text)
        return await self._show(stream)

    async def answer_instead(self, how: Instead) -> Result:
        self._printer.messages.pop()
        if self._session is None:
            return await self._show(self._generate(how))
        return await self._show(self._take_turn(ChatRegenerate, instead=how))

    def _take_turn(self, kind: type[ChatTurn], **facts: Any) -> Stream[Result]:
        facts |= {"session": self._session, "tools": self._box.tools, "options": self._options}
        return self._client.chat(kind(**facts))

    def _generate(self, how: Instead | None) -> Stream[Result]:
        said, options = tuple(self._printer.messages), self._options
        if how == "words":
            return self._client.generate(messages=ask_in_words(said), options=limit_to_words(options))
        return self._client.generate(
            messages=said,
            tools=self._box.tools,
            tool_choice="auto" if how is None else "required",
            parallel_tool_calls=False,
            options=options,
        )

    async def _show(self, stream: Stream[Result]) -> Result:
        """Print an answer, unless it may be a call in JSON: then it is held until another one follows it."""
        self._printer.held = ""
        self.writing = writing = Writing()

        def follow(delta: Delta) -> str:
            writing.take(delta)
            if writing.is_endless:
                stream.stop()
            return f"writing {writing.shown}"

        self._printer.follow = follow
        self._result = result = await show(stream, self._printer)
        self._printer.messages.append(Message("assistant", result.text, result.calls))
        if result.calls:
            self._printer.calls()
        return result

    async def consent(self, made: CallRun) -> Consent:
        """Ask until the answer is clear; the end of the input means no."""
        while not self._yes:
            termios.tcflush(sys.stdin, termios.TCIFLUSH)  # typed before the call was shown
            note(f"Call it? [y]es, [n]o, [a]lways {made.call.name} in this run, then Enter")
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
            raise ToolError(CANCELLED) from None

    def fail(self, error: LocalspecError) -> None:
        failure(error, as_json=False)

    def show(self, made: CallRun) -> None:
        note(f"localspec: {made.begun if made.text is None else made.ended}")


async def _line() -> str:
    """A line of stdin. Meanwhile the connection goes on, and Ctrl-C is heard."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
