"""The server's process: an editor on stdin and stdout, one event loop for it and for the daemon.

The pipes are asyncio's: pygls' own ``start_io`` waits for the editor's next byte before it ends at SIGINT,
and stops while the editor reads nothing; its loop logs a traceback of each invalid message.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from lsprotocol import types

from localspec.errors import InvalidOptions
from localspec.lsp.commands import COMMANDS, report_failures
from localspec.lsp.completions import inline_completion, rested
from localspec.lsp.documents import Document
from localspec.lsp.server import Server

log = logging.getLogger(__name__)

Params = Mapping[str, Any]
"""of a notification that is in no version of the protocol"""


def initialize(ls: Server, params: types.InitializeParams) -> None:
    ls.begin(params)
    if params.process_id is not None:
        ls.spawn(end_with(params.process_id, lambda: ls.stop(0)))


def initialized(ls: Server, params: types.InitializedParams) -> None:
    ls.renew()  # not earlier: an editor takes no notification before the response to `initialize`
    if ls.settings.enabled:
        ls.spawn(ls.link.client())  # early: the daemon starts before the first completion


def configure(ls: Server, params: types.DidChangeConfigurationParams) -> None:
    ls.configure(params.settings)
    ls.renew()


def open_text(ls: Server, params: types.DidOpenTextDocumentParams) -> None:
    item = params.text_document
    language = str(getattr(item.language_id, "value", item.language_id))
    ls.documents[item.uri] = Document(item.uri, language, item.text)
    ls.ring.touch(item.uri, 0)


def change_text(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
    if (document := ls.documents.get(params.text_document.uri)) is not None:
        for change in params.content_changes:
            document.change(change, ls.encoding)
        ls.ring.touch(document.uri, document.edited)


def close_text(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
    uri = params.text_document.uri
    ls.suggestions.close(uri)
    ls.documents.pop(uri, None)
    ls.ring.forget(uri)
    ls.newest.pop(uri, None)


def shown(ls: Server, params: Params) -> None:
    if (id := _item(params)) is not None:
        ls.suggestions.show(id)


def partly_accepted(ls: Server, params: Params) -> None:
    id, length = _item(params), params.get("acceptedLength")
    if id is not None and isinstance(length, int):
        ls.suggestions.accept(id, length)  # whatever positions are in


def focused(ls: Server, params: Params) -> None:
    document = ls.documents.get(str(params.get("textDocument", {}).get("uri")))
    if document is not None:
        ls.ring.touch(document.uri, document.edited)
    ls.focus(document)


FEATURES: dict[str, Any] = {
    types.INITIALIZE: initialize,
    types.INITIALIZED: initialized,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: configure,
    types.TEXT_DOCUMENT_DID_OPEN: open_text,
    types.TEXT_DOCUMENT_DID_CHANGE: change_text,
    types.TEXT_DOCUMENT_DID_CLOSE: close_text,
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
    for name, command in COMMANDS.items():
        server.command(name)(report_failures(command))
    return server


def _item(params: Params) -> str | None:
    """The id of the item that a notification is about, which is its command's argument."""
    try:
        return str(params["item"]["command"]["arguments"][0])
    except (KeyError, IndexError, TypeError):
        return None


LAST_WORDS_S, EDITOR_EVERY_S = 1.0, 3.0
READ_AHEAD = 1 << 22
"""bytes that are read before the messages in them are handled; bounds a header, too"""
LENGTH = re.compile(rb"(?im)^content-length:[ \t]*(\d{1,15})[ \t]*\r$")


def serve() -> int:
    """Serve completions to an editor over stdin and stdout, as a language server; returns the exit code."""
    if not (is_pipe(sys.stdin) and is_pipe(sys.stdout)):
        remedy = "Let an editor start it: see plugins/lsp/README.md of localspec's source."
        raise InvalidOptions("`localspec lsp` is for editors: stdin and stdout must be pipes", remedy)
    # Editors show stderr as errors; pygls' warning of a request that was cancelled too late is none, and its
    # traceback of an invalid message is that of :func:`_read`'s line.
    logging.getLogger("pygls").setLevel(logging.ERROR)
    logging.getLogger("pygls.protocol.json_rpc").addFilter(lambda record: "deserialize" not in record.msg)
    return asyncio.run(_serve())


def is_pipe(file: TextIO | None) -> bool:
    """True if a file is a pipe or a socket."""
    mode = 0 if file is None else os.fstat(file.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def _serve() -> int:
    server, loop = create(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop, 0)
    reader = asyncio.StreamReader(READ_AHEAD)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    stdout = io.FileIO(sys.stdout.fileno(), "w", closefd=False)
    pipe, output = await loop.connect_write_pipe(Output, stdout)
    loop.remove_reader(stdout)  # asyncio would end at bytes from there: stdin may be the same socket
    output.closed.add_done_callback(lambda _: server.stop(1))
    server.protocol.set_writer(pipe)
    reading = asyncio.create_task(_read(server, reader))
    try:
        return await server.ended
    finally:
        reading.cancel()
        await server.link.close()
        pipe.close()
        await asyncio.wait((output.closed,), timeout=LAST_WORDS_S)  # an editor that reads nothing


async def _read(server: Server, reader: asyncio.StreamReader) -> None:
    """Handle the editor's messages until the input ends, perhaps in a message, or a header has no length."""
    with contextlib.suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        while length := LENGTH.search(header := await reader.readuntil(b"\r\n\r\n")):
            await asyncio.sleep(0)  # a request begins with the text as it is, before a message changes it
            body = await reader.readexactly(int(length[1]))
            try:
                message = json.loads(body, object_hook=server.protocol.structure_message)
                server.protocol.handle_message(message)
            except Exception:  # of any kind: the input is not checked before
                log.error("invalid message from the editor: %.200r", body)
        log.error("a header from the editor has no Content-Length: %.200r", header)
        server.stop(1)
    server.stop(0)  # the editor has gone, and nothing is wrong here


class Output(asyncio.BaseProtocol):
    """The state of stdout: ``closed`` is done once nothing can be written any more."""

    def __init__(self) -> None:
        self.closed = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


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
