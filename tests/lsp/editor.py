"""An editor without a screen: pygls' own client, on the real `localspec lsp` over stdio."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from tests.waiting import Loop, soon, until

COMMAND = (sys.executable, "-m", "localspec", "lsp")
INVOKED = types.InlineCompletionTriggerKind.Invoked
AUTOMATIC = types.InlineCompletionTriggerKind.Automatic

Item = types.InlineCompletionItem


class Editor:
    def __init__(self) -> None:
        self.client = LanguageClient("test", "0")
        self.said: list[str] = []
        self.states: list[dict[str, Any]] = []
        self.progress: list[Any] = []
        self.answer: str | None = None
        """the answer to the server's questions to the user"""
        self._versions: dict[str, int] = {}
        features = {
            types.WINDOW_SHOW_MESSAGE: lambda params: self.said.append(params.message),
            types.WINDOW_SHOW_MESSAGE_REQUEST: lambda params: self._asked(params),
            types.WINDOW_WORK_DONE_PROGRESS_CREATE: lambda params: None,
            types.PROGRESS: lambda params: self.progress.append(params.value),
            "didChangeStatus": lambda params: self.states.append(params._asdict()),
        }
        for method, feature in features.items():
            self.client.feature(method)(feature)

    def _asked(self, params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
        self.said.append(params.message)
        return None if self.answer is None else types.MessageActionItem(self.answer)

    @property
    def pid(self) -> int:
        server = self.client._server
        assert server is not None
        return server.pid

    async def begin(
        self, root: Path | None, capabilities: dict[str, Any], options: Any
    ) -> types.InitializeResult:
        await self.client.start_io(*COMMAND, env=dict(os.environ))
        params = types.InitializeParams(
            capabilities=types.ClientCapabilities(**capabilities),
            root_uri=None if root is None else root.as_uri(),
            initialization_options=options,
        )
        began = await soon(self.client.initialize_async(params))
        self.client.initialized(types.InitializedParams())
        return began

    async def end(self) -> tuple[int, str]:
        """Take leave; returns the server's exit code, and what it wrote to stderr."""
        server = self.client._server
        assert server is not None and server.stderr is not None
        if server.returncode is None:
            with contextlib.suppress(Exception):
                await soon(self.client.shutdown_async(None))
                self.client.exit(None)
        log = (await soon(server.stderr.read())).decode()
        await soon(self.client.stop())  # type: ignore[no-untyped-call]
        assert server.returncode is not None
        return server.returncode, log

    def open(self, uri: str, text: str, language: str = "python") -> None:
        self._versions[uri] = 0
        item = types.TextDocumentItem(uri, language, 0, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def change(self, uri: str, start: tuple[int, int], end: tuple[int, int], text: str) -> None:
        place = types.Range(types.Position(*start), types.Position(*end))
        change = types.TextDocumentContentChangePartial(range=place, text=text)
        self.changes(uri, [change])

    def changes(self, uri: str, changes: Sequence[types.TextDocumentContentChangeEvent]) -> None:
        self._versions[uri] = self._versions.get(uri, 0) + 1
        document = types.VersionedTextDocumentIdentifier(self._versions[uri], uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, list(changes)))

    def ask(
        self,
        uri: str,
        position: tuple[int, int],
        *,
        trigger: types.InlineCompletionTriggerKind = INVOKED,
        selected: types.SelectedCompletionInfo | None = None,
        id: str | None = None,
    ) -> asyncio.Future[Any]:
        params = types.InlineCompletionParams(
            context=types.InlineCompletionContext(trigger, selected),
            text_document=types.TextDocumentIdentifier(uri),
            position=types.Position(*position),
        )
        method = types.TEXT_DOCUMENT_INLINE_COMPLETION
        asked: asyncio.Future[Any] = self.client.protocol.send_request_async(method, params, id)
        return asked

    async def complete(self, uri: str, position: tuple[int, int], **more: Any) -> list[Item]:
        answer = await soon(self.ask(uri, position, **more))
        assert isinstance(answer, types.InlineCompletionList), answer
        return list(answer.items)

    async def do(self, command: str, *arguments: Any) -> Any:
        params = types.ExecuteCommandParams(command, list(arguments))
        return await soon(self.client.workspace_execute_command_async(params))

    async def hears(self, *parts: str) -> str:
        def found() -> list[str]:
            return [said for said in self.said if all(part in said for part in parts)]

        await until(lambda: bool(found()), f"{parts} is said; said was {self.said}")
        return found()[0]


@asynccontextmanager
async def editing(
    root: Path | None = None, *, options: Any = None, **capabilities: Any
) -> AsyncIterator[Editor]:
    """An editor whose server is initialized; it must end well."""
    editor = Editor()
    try:
        await editor.begin(root, capabilities, options)
        yield editor
    finally:
        code, log = await editor.end()
    assert (code, log) == (0, ""), log


class Writer(Loop):
    """An editor for several tests, one after the other: a server takes a while to start."""

    def __init__(self, **more: Any) -> None:
        super().__init__()
        self._editing = editing(**more)
        self.editor = self.run(self._editing.__aenter__())

    def configure(self, **settings: Any) -> None:
        """Change settings; those that are not named are as at first."""
        change = types.DidChangeConfigurationParams({"localspec": settings})
        self.editor.client.workspace_did_change_configuration(change)
        self.editor.said.clear()
        self.editor.states.clear()

    def end(self) -> None:
        with self.runner:
            self.run(self._editing.__aexit__(None, None, None))


def texts(items: Sequence[Item]) -> list[str]:
    return [str(item.insert_text) for item in items]
