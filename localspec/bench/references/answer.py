"""The requests to references, and their answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from localspec.backends.base import Vocabulary
from localspec.engine.prompt import PromptEncoder
from localspec.engine.text import TextStream
from localspec.errors import ContextExceeded
from localspec.protocol.requests import Request


class Question(NamedTuple):
    """A request as tokens, so that all answer exactly the same prompt.

    At temperature 0 the most probable token is taken; else a sample of the whole distribution, from the
    reference's own generator, started with ``seed``.
    """

    tokens: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int
    end_tokens: frozenset[int]
    """tokens that end the answer, and are not part of it"""


class Answer(NamedTuple):
    """One answer. Seconds are the reference's own figures, of the same spans as localspec's."""

    text: str
    tokens: tuple[int, ...]
    """tokens of the answer, without the one that ended it"""
    ttft_s: float
    """seconds from the question to the first token: the prompt's computation"""
    decode_s: float
    """seconds from the first token to the last"""
    decoded: int
    """tokens that ``decode_s`` was spent on: all but the first, with the one that ended the answer
    where the reference counts it"""
    drafted: int = 0
    accepted: int = 0

    @property
    def completion_tokens(self) -> int:
        return len(self.tokens)

    @property
    def tokens_per_s(self) -> float | None:
        """Speed of decoding, the prompt left out; None for an answer of one token."""
        return self.decoded / self.decode_s if self.decoded and self.decode_s else None


class Reference(Protocol):
    """Another project's decoder. Raises :class:`localspec.errors.LocalspecError` where it fails."""

    @property
    def name(self) -> str:
        """The name of the program, with the settings that matter."""

    def fresh(self) -> None:
        """Forget all state of earlier questions, so that the next one is answered like a first one."""

    def answer(self, question: Question) -> Answer:
        """Answer, after computing the whole prompt, without a part kept from earlier questions."""

    def close(self) -> None:
        """Free the model; nothing may be called after this."""


def question_of(request: Request, vocabulary: Vocabulary, n_ctx: int) -> Question:
    """``request`` as localspec's engine encodes it, with greedy decoding where it has no temperature.

    Raises what :meth:`PromptEncoder.encode` does, and :class:`ContextExceeded` for an answer that would
    not fit, as references handle those in different ways.
    """
    options = request.options
    encoded = PromptEncoder(vocabulary, n_ctx).encode(request.prompt, options.max_tokens)
    room = n_ctx - len(encoded.tokens)
    max_tokens = room if options.max_tokens is None else options.max_tokens
    if max_tokens > room:
        raise ContextExceeded(
            f"the prompt has {len(encoded.tokens)} tokens and the answer may have {max_tokens}, "
            f"more than the context of {n_ctx}"
        )
    return Question(
        tuple(encoded.tokens), max_tokens, options.temperature or 0.0, options.seed or 0, encoded.end_tokens
    )


def timed(tokens: Iterable[int], question: Question, vocabulary: Vocabulary) -> Answer:
    """Take the tokens that answer the question from an endless stream.

    The time to the first token counts as the prompt's computation; the token that ends the answer is not
    timed.
    """
    started = time.perf_counter()
    output: list[int] = []
    moments: list[float] = []
    for token in tokens:
        moments.append(time.perf_counter())
        if token in question.end_tokens:
            break
        output.append(token)
        if len(output) == question.max_tokens:
            break
    decoded = max(len(output) - 1, 0)
    return Answer(
        text=text_of(output, vocabulary),
        tokens=tuple(output),
        ttft_s=moments[0] - started,
        decode_s=moments[decoded] - moments[0],
        decoded=decoded,
    )


def text_of(tokens: Sequence[int], vocabulary: Vocabulary) -> str:
    """The text that localspec's engine would return for these tokens."""
    stream = TextStream()
    for token in tokens:
        stream.push(token, vocabulary.piece(token), "target")
    stream.take()
    return stream.text
