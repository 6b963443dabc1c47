"""The server: one editor's texts, settings and completions, and its way to the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from lsprotocol import types
from msgspec import Meta
from pygls.exceptions import JsonRpcException, JsonRpcMethodNotFound
from pygls.lsp.server import LanguageServer
from pygls.protocol import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    LanguageServerProtocol,
    default_converter,
    lsp_method,
)

from localspec._version import __version__
from localspec.errors import LocalspecError
from localspec.lsp.documents import Document, Encoding, Ring
from localspec.lsp.status import METHOD, CompletionStatus, Work
from localspec.lsp.suggestions import EditorSuggestions
from localspec.protocol.messages import SuggestionEvent
from localspec.protocol.options import readable, unknown_key

if TYPE_CHECKING:
    from localspec.client import Client

log = logging.getLogger(__name__)

PAUSE_S = 5.0
"""seconds after a failure in which no further connection is tried"""


class EditorLink:
    def __init__(self) -> None:
        self._client: Client | None = None
        self._connecting: asyncio.Task[Client] | None = None
        self.failure: LocalspecError | None = None
        self._again_at = 0.0

    @property
    def connected(self) -> Client | None:
        return None if self._client is None or self._client.lost else self._client

    async def client(self, *, at_once: bool = False) -> Client:
        """Return a connected client; starts the daemon if necessary. Raises the errors of connecting; within
        a pause after a failure the same again, unless ``at_once``."""
        if self.connected is not None:
            return self.connected
        if self._connecting is None:
            now = asyncio.get_running_loop().time()
            if self.failure is not None and now < self._again_at and not at_once:
                raise self.failure
            self._connecting = asyncio.create_task(self._connect())
        # Shielded: a caller may be cancelled while others wait for the same connection.
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> Client:
        # Imported late: the editor's first request does not wait for it.
        from localspec.client import connect

        try:
            if self._client is not None:
                await self._client.close()  # lost, but not closed yet
            self._client = await connect(name="localspec lsp")
        except LocalspecError as error:
            self._again_at = asyncio.get_running_loop().time() + PAUSE_S
            self.failure = error
            raise
        finally:
            self._connecting = None
        self.failure = None
        return self._client


SECTION = "localspec"


class Protocol(LanguageServerProtocol):
    """Answers invalid requests, at which pygls would be silent; leaves texts and the end to the server."""

    _server: Any

    def __init__(self, server: Any, converter: Any) -> None:
        super().__init__(server, converter)
        for name in ("didOpen", "didChange", "didClose"):
            del self.fm.builtin_features[f"textDocument/{name}"]

    def structure_message(self, data: dict[str, Any]) -> Any:
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: object) -> None:  # type: ignore[override]
        raise SystemExit(0 if self._shutdown else 1)


def converter() -> Any:
    """pygls' converter, which leaves messages without a type as they are (pygls makes named tuples of them)
    and accepts them without parameters."""
    made = default_converter()  # type: ignore[no-untyped-call]
    for unknown in (JsonRPCNotification, JsonRPCRequestMessage):
        made.register_structure_hook(
            unknown, lambda found, kind: kind(**{**found, "params": found.get("params") or {}})
        )
    return made


class EditorSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    enabled: bool = True
    automatic: bool = True
    """True if completions come while the user types, not only if invoked"""
    multiline: bool = True
    model: str | None = None
    """the model of completions; not set: the one that localspec is configured to use"""
    max_ms: Annotated[int, Meta(ge=1, le=600_000)] = 5000
    """milliseconds after which a completion is dropped, once its model is loaded"""
    excluded_languages: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()
    """language ids of documents from which nothing is sent"""


FIELDS = {field.encode_name: field for field in msgspec.structs.fields(EditorSettings)}


def section(values: Any) -> Mapping[str, Any]:
    own = values.get(SECTION, values) if isinstance(values, Mapping) else None
    if not isinstance(own, Mapping):
        return {}
    # Some send their whole configuration: other programs' settings are sections, ours are plain values.
    return {name: value for name, value in own.items() if own is not values or not isinstance(value, Mapping)}


def read_settings(values: Mapping[str, Any], base: EditorSettings) -> tuple[EditorSettings, list[str]]:
    """``base`` with the changes in ``values``, and a sentence for each value that is wrong."""
    changed: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in values.items():
        field = FIELDS.get(name)
        if field is None:
            wrong.append(unknown_key("setting", str(name)[:40], list(FIELDS)))
            continue
        try:
            changed[field.name] = msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            wrong.append(f"{name}: {readable(error)}")
    return msgspec.structs.replace(base, **changed), wrong


class EditorServer(LanguageServer):
    protocol: Protocol

    def __init__(self) -> None:
        super().__init__("localspec", __version__, protocol_cls=Protocol, converter_factory=converter)
        self.documents: dict[str, Document] = {}
        self.encoding: Encoding = "utf-16"
        self.ring = Ring()
        self.link = EditorLink()
        self.settings = self._initial = EditorSettings()
        self.focused: Document | None = None
        self.read: tuple[str, int] | None = None
        """the text and the block of lines that the model was asked to read last"""
        self.status = CompletionStatus(
            lambda now: self.protocol.notify(METHOD, msgspec.to_builtins(now)), self.work
        )
        self.suggestions = EditorSuggestions(self._report_feedback)
        self._reported: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, params: types.InitializeParams) -> None:
        self.encoding = self.workspace.position_encoding  # type: ignore[assignment]
        self.configure(params.initialization_options)
        self._initial = self.settings

    def configure(self, values: Any) -> None:
        """Take settings; a wrong one is reported, and keeps the value that it had at the beginning."""
        self.settings, wrong = read_settings(section(values), self._initial)
        for sentence in wrong:
            self.say(types.MessageType.Error, f"localspec: wrong setting: {sentence}.")

    def choose(self, model: str | None) -> None:
        self.settings = msgspec.structs.replace(self.settings, model=model)
        self._initial = msgspec.structs.replace(self._initial, model=model)
        self.renew()

    def focus(self, document: Document | None) -> None:
        """Take the text that the user is in: the status says if completions are off there."""
        self.focused = document
        self.status.enabled = self.settings.enabled if document is None else self.may_send(document)
        self.status.publish()

    def may_send(self, document: Document) -> bool:
        excluded = document.language in self.settings.excluded_languages
        return self.settings.enabled and not document.is_private and not excluded

    def say(self, kind: types.MessageType, sentence: str) -> None:
        self.window_show_message(types.ShowMessageParams(kind, sentence))

    def fail(self, error: LocalspecError) -> None:
        """Show an error once for each code; after that only the status shows it."""
        self.status.error = error
        if error.code not in self._reported:
            self._reported.add(error.code)
            self.complain(error)

    def complain(self, error: LocalspecError) -> None:
        self.say(types.MessageType.Error, f"localspec: {error.message}. {error.remedy}")

    def renew(self) -> None:
        self._reported.clear()
        self.status.error = None
        self.focus(self.focused)

    def work(self, title: str, cancel: Callable[[], None] | None = None) -> Work:
        window = self.client_capabilities.window
        can_show = window is not None and window.work_done_progress
        return Work(self.work_done_progress if can_show else None, title, cancel)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log an error, and show nothing: it would be shown at every key."""
        if not isinstance(error, JsonRpcMethodNotFound):  # which is answered
            is_ours = source is not JsonRpcException
            log.error("a message from the editor failed: %.200r", error, exc_info=is_ours)

    def _report_feedback(self, item: str, event: SuggestionEvent, chars: int | None) -> None:
        if (client := self.link.connected) is not None:
            self.spawn(client.feedback(item, event, chars=chars))

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    with contextlib.suppress(LocalspecError):
        await work
