"""The server's process: an editor on stdin and stdout, one event loop for it and for the daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Mapping
from typing import Any, TextIO

from lsprotocol import types
from pygls.io_ import StdinAsyncReader, StdoutWriter, run_async

from localspec.errors import InvalidOptions
from localspec.lsp.commands import COMMANDS, report_failures
from localspec.lsp.completions import inline_completion, warm_resting_place
from localspec.lsp.documents import Document
from localspec.lsp.server import EditorServer

Params = Mapping[str, Any]
"""of a notification that is in no version of the protocol"""


def initialize(ls: EditorServer, params: types.InitializeParams) -> None:
    ls.begin(params)


def finish_initialize(ls: EditorServer, params: types.InitializedParams) -> None:
    ls.renew()  # not earlier: an editor takes no notification before the response to `initialize`
    if ls.settings.enabled:
        ls.spawn(ls.link.client())  # early: the daemon starts before the first completion


def configure(ls: EditorServer, params: types.DidChangeConfigurationParams) -> None:
    ls.configure(params.settings)
    ls.renew()


def open_text(ls: EditorServer, params: types.DidOpenTextDocumentParams) -> None:
    item = params.text_document
    language = str(getattr(item.language_id, "value", item.language_id))
    ls.documents[item.uri] = Document(item.uri, language, item.text)
    ls.ring.touch(item.uri, 0)


def change_text(ls: EditorServer, params: types.DidChangeTextDocumentParams) -> None:
    if (document := ls.documents.get(params.text_document.uri)) is not None:
        for change in params.content_changes:
            document.change(change, ls.encoding)
        ls.ring.touch(document.uri, document.edited)


def close_text(ls: EditorServer, params: types.DidCloseTextDocumentParams) -> None:
    uri = params.text_document.uri
    ls.suggestions.close(uri)
    ls.documents.pop(uri, None)
    ls.ring.forget(uri)


def show_item(ls: EditorServer, params: Params) -> None:
    if (id := _item(params)) is not None:
        ls.suggestions.show(id)


def partly_accepted(ls: EditorServer, params: Params) -> None:
    id, length = _item(params), params.get("acceptedLength")
    if id is not None and isinstance(length, int):
        ls.suggestions.accept(id, length)  # whatever positions are in


def focus_document(ls: EditorServer, params: Params) -> None:
    document = ls.documents.get(str(params.get("textDocument", {}).get("uri")))
    if document is not None:
        ls.ring.touch(document.uri, document.edited)
    ls.focus(document)


FEATURES: dict[str, Any] = {
    types.INITIALIZE: initialize,
    types.INITIALIZED: finish_initialize,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: configure,
    types.TEXT_DOCUMENT_DID_OPEN: open_text,
    types.TEXT_DOCUMENT_DID_CHANGE: change_text,
    types.TEXT_DOCUMENT_DID_CLOSE: close_text,
    types.TEXT_DOCUMENT_INLINE_COMPLETION: inline_completion,
    "textDocument/didShowCompletion": show_item,
    "textDocument/didPartiallyAcceptCompletion": partly_accepted,
    "textDocument/didFocus": focus_document,
    "localspec/didRest": warm_resting_place,
}


def create() -> EditorServer:
    server = EditorServer()
    for method, feature in FEATURES.items():
        options = types.InlineCompletionOptions() if feature is inline_completion else None
        server.feature(method, options)(feature)
    for name, command in COMMANDS.items():
        server.command(name)(report_failures(command))
    return server


def _item(params: Params) -> str | None:
    try:
        return str(params["item"]["command"]["arguments"][0])
    except (KeyError, IndexError, TypeError):
        return None


def serve() -> int:
    """Serve completions to an editor over stdin and stdout, as a language server; returns the exit code."""
    if not (is_pipe(sys.stdin) and is_pipe(sys.stdout)):
        remedy = "Let an editor start it: see plugins/lsp/README.md of localspec's source."
        raise InvalidOptions("`localspec lsp` is for editors: stdin and stdout must be pipes", remedy)
    # Editors show stderr as errors: `Server.report_server_error` logs those that are.
    logging.getLogger("pygls").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread waits for the editor's next byte
    server = create()
    server.protocol.set_writer(StdoutWriter(sys.stdout.buffer))
    reader = StdinAsyncReader(sys.stdin.buffer)
    reading = run_async(threading.Event(), reader, server.protocol, error_handler=server.report_server_error)
    try:
        asyncio.run(reading)
    except SystemExit as end:
        return int(end.code or 0)
    return 0  # the editor has gone, and nothing is wrong here


def is_pipe(file: TextIO | None) -> bool:
    mode = 0 if file is None else os.fstat(file.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
