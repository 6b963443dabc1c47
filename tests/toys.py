"""Toy models with a will of their own, and engines around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.engine.engine import Engine
from localspec.engine.sequence import Sequence as Running
from localspec.protocol.options import Options
from localspec.protocol.requests import Request, Result, Stats, TextPrompt
from localspec.speculation.proposer import Proposer
from tests.toy import END, Rule, ToyBackend, ToyVocabulary, markov


def scripted(*texts: bytes) -> Rule:
    """A model that continues the start of one of ``texts`` with its rest, then ends."""

    def rule(context: Sequence[int]) -> list[float]:
        said = bytes(token for token in context if token < 256)
        logits = [0.0] * ToyVocabulary.size
        following = END
        for text in texts:
            if len(said) < len(text) and text.startswith(said):
                following = text[len(said)]
        logits[following] = 50.0
        return logits

    return rule


def small_markov(seed: int, *, order: int = 2, letters: int = 6, sharpness: float = 1.0) -> Rule:
    """A rule over few letters, so that texts repeat and drafts are sometimes right; ends now and then."""
    base = markov(seed=seed, order=order, temperature=1 / sharpness, size=letters + 1)

    def rule(context: Sequence[int]) -> list[float]:
        logits = [-1e9] * ToyVocabulary.size
        *chosen, end = base(context)
        logits[97 : 97 + letters] = chosen
        logits[END] = end - 2.0
        return logits

    return rule


def coarse(rule: Rule, grain: float) -> Rule:
    """The same in steps of ``grain``, so that many rows have more than one best token."""

    def rounded(context: Sequence[int]) -> list[float]:
        return [grain * round(logit / grain) for logit in rule(context)]

    return rounded


def respelt(rule: Rule, alphabet: bytes) -> Rule:
    """The same with other bytes for the letters from ``a`` on: such as make characters together."""

    def spelt(context: Sequence[int]) -> list[float]:
        logits = [-1e9] * ToyVocabulary.size
        scores = rule(context)
        logits[END] = scores[END]
        for i, byte in enumerate(alphabet):
            logits[byte] = scores[97 + i]
        return logits

    return spelt


def toy_engine(
    rule: Rule, *, proposers: Sequence[Proposer] = (), draft: Rule | None = None, n_ctx: int = 256
) -> Engine:
    return Engine(
        ToyBackend(rule, n_ctx=n_ctx),
        ToyBackend(draft, n_ctx=n_ctx) if draft is not None else None,
        proposers=proposers,
    )


def share_always(engine: Engine) -> Engine:
    """From now on all requests that may share a round do, whatever rows cost on this machine."""
    engine._scheduler._seconds = lambda sequences: 1.0  # type: ignore[method-assign]
    return engine


def request(text: str, **options: Any) -> Request:
    """Return a raw prompt with options; the seed is 1 unless a seed or a temperature is given."""
    if "temperature" not in options:
        options.setdefault("seed", 1)
    return Request(prompt=TextPrompt(text), options=Options(**options))


def result_of(stats: Stats, **changes: Any) -> Result:
    """A result of the model ``m``, for what shows or counts it."""
    values: dict[str, Any] = {"text": "x", "finish_reason": "stop", "model": "m", "draft": None}
    values |= {"backend": "toy", "prompt_tokens": 1, "cached_tokens": 0, "completion_tokens": 1}
    return Result(**values | changes, stats=stats)


def run_all(engine: Engine, running: Sequence[Running]) -> None:
    """Step until every request has ended."""
    while not all(sequence.ended for sequence in running):
        engine.step()
    engine.step()


def rested(engine: Engine, limit: int = 2000) -> int:
    """Let the engine do all that can wait; how many steps that took."""
    for step in range(limit):
        if not engine.rest():
            return step
    raise AssertionError("the chores do not end")


def answer(sequence: Running) -> list[int]:
    return sequence.tokens[sequence.prompt_length :]
