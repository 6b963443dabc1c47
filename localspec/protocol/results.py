"""The results of a request: tokens with their source, the result and its statistics."""

from __future__ import annotations

from typing import Literal

import msgspec

from localspec.protocol.requests import ToolCall

FinishReason = Literal["stop", "stop_string", "length", "context_full", "cancelled", "deadline", "tool_calls"]


class Likely(msgspec.Struct, frozen=True):
    """A token that was probable at a position, and its bytes (base64 on the wire)."""

    id: int
    piece: bytes
    logprob: float


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """One token of the answer.

    ``source`` is ``"target"`` or the name of the proposer whose draft was accepted. ``chars`` is the number
    of code points of the delta's text that this token ends: 0 inside a character. ``top``: the most probable
    tokens at its position, the most probable first, as many as ``top_logprobs``.
    """

    id: int
    source: str
    chars: int
    logprob: float | None = None
    top: tuple[Likely, ...] = ()


class ProposerStats(msgspec.Struct):
    """One proposer's share of a request; ``seconds`` is time spent proposing."""

    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0


class Stats(msgspec.Struct, kw_only=True):
    """Statistics of speculation for one request.

    ``accepted / drafted`` is token-weighted; ``tokens_per_round`` counts rounds without a draft
    too. ``exactness``, at temperature 0 or with a seed: ``exact`` if the text is that of plain
    decoding with the same option; ``near-ties`` if ``rounded_tokens`` of it were chosen from rows
    that may be rounded otherwise, so that a near-tie may have been decided otherwise. ``truncated_messages``
    old messages did not fit the context. ``untemplated``: the model has no chat template, and continued the
    plain text of the messages. ``choices`` counts the rounds by proposer, or by the reason for
    no draft. ``time_saved_s`` is the time of plain decoding, at the measured cost of a plain step, less
    the time taken; null until that cost is known, and where it is within 2 % of the time taken and what the
    forwards over drafts deviated from their usual time.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    acceptance_rate: float | None = None
    tokens_per_round: float | None = None
    proposers: dict[str, ProposerStats] = msgspec.field(default_factory=dict)
    k_histogram: dict[int, int] = msgspec.field(default_factory=dict)
    exactness: Literal["exact", "near-ties"] | None = None
    rounded_tokens: int = 0
    lossless: bool = True
    truncated_messages: int = 0
    untemplated: bool = False
    speculation_off_reason: str | None = None
    choices: dict[str, int] = msgspec.field(default_factory=dict)
    time_saved_s: float | None = None
    queued_s: float = 0.0
    ttft_s: float | None = None
    decode_tokens_per_s: float | None = None


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The end of a request: ``run --json``, and the wire's terminal response.

    Of ``prompt_tokens`` the first ``cached_tokens`` were in the KV cache already. ``stop_text``: the one of
    ``stop`` that the model wrote. ``text`` is the answer without the ``thinking`` before it.
    """

    text: str
    finish_reason: FinishReason
    model: str
    draft: str | None
    backend: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    stats: Stats
    stop_text: str | None = None
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
