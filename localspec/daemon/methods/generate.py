"""Methods of generations without a session, and of streams that are resumed."""

from __future__ import annotations

from localspec.daemon.daemon import Daemon
from localspec.daemon.methods.generation import generate, merged
from localspec.daemon.relay.exchange import Exchange
from localspec.errors import InvalidOptions
from localspec.protocol import messages
from localspec.protocol.requests import ChatPrompt, Message, Prompt, Request, TextPrompt, TokenPrompt
from localspec.protocol.results import Result
from localspec.protocol.sessions import StreamResume


async def generate_text(daemon: Daemon, exchange: Exchange, params: messages.Generate) -> Result:
    request = Request(
        prompt=_prompt(params),
        options=await merged(daemon, params.options),
        max_ms=params.max_ms,
        max_prompt_ms=params.max_prompt_ms,
        max_predict_ms=params.max_predict_ms,
        progress=params.progress,
    )

    # Without a session the answer of a lost client is of no use: it is cancelled.
    return await daemon.streams.run(exchange, lambda stream: generate(daemon, stream, request))


async def resume(daemon: Daemon, exchange: Exchange, params: StreamResume) -> Result:
    stream = daemon.streams.find(params.stream)
    return await stream.follow(exchange, params.after_seq)


def _prompt(params: messages.Generate) -> Prompt:
    if [params.prompt, params.tokens, params.messages].count(None) != 2:
        raise InvalidOptions(
            "exactly one of prompt, tokens and messages must be given", "Give one, and drop the others."
        )
    if params.tokens is not None:
        return TokenPrompt(params.tokens)
    if params.prompt is not None:
        if params.raw:
            return TextPrompt(params.prompt)
        return ChatPrompt((Message("user", params.prompt),), variables=params.variables)
    if not params.messages:
        raise InvalidOptions("messages is empty", "Give at least one message.")
    if params.raw:
        raise InvalidOptions(
            "raw cannot be combined with messages, which need the chat template",
            "Drop raw, or give a prompt.",
        )
    if params.prefilled and params.messages[-1].role != "assistant":
        raise InvalidOptions(
            "prefilled needs a message of the assistant at the end of messages",
            "End `messages` with an assistant message, or drop prefilled.",
        )
    return ChatPrompt(params.messages, params.prefilled, params.variables)
