"""Methods of the completions: answered by the model or from the cache, prefetched, and judged by feedback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math

from msgspec.structs import replace

from localspec.completion.finishing import finished
from localspec.completion.gap import Gap
from localspec.daemon.daemon import Daemon
from localspec.daemon.editors import Prefetched, newest
from localspec.daemon.methods import generation
from localspec.daemon.methods.generation import generate, merge_options, nothing
from localspec.daemon.relay import Exchange
from localspec.daemon.suggestions import KnownAnswer, Query, Shown
from localspec.daemon.workers.pool import key_of
from localspec.errors import LocalspecError
from localspec.protocol import messages
from localspec.protocol.frames import Teach
from localspec.protocol.options import Options
from localspec.protocol.requests import File, FimPrompt, Priority, Request

UNFINISHED = ("deadline", "cancelled")
GAP_S, PAUSE_S = 0.2, 0.3
"""seconds between two keystrokes, and those after which the user has probably paused"""
SHARE, LONGEST_S = 0.2, 1.0
"""weight of the newest answer in the average of their seconds, and most seconds of one"""
PAUSE_SHARE = 0.25
"""part of the time until the deadline that a delay may take; the rest is for the answer"""
VARIED = 0.7
"""temperature of further answers if the request has temperature 0"""

log = logging.getLogger(__name__)


async def inline(
    daemon: Daemon, exchange: Exchange, params: messages.CompletionInline
) -> messages.Completions:
    """Answer with whole items, not with a stream: only a finished completion can be shown."""
    began = asyncio.get_running_loop().time()
    editor = daemon.editors.of(exchange.client)
    with newest(editor.requests, params.path, exchange):
        deadline = generation.first_deadline(params, began)
        gap = Gap(params.prefix, params.suffix, params.language, params.path, params.multiline)
        options = await merge_options(daemon, params.options)
        query = Query(gap, options, params.n, params.trigger == "invoked")
        # Without a path the context is unknown: requests of different programs would share answers.
        path = params.path
        found = None if path is None else await _find_known(daemon, exchange, query, path, deadline)
        if found is None:
            if editor.answer_s > GAP_S and not query.invoked:
                await _pause(exchange, began, deadline)
            answer = await _complete(daemon, exchange, query, params, began)
        else:
            answer = _answer_known(daemon, query, found, params.n)
    answer = replace(answer, elapsed_ms=1000 * (asyncio.get_running_loop().time() - began))
    daemon.metrics.add("completions_total", source=answer.source)
    if answer.items and answer.result.finish_reason not in UNFINISHED and not exchange.cancelled:
        _prefetch(daemon, exchange, query.after(answer.items[0].text), params.extra)
    return answer


async def warm(daemon: Daemon, exchange: Exchange, params: messages.CompletionWarm) -> messages.Warmed:
    """Prefill a prompt in the background; the path's next completion ends that."""
    with newest(daemon.editors.of(exchange.client).ahead, params.path, exchange):
        options = replace(await merge_options(daemon, params.options), max_tokens=0)
        query = Query(Gap(params.prefix, params.suffix, params.language, params.path), options)
        result = await generate(daemon, exchange, _request(query, params.extra, "background"))
    return messages.Warmed(result.prompt_tokens, result.prompt_tokens - result.cached_tokens)


async def feedback(
    daemon: Daemon, exchange: Exchange, params: messages.CompletionFeedback
) -> messages.NoParams:
    """Count an item as accepted or rejected; accepted text is learnt. Raises :class:`Gone`."""
    shown, metrics = daemon.suggestions.find_shown(params.item), daemon.metrics
    metrics.add("suggestions_total", event=params.event)
    if params.event in ("accepted", "partial"):
        chars = len(shown.text) if params.chars is None else min(params.chars, len(shown.text))
        if chars > shown.accepted:
            metrics.add("accepted_chars_total", chars - shown.accepted)
            shown.accepted = chars
            _teach(daemon, shown)
    return messages.NoParams()


async def _find_known(
    daemon: Daemon, exchange: Exchange, query: Query, path: str, deadline: float | None
) -> KnownAnswer | None:
    """The known answer, if any; a prefetch of exactly this completion is awaited. All other work for this
    path is cancelled at once, unless the user types towards its completion."""
    suggestions = daemon.suggestions
    found = suggestions.find(query)
    work = daemon.editors.of(exchange.client).ahead.get(path)
    if work is None:
        return found
    if isinstance(work, Prefetched):
        if found is not None and work.serves(query):
            return found
        # In the background it might wait for other requests: then it is requested anew, before them.
        if found is None and work.query == query and len(daemon.busy) <= 1:
            # The deadline may pass, or the request be cancelled, which the caller checks.
            with contextlib.suppress(TimeoutError):
                async with exchange.waiting(deadline):
                    await asyncio.wait([work.task])
            found = suggestions.find(query)
    work.cancel()
    return found


async def _pause(exchange: Exchange, began: float, deadline: float | None) -> None:
    """Wait until the user has probably stopped typing; a newer request ends it."""
    longest = math.inf if deadline is None else PAUSE_SHARE * (deadline - began)
    with contextlib.suppress(TimeoutError):  # the request is over then, which the caller checks
        async with exchange.waiting(deadline):
            await asyncio.sleep(min(PAUSE_S, longest))


async def _complete(
    daemon: Daemon, exchange: Exchange, query: Query, params: messages.CompletionInline, arrived: float
) -> messages.Completions:
    now = asyncio.get_running_loop().time
    began = now()
    request = replace(
        _request(query, params.extra, "completion"),
        max_ms=params.max_ms,
        max_prompt_ms=params.max_prompt_ms,
        max_predict_ms=params.max_predict_ms,
    )
    request = generation.shorten_deadlines(request, began - arrived)
    is_loaded = any(key_of(query.options) in worker.pairs for worker, _ in daemon.pool.list_loaded())
    requests = [replace(request, options=_vary_options(query.options, i)) for i in range(query.count)]
    try:
        raw = await asyncio.gather(*(generate(daemon, exchange, each) for each in requests))
    except LocalspecError:
        exchange.cancel()  # the other generations, which are not needed any more
        raise
    whole = not any(result.finish_reason in UNFINISHED for result in raw)
    if is_loaded:  # else the time includes the load
        editor, took = daemon.editors.of(exchange.client), min(now() - began, LONGEST_S)
        average = editor.answer_s + SHARE * (took - editor.answer_s)
        editor.answer_s = average if whole else max(took, editor.answer_s)
    results = [finished(result, query.gap) for result in raw]
    texts = tuple(dict.fromkeys(result.text for result in results if result.text))
    if whole and query.gap.path is not None:
        daemon.suggestions.keep(query, texts)
    result = next((each for each in results if each.text), results[0])  # the first item's
    items = daemon.suggestions.show(query, texts)
    reprefilled = result.prompt_tokens - result.cached_tokens
    return messages.Completions(items, result.stats, result, "model", reprefilled)


def _answer_known(daemon: Daemon, query: Query, found: KnownAnswer, count: int) -> messages.Completions:
    texts = found.texts[:count]
    result = replace(nothing(query.options, "stop"), text=texts[0] if texts else "")
    items = daemon.suggestions.show(query, texts)
    return messages.Completions(items, result.stats, result, found.source)


def _prefetch(daemon: Daemon, exchange: Exchange, query: Query, extra: tuple[File, ...]) -> None:
    """Prefetch the completion ``query``, which follows if the item is accepted."""
    path = query.gap.path
    if path is None or daemon.suggestions.find(query) is not None:
        return
    work = daemon.editors.of(exchange.client).ahead.get(path)
    if isinstance(work, Prefetched) and work.query == query:
        return
    prefetched = Prefetched(query)
    daemon.editors.prefetch(exchange.client, path, prefetched, _keep_answer(daemon, prefetched, extra))


async def _keep_answer(daemon: Daemon, prefetched: Prefetched, extra: tuple[File, ...]) -> None:
    query = prefetched.query
    try:
        result = await generate(daemon, prefetched, _request(query, extra, "background"))
    except LocalspecError as error:
        log.debug("a prefetch failed: %s", error.code)
        return
    if result.finish_reason not in UNFINISHED:
        text = finished(result, query.gap).text
        daemon.suggestions.keep(query, (text,) if text else ())


def _request(query: Query, extra: tuple[File, ...], priority: Priority) -> Request:
    gap = query.gap
    prompt = FimPrompt(
        gap.prefix, gap.suffix, gap.path, gap.language, extra, gap.multiline, tidy=True, invoked=query.invoked
    )
    source = "run" if gap.path is None else f"file:{gap.path}"
    return Request(prompt=prompt, options=query.options, source=source, priority=priority)


def _vary_options(options: Options, number: int) -> Options:
    """The options of one of several answers: a given seed differs for each. At temperature 0 all would be the
    same, so that only the first is greedy, and the others get :data:`VARIED`."""
    if number == 0:
        return options
    seed = options.seed if options.temperature else options.seed or 0
    if seed is not None:
        seed = (seed + number) % 2**63
    return replace(options, seed=seed, temperature=options.temperature or VARIED)


def _teach(daemon: Daemon, shown: Shown) -> None:
    """Send the accepted text to the worker of its model, if loaded, to learn it."""
    if shown.path is None or shown.options.remember is False:
        return
    text = shown.before + shown.text[: shown.accepted]
    for worker, _ in daemon.pool.list_loaded():
        if key_of(shown.options) in worker.pairs:
            worker.send(Teach(shown.path, text, shown.options.workspace))
