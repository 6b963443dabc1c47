"""The LSP methods that the server handles, with their handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lsprotocol import types

from localspec.lsp import commands
from localspec.lsp.completions import inline_completion
from localspec.lsp.server import Server

Params = Mapping[str, Any]
"""of a notification that is in no version of the protocol"""


def initialize(ls: Server, params: types.InitializeParams) -> None:
    ls.begin(params)


def initialized(ls: Server, params: types.InitializedParams) -> None:
    ls.spawn(_connect(ls))  # early: the daemon starts before the first completion


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


async def _connect(server: Server) -> None:
    if server.settings.enabled:
        await server.link.client()


def _item(params: Params) -> str | None:
    """The id of the item that a notification is about, which is its command's argument."""
    try:
        return str(params["item"]["command"]["arguments"][0])
    except (KeyError, IndexError, TypeError):
        return None
