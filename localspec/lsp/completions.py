"""One inline completion: the request to the daemon, and the answer to the editor."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from lsprotocol import types

from localspec.completion.context import SNAP
from localspec.errors import DaemonUnavailable, LocalspecError
from localspec.lsp.documents import CompletionGap, Document
from localspec.lsp.server import EditorServer
from localspec.lsp.suggestions import Suggestion
from localspec.protocol.messages import Completions, CompletionWarm, ModelProgress, Trigger
from localspec.protocol.options import Options

if TYPE_CHECKING:
    from localspec.client import Stream

T = TypeVar("T")

ACCEPTED = "localspec.accepted"
"""command that an editor runs after an item was accepted; its argument is the item's id"""
VARIANTS = 3
"""items to choose from, if the user invoked the completion"""
GRACE_S = 2.0
"""time after the deadline until a daemon without an answer counts as hung"""

NOTHING = types.InlineCompletionList(items=[])
"""empty answer: the editor removes its ghost text; at null it may leave it"""


async def inline_completion(
    server: EditorServer, params: types.InlineCompletionParams
) -> types.InlineCompletionList | None:
    """The items; None if the text has changed since."""
    question = question_of(server, params)
    if question is None:
        return NOTHING
    server.suggestions.move(question.document, question.start)
    server.status.begin()
    try:
        return await _answer(server, question)
    except TimeoutError:
        pass  # the daemon hangs
    except LocalspecError as error:
        # A connection that was lost meanwhile is replaced at the next request: no error to show.
        if not isinstance(error, DaemonUnavailable) or server.link.failure is not None:
            server.fail(error)
    finally:
        server.status.end()
    return NOTHING


def question_of(server: EditorServer, params: types.InlineCompletionParams) -> CompletionGap | None:
    """The gap to complete; None if this document, language or trigger is switched off."""
    document = server.documents.get(params.text_document.uri)
    settings = server.settings
    is_invoked = params.context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
    if document is None or not server.may_send(document) or not (is_invoked or settings.automatic):
        return None
    place = document.place(params.position, server.encoding)
    trigger: Trigger = "invoked" if is_invoked else "automatic"
    plain = CompletionGap(document, document.revision, place, place, "", trigger)
    if (selected := params.context.selected_completion_info) is None:
        return plain
    start = document.place(selected.range.start, server.encoding)
    end = document.place(selected.range.end, server.encoding)
    is_here = start <= place <= end and start.line == end.line
    return plain._replace(start=start, end=end, lead=selected.text) if is_here else plain


async def _answer(server: EditorServer, question: CompletionGap) -> types.InlineCompletionList | None:
    settings = server.settings
    # A daemon's start and a model's load are waited for: the editor cancels what it no longer needs.
    client = await server.link.client(at_once=question.trigger == "invoked")
    while True:
        if question.is_stale:
            return None
        stream = client.complete(
            question.document.before(question.start) + question.lead,
            question.document.after(question.end),
            language=question.document.language,
            path=question.document.path,
            extra=server.ring.blocks(server.documents, question.document.uri, server.may_send),
            n=VARIANTS if question.trigger == "invoked" else 1,
            max_ms=settings.max_ms,
            multiline=settings.multiline,
            trigger=question.trigger,
            options=Options(model=settings.model),
        )
        answer = await _await_result(server, stream, settings.max_ms / 1000 + GRACE_S)
        if answer.result.finish_reason != "deadline" or server.status.loading is None:
            break
        await _await_result(server, client.load(Options(model=settings.model)), None)
        server.status.end_load()
    server.status.count(answer)
    if question.is_stale or answer.result.finish_reason == "cancelled":
        return None
    return _items(server, question, answer)


def warm_resting_place(server: EditorServer, params: Mapping[str, Any]) -> None:
    """Have the model read ahead around a resting cursor, once in a block of lines of an edited document."""
    document = server.documents.get(str(params.get("textDocument", {}).get("uri")))
    line = params.get("position", {}).get("line")
    if document is None or not document.revision or not isinstance(line, int) or line < 0:
        return
    near = (document.uri, line // SNAP)
    if server.may_send(document) and server.settings.automatic and server.read != near:
        server.read = near
        server.spawn(_warm(server, document, types.Position(line, 0)))


async def _warm(server: EditorServer, document: Document, position: types.Position) -> None:
    client, place = await server.link.client(), document.place(position, server.encoding)
    params = CompletionWarm(
        path=document.path,
        prefix=document.before(place),
        suffix=document.after(place),
        language=document.language,
        extra=server.ring.blocks(server.documents, document.uri, server.may_send),
        options=Options(model=server.settings.model),
    )
    await client.warm(params).result()


async def _await_result(server: EditorServer, stream: Stream[T], limit_s: float | None) -> T:
    """The daemon's answer; the stream is stopped if the editor cancels or the time is over."""
    try:
        async with asyncio.timeout(limit_s):
            async for event in stream.events():
                if isinstance(event, ModelProgress):
                    server.status.see_load(event)
            return await stream.result()
    finally:
        stream.stop()  # does nothing once it has ended


def _items(server: EditorServer, question: CompletionGap, answer: Completions) -> types.InlineCompletionList:
    document = question.document
    start, end = (document.position(at, server.encoding) for at in (question.start, question.end))
    items = []
    for item in answer.items:
        suggestion = Suggestion(item.id, item.text, question.lead, document.uri, question.start)
        server.suggestions.offer(suggestion)
        command = types.Command(title="Accepted", command=ACCEPTED, arguments=[item.id])
        place = types.Range(start, end)
        items.append(types.InlineCompletionItem(suggestion.insert_text, range=place, command=command))
    return types.InlineCompletionList(items=items)
