"""pygls' implementation of the protocol, with the changes that this server needs."""

from __future__ import annotations

import json
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.protocol import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    LanguageServerProtocol,
    default_converter,
    lsp_method,
)


class Protocol(LanguageServerProtocol):
    """Answers invalid requests, at which pygls would be silent; keeps texts by the protocol's lines, not by
    Python's; and leaves the end to the server."""

    _server: Any
    """a :class:`localspec.lsp.server.Server`"""

    def receive(self, body: bytes) -> None:
        """Handle the body of a message."""
        try:
            data = json.loads(body)
        except (ValueError, RecursionError) as error:
            return self._refuse(None, types.ErrorCodes.ParseError, f"the message is not JSON: {error}")
        if not isinstance(data, dict) or data.get("jsonrpc") != self.VERSION:
            return self._refuse(None, types.ErrorCodes.InvalidRequest, "the message is not JSON-RPC 2.0")
        try:
            message = self.structure_message(data)
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                self._refuse(data["id"], types.ErrorCodes.InvalidParams, str(error))
            return None
        self.handle_message(message)
        return None

    def _refuse(self, id: int | str | None, code: types.ErrorCodes, message: str) -> None:
        # Written by hand: pygls would leave out an id of null.
        error = {"code": code, "message": message}
        self._send_data({"jsonrpc": self.VERSION, "id": id, "error": error})

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: object) -> None:  # type: ignore[override]
        self._server.stop(0 if self._shutdown else 1)

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        self._server.opened(params.text_document)

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        self._server.changed(params.text_document.uri, params.content_changes)

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        self._server.closed(params.text_document.uri)


def converter() -> Any:
    """pygls' converter, which leaves messages without a type as they are (pygls makes named tuples of them)
    and accepts them without parameters."""
    made = default_converter()  # type: ignore[no-untyped-call]
    for unknown in (JsonRPCNotification, JsonRPCRequestMessage):
        made.register_structure_hook(unknown, lambda found, kind: kind(**{"params": None, **found}))
    return made
