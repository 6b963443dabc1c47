"""The server's process: an editor on stdin and stdout, one event loop for it and for the daemon.

Messages are not read by pygls' own loop: that one waits for the editor's next byte before it ends at SIGINT,
leaves the connection to the daemon open at SIGTERM, and accepts a header's name in one spelling only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from lsprotocol import types

from localspec.errors import InvalidOptions
from localspec.lsp import commands
from localspec.lsp.completions import inline_completion, rested
from localspec.lsp.server import Server

Params = Mapping[str, Any]
"""of a notification that is in no version of the protocol"""


def initialize(ls: Server, params: types.InitializeParams) -> None:
    ls.begin(params)
    if params.process_id is not None:
        ls.spawn(end_with(params.process_id, lambda: ls.stop(0)))


def initialized(ls: Server, params: types.InitializedParams) -> None:
    if ls.settings.enabled:
        ls.spawn(ls.link.client())  # early: the daemon starts before the first completion


def configure(ls: Server, params: types.DidChangeConfigurationParams) -> None:
    ls.configure(params.settings)


def shown(ls: Server, params: Params) -> None:
    if (id := _item(params)) is not None:
        ls.suggestions.show(id)


def partly_accepted(ls: Server, params: Params) -> None:
    id, length = _item(params), params.get("acceptedLength")
    if id is not None and isinstance(length, int):
        ls.suggestions.accept_part(id, length, "utf-16")  # whatever positions are in


def focused(ls: Server, params: Params) -> None:
    document = ls.documents.get(str(params.get("textDocument", {}).get("uri")))
    if document is not None:
        ls.ring.touch(document.uri, document.edited)


FEATURES: dict[str, Any] = {
    types.INITIALIZE: initialize,
    types.INITIALIZED: initialized,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: configure,
    types.TEXT_DOCUMENT_INLINE_COMPLETION: inline_completion,
    "textDocument/didShowCompletion": shown,
    "textDocument/didPartiallyAcceptCompletion": partly_accepted,
    "textDocument/didFocus": focused,
    "localspec/didRest": rested,
}


def create() -> Server:
    """Return a server with all features and commands registered."""
    server = Server()
    for method, feature in FEATURES.items():
        options = types.InlineCompletionOptions() if feature is inline_completion else None
        server.feature(method, options)(feature)
    for name in commands.COMMANDS:
        server.command(name)(_command(name))
    return server


def _command(name: str) -> Any:
    async def run(ls: Server, *arguments: Any) -> Any:
        return await commands.run(ls, name, list(arguments))

    return run


def _item(params: Params) -> str | None:
    """The id of the item that a notification is about, which is its command's argument."""
    try:
        return str(params["item"]["command"]["arguments"][0])
    except (KeyError, IndexError, TypeError):
        return None


STDIN, STDOUT = 0, 1
CHUNK = 1 << 16
LENGTH = re.compile(rb"content-length:\s*(\d{1,10})", re.IGNORECASE)
LAST_WORDS_S, EDITOR_EVERY_S = 1.0, 3.0


def serve() -> int:
    """Serve completions to an editor over stdin and stdout, as a language server; returns the exit code."""
    if sys.stdin is not None and sys.stdin.isatty():
        remedy = "Let an editor start it: see plugins/lsp/README.md of localspec's source."
        raise InvalidOptions("`localspec lsp` is for editors: stdin is a terminal", remedy)
    # Editors show stderr as errors; pygls' warning of a request that was cancelled too late is none.
    logging.getLogger("pygls").setLevel(logging.ERROR)
    return asyncio.run(_serve())


async def _serve() -> int:
    server = create()
    for fd in (STDIN, STDOUT):
        os.set_blocking(fd, True)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.stop, 0)
    output = Output(STDOUT, lambda: server.stop(1))
    server.protocol.set_writer(output)
    reading = asyncio.create_task(_read(server))
    try:
        return await server.ended
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        await server.link.close()
        output.close()


async def end_with(editor: int, end: Callable[[], None], every_s: float = EDITOR_EVERY_S) -> None:
    """Call ``end`` once the process ``editor`` has ended. One that does not exist is not waited for: the
    number of an editor outside of this container, or of WSL, is of another namespace."""
    import psutil  # late: the editor waits for the server's start

    try:
        process = psutil.Process(editor)
    except (psutil.Error, ValueError):
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(every_s)
    end()


async def _read(server: Server) -> None:
    async for body in messages(open_input(STDIN)):
        server.protocol.receive(body)
        await asyncio.sleep(0)  # a request begins with the text as it is, before the next message changes it
    server.stop(0)  # the editor has gone, and nothing is wrong here


def open_input(fd: int) -> asyncio.StreamReader:
    """Return a reader of ``fd``, which a thread fills: it may be a pipe, a file or a terminal, and the
    server's end does not wait for a blocked read."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()

    def pump() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            with contextlib.suppress(OSError):
                while chunk := os.read(fd, CHUNK):
                    loop.call_soon_threadsafe(reader.feed_data, chunk)
            loop.call_soon_threadsafe(reader.feed_eof)

    threading.Thread(target=pump, name="stdin", daemon=True).start()
    return reader


async def messages(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The bodies of messages, until the end of the input or the first malformed message."""
    with contextlib.suppress(asyncio.IncompleteReadError, ValueError):
        while True:
            length: int | None = None
            while (line := await reader.readline()).strip():
                if found := LENGTH.fullmatch(line.strip()):
                    length = int(found[1])
            if not line:
                return
            if length is not None:
                yield await reader.readexactly(length)


class Output:
    """Writes messages on a thread: an editor that does not read blocks nothing else, not even the end.

    ``lost`` is called when writing fails because the reader has closed.
    """

    def __init__(self, fd: int, lost: Callable[[], None]) -> None:
        self._fd = fd
        self._loop, self._lost = asyncio.get_running_loop(), lost
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._pump, name="stdout", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Queue ``data``."""
        self._waiting.put(data)

    def close(self) -> None:
        """Queue nothing more, and wait at most :data:`LAST_WORDS_S` until the queue is written; ``fd`` stays
        open."""
        self._waiting.put(None)
        self._thread.join(LAST_WORDS_S)

    def _pump(self) -> None:
        try:
            while (data := self._waiting.get()) is not None:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
        except OSError:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._lost)
