"""The server: one editor's texts, settings and completions, and its way to the daemon."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from lsprotocol import types
from pygls.lsp.server import LanguageServer

from localspec._version import __version__
from localspec.errors import LocalspecError
from localspec.lsp import status
from localspec.lsp.documents import Document, Documents, Question, Ring
from localspec.lsp.link import Link
from localspec.lsp.progress import Loading, Work
from localspec.lsp.protocol import Protocol, converter
from localspec.lsp.settings import Settings, read_settings, section
from localspec.lsp.suggestions import Suggestions
from localspec.protocol.messages import SuggestionEvent

TIMED = 1000
"""completions whose times are kept"""


class Server(LanguageServer):
    """The state that the features of :mod:`localspec.lsp.features` use."""

    protocol: Protocol

    def __init__(self) -> None:
        super().__init__("localspec", __version__, protocol_cls=Protocol, converter_factory=converter)
        self.documents = Documents()
        self.ring = Ring()
        self.link = Link()
        self.settings = self._initial = Settings()
        self.newest: dict[str, Question] = {}
        """the last question of each text"""
        self.status = status.Status(self._report_status)
        self.loading = Loading(self.status, self.work)
        self.suggestions = Suggestions(self._report_feedback)
        self.timings: deque[tuple[float, float]] = deque(maxlen=TIMED)
        """milliseconds of the latest completions: as measured here, and the part of them in the daemon"""
        self._reported: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    # The end.

    async def ended(self) -> int:
        """Wait for the end of the server; returns the exit code."""
        return await self._end

    def stop(self, code: int) -> None:
        """End the server with this exit code; only the first call counts."""
        if not self._end.done():
            self._end.set_result(code)

    # The texts.

    def opened(self, item: types.TextDocumentItem) -> None:
        """Keep an opened text."""
        self.ring.touch(self.documents.open(item).uri, 0)

    def changed(self, uri: str, changes: Sequence[types.TextDocumentContentChangeEvent]) -> None:
        """Apply changes to a text."""
        document = self.documents.change(uri, changes)
        if document is not None:
            self.ring.touch(uri, document.edited)

    def closed(self, uri: str) -> None:
        """Drop a closed text."""
        self.suggestions.close(uri)
        self.documents.pop(uri, None)
        self.ring.forget(uri)
        self.newest.pop(uri, None)

    # Settings of the user.

    def begin(self, params: types.InitializeParams) -> None:
        """Take encoding and settings from the editor's ``initialize``."""
        self.documents.encoding = self.workspace.position_encoding  # type: ignore[assignment]
        self.configure(params.initialization_options)
        self._initial = self.settings

    def configure(self, values: Any) -> None:
        """Take settings; a wrong one is reported, and keeps the value that it had at the beginning."""
        self.settings, wrong = read_settings(section(values), self._initial)
        self.status.enabled = self.settings.enabled
        self.renew()
        for sentence in wrong:
            self.say(types.MessageType.Error, f"localspec: wrong setting: {sentence}.")

    def choose(self, model: str | None) -> None:
        """Set the model of completions; None is the configured one."""
        self.settings = msgspec.structs.replace(self.settings, model=model)
        self._initial = msgspec.structs.replace(self._initial, model=model)
        self.renew()

    def may_send(self, document: Document) -> bool:
        """True if text of this document may be sent to the daemon."""
        excluded = document.language in self.settings.excluded_languages
        return self.settings.enabled and not document.is_private and not excluded

    # Messages to the user.

    def say(self, kind: types.MessageType, sentence: str) -> None:
        """Show a sentence."""
        self.window_show_message(types.ShowMessageParams(kind, sentence))

    def fail(self, error: LocalspecError) -> None:
        """Show an error once for each code; after that only the status shows it."""
        self.status.error = error
        if error.code not in self._reported:
            self._reported.add(error.code)
            self.complain(error)

    def complain(self, error: LocalspecError) -> None:
        """Show an error and its remedy."""
        self.say(types.MessageType.Error, f"localspec: {error.message}. {error.remedy}")

    def renew(self) -> None:
        """Clear the error; each is shown again at its next occurrence."""
        self._reported.clear()
        self.status.error = None
        self.status.publish()

    def work(self, title: str, cancel: Callable[[], None] | None = None) -> Work:
        """Begin to show work; ``cancel`` is called if the user ends it."""
        window = self.client_capabilities.window
        can_show = window is not None and window.work_done_progress
        return Work(self.work_done_progress if can_show else None, title, cancel)

    def _report_status(self, params: status.StatusParams) -> None:
        self.protocol.notify(status.METHOD, msgspec.to_builtins(params))

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Show nothing of an internal error: it is in the log, and would be shown at every key."""

    # Background tasks.

    def _report_feedback(self, item: str, event: SuggestionEvent, chars: int | None) -> None:
        if (client := self.link.connected) is not None:
            self.spawn(client.feedback(item, event, chars=chars))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background; its errors are dropped."""
        task = asyncio.create_task(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(LocalspecError):
        await work
