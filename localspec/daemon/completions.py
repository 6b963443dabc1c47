"""``completion/inline``: what stands between two texts, for editors."""

from __future__ import annotations

import asyncio
import secrets

from msgspec.structs import replace

from localspec.daemon.exchange import Exchange
from localspec.daemon.generation import generate, merged
from localspec.protocol import messages
from localspec.protocol.options import Options
from localspec.protocol.requests import FimPrompt, Request


async def inline(exchange: Exchange, params: messages.CompletionInline) -> messages.Completions:
    """Answers with whole items, not with a stream: only a finished completion can be shown."""
    options = merged(exchange, params.options)
    request = Request(
        prompt=FimPrompt(params.prefix, params.suffix, params.path, params.language, params.extra),
        max_ms=params.max_ms,
        source="run" if params.path is None else f"file:{params.path}",
    )
    # Without temperature all items would be the same one.
    count = params.n if options.temperature else 1
    with exchange.newest.hold(params.path, exchange):
        results = await asyncio.gather(
            *(
                generate(exchange, replace(request, options=_varied(options, i)), exchange.round)
                for i in range(count)
            )
        )
    texts = dict.fromkeys(result.text for result in results if result.text)
    items = tuple(messages.CompletionItem(secrets.token_hex(8), text) for text in texts)
    return messages.Completions(items, results[0].stats, results[0])


def _varied(options: Options, number: int) -> Options:
    """The options of one of several answers: a seed that was given differs for each."""
    if options.seed is None or number == 0:
        return options
    return replace(options, seed=(options.seed + number) % 2**63)
