"""``localspec run --tools``: a conversation whose calls are shown, and confirmed, on stderr."""

from __future__ import annotations

import asyncio
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.agent import loop
from localspec.agent.loop import Consent, Toolbox, servers_in
from localspec.cli.answer import show
from localspec.cli.output import Printer, note
from localspec.protocol.options import Options
from localspec.protocol.requests import Message, Result

if TYPE_CHECKING:
    from localspec.client import Client

CONSENTS: dict[str, Consent] = {
    **{"y": "yes", "yes": "yes", "n": "no", "no": "no", "a": "always", "always": "always"}
}


async def converse(
    client: Client, files: tuple[Path, ...], options: Options, printer: Printer, *, yes: bool
) -> Result:
    """Answer the printer's messages with the tools of these files; with ``yes``, make all calls."""
    box = Toolbox([server for file in files for server in servers_in(file)])
    try:
        for remark in await box.open():
            note(f"localspec: {remark}.")
        return await loop.converse(printer.messages, box, Terminal(client, box, options, printer, yes))
    finally:
        await box.close()


class Terminal:
    """Sends requests to the daemon, and questions to stderr."""

    def __init__(self, client: Client, box: Toolbox, options: Options, printer: Printer, yes: bool) -> None:
        self._client, self._printer = client, printer
        self._tools, self._options, self._yes = box.tools, options, yes

    async def answer(self, messages: tuple[Message, ...]) -> Result:
        stream = self._client.generate(messages=messages, tools=self._tools, options=self._options)
        result = await show(stream, self._printer)
        if result.tool_calls:
            self._printer.calls()
        return result

    async def consent(self, tool: str) -> Consent:
        """Ask until the answer is clear; the end of the input means no."""
        while not self._yes:
            termios.tcflush(sys.stdin, termios.TCIFLUSH)  # typed before the call was shown
            note("Call it? [y: yes, n: no, a: always in this run]")
            line = await _line()
            word = line.strip().lower()
            if not line or word in CONSENTS:
                return CONSENTS.get(word, "no")
        return "always"

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
