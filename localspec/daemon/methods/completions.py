"""Methods of the completions: answered by the model or from the cache, prefetched, and judged by feedback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math

from msgspec.structs import replace

from localspec.completion.finishing import finished
from localspec.daemon.daemon import Daemon
from localspec.daemon.inline.pace import Pace
from localspec.daemon.inline.suggestions import Asked, Found, Shown
from localspec.daemon.methods.generation import first_deadline, generate, merged, nothing, waited
from localspec.daemon.relay.exchange import Exchange
from localspec.daemon.relay.receiver import Silent
from localspec.daemon.workers.pool import key_of
from localspec.errors import LocalspecError
from localspec.protocol import messages
from localspec.protocol.frames import Teach
from localspec.protocol.options import Options
from localspec.protocol.requests import File, FimPrompt, Priority, Request

UNFINISHED = ("deadline", "cancelled")
PAUSE_SHARE = 0.25
"""of the time that is allowed, most of it is for the answer"""
VARIED = 0.7
"""the temperature of other answers to who wants none"""

log = logging.getLogger(__name__)


async def inline(
    daemon: Daemon, exchange: Exchange, params: messages.CompletionInline
) -> messages.Completions:
    """Answers with whole items, not with a stream: only a finished completion can be shown."""
    began = asyncio.get_running_loop().time()
    editor = daemon.editors.of(exchange.client)
    if params.trigger == "automatic":
        editor.pace.asked(began)
    with editor.newest.hold(params.path, exchange):
        deadline = first_deadline(params, began)
        asked = await _asked(daemon, params)
        # What belongs to no file is asked by all kinds of programs, each with files of its own beside.
        found = None if asked.path is None else await _known(daemon, exchange, asked, deadline)
        if found is None:
            if not asked.invoked:
                await _paused(exchange, editor.pace, began, deadline)
            answer = await _ask(daemon, exchange, asked, params, began)
        else:
            answer = _answer_known(daemon, asked, found, params.n)
    answer = replace(answer, elapsed_ms=1000 * (asyncio.get_running_loop().time() - began))
    daemon.metrics.answered.labels(answer.source).inc()
    if answer.items and answer.result.finish_reason not in UNFINISHED and not exchange.cancelled:
        _prefetch(daemon, exchange, asked.after(answer.items[0].text), params.extra)
    return answer


async def warm(daemon: Daemon, exchange: Exchange, params: messages.CompletionWarm) -> messages.Warmed:
    """Prefill a prompt in the background; the path's next completion ends that."""
    prefetch, path = daemon.prefetch, params.path
    with contextlib.nullcontext() if path is None else prefetch.hold(exchange.client, path, exchange):
        options = replace(await merged(daemon, params.options, params.path), max_tokens=0)
        asked = Asked(params.prefix, params.suffix, params.path, params.language, True, options)
        result = await generate(daemon, exchange, _request(asked, params.extra, "background"), lambda _: None)
    return messages.Warmed(result.prompt_tokens, result.prompt_tokens - result.cached_tokens)


async def feedback(
    daemon: Daemon, exchange: Exchange, params: messages.CompletionFeedback
) -> messages.Nothing:
    """Count an item as accepted or rejected; accepted text is learnt. Raises :class:`Gone`."""
    shown, metrics = daemon.suggestions.shown(params.item), daemon.metrics
    metrics.suggestions.labels(params.event).inc()
    if params.event in ("accepted", "partial"):
        chars = len(shown.text) if params.chars is None else min(params.chars, len(shown.text))
        if chars > shown.accepted:
            metrics.accepted_chars.inc(chars - shown.accepted)
            shown.accepted = chars
            _teach(daemon, shown)
    return messages.Nothing()


async def _asked(daemon: Daemon, params: messages.CompletionInline) -> Asked:
    """The question, with the options that are configured for it."""
    options = await merged(daemon, params.options, params.path)
    return Asked(
        params.prefix,
        params.suffix,
        params.path,
        params.language,
        params.multiline,
        options,
        params.n,
        params.trigger == "invoked",
    )


async def _known(daemon: Daemon, exchange: Exchange, asked: Asked, deadline: float | None) -> Found | None:
    """The known answer, if any; a prefetch of exactly this question is awaited. All other work for this path
    is cancelled at once, unless the user types towards its question."""
    suggestions = daemon.suggestions
    found = suggestions.find(asked)
    work = None if asked.path is None else daemon.prefetch.find(exchange.client, asked.path)
    if work is None or (found is not None and work.serves(asked)):
        return found
    # In the background it might wait for others: then it is asked anew, before them.
    is_asked = found is None and work.task is not None and work.asked == asked
    if is_asked and len(daemon.busy) <= 1:
        try:
            async with exchange.waiting(deadline):
                await work.ended()
        except TimeoutError:
            pass  # who goes on from here finds the time over, or the request cancelled
        found = suggestions.find(asked)
    work.doer.cancel()
    return found


async def _paused(exchange: Exchange, pace: Pace, began: float, deadline: float | None) -> None:
    """Wait until the user has probably stopped typing; a newer question ends it."""
    longest = math.inf if deadline is None else PAUSE_SHARE * (deadline - began)
    with contextlib.suppress(TimeoutError):  # nothing is left to do then, which is soon found
        async with exchange.waiting(deadline):
            await asyncio.sleep(min(pace.wait, longest))


async def _ask(
    daemon: Daemon, exchange: Exchange, asked: Asked, params: messages.CompletionInline, arrived: float
) -> messages.Completions:
    """The model's answer."""
    now = asyncio.get_running_loop().time
    began = now()
    request = replace(
        _request(asked, params.extra, "completion"),
        max_ms=params.max_ms,
        max_prompt_ms=params.max_prompt_ms,
        max_predict_ms=params.max_predict_ms,
    )
    request = waited(request, began - arrived)
    is_loaded = any(key_of(asked.options) in worker.names for worker, _ in daemon.pool.loaded())
    requests = [replace(request, options=_varied(asked.options, i)) for i in range(asked.count)]
    try:
        raw = await asyncio.gather(*(generate(daemon, exchange, each, exchange.round) for each in requests))
    except LocalspecError:
        exchange.cancel()  # the others, for which nobody waits any more
        raise
    whole = not any(result.finish_reason in UNFINISHED for result in raw)
    if is_loaded:  # else it tells how long a load takes
        daemon.editors.of(exchange.client).pace.answered(now() - began, whole=whole)
    results = [finished(result, asked.gap) for result in raw]
    texts = tuple(dict.fromkeys(result.text for result in results if result.text))
    if whole and asked.path is not None:
        daemon.suggestions.keep(asked, texts)
    result = next((each for each in results if each.text), results[0])  # the first item's
    items = daemon.suggestions.show(asked, texts)
    reprefilled = result.prompt_tokens - result.cached_tokens
    return messages.Completions(items, result.stats, result, "model", reprefilled)


def _answer_known(daemon: Daemon, asked: Asked, found: Found, count: int) -> messages.Completions:
    texts = found.texts[:count]
    result = replace(nothing(asked.options, "stop"), text=texts[0] if texts else "")
    items = daemon.suggestions.show(asked, texts)
    return messages.Completions(items, result.stats, result, found.source)


def _prefetch(daemon: Daemon, exchange: Exchange, asked: Asked, extra: tuple[File, ...]) -> None:
    """Prefetch the completion ``asked``, which follows if the item is accepted."""
    path = asked.path
    if path is None or daemon.suggestions.find(asked) is not None:
        return
    work = daemon.prefetch.find(exchange.client, path)
    if work is not None and work.asked == asked:
        return
    silent = Silent()
    daemon.prefetch.begin(exchange.client, path, silent, asked, _keep_answer(daemon, silent, asked, extra))


async def _keep_answer(daemon: Daemon, silent: Silent, asked: Asked, extra: tuple[File, ...]) -> None:
    try:
        result = await generate(daemon, silent, _request(asked, extra, "background"), lambda _: None)
    except LocalspecError as error:
        log.debug("a prefetch failed: %s", error.code)
        return
    if result.finish_reason not in UNFINISHED:
        text = finished(result, asked.gap).text
        daemon.suggestions.keep(asked, (text,) if text else ())


def _request(asked: Asked, extra: tuple[File, ...], priority: Priority) -> Request:
    prompt = FimPrompt(
        asked.prefix,
        asked.suffix,
        asked.path,
        asked.language,
        extra,
        asked.multiline,
        tidy=True,
        invoked=asked.invoked,
    )
    source = "run" if asked.path is None else f"file:{asked.path}"
    return Request(prompt=prompt, options=asked.options, source=source, priority=priority)


def _varied(options: Options, number: int) -> Options:
    """The options of one of several answers: a seed that was given differs for each. Without a temperature
    all would be the same: of those only the first is as certain as was asked for."""
    if number == 0:
        return options
    seed = options.seed if options.temperature else options.seed or 0
    if seed is not None:
        seed = (seed + number) % 2**63
    return replace(options, seed=seed, temperature=options.temperature or VARIED)


def _teach(daemon: Daemon, shown: Shown) -> None:
    """Have the worker of its model learn the accepted text, where one is loaded."""
    if shown.path is None or shown.options.remember is False:
        return
    text = shown.before + shown.text[: shown.accepted]
    for worker, _ in daemon.pool.loaded():
        if key_of(shown.options) in worker.names:
            worker.send(Teach(shown.path, text, shown.options.workspace))
