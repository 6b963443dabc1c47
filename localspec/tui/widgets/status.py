"""The line below the prompt: models, speed and the effect of speculation."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from localspec.protocol.messages import Pairing, Placement
from localspec.protocol.options import GRAMMAR, KINDS
from localspec.protocol.requests import Stats
from localspec.tui.conversation import ChatAnswer
from localspec.tui.look import Look
from localspec.wording import count_noun, duration

MODELS = ("draft model", "target")
NAMES = {
    "target": "target",
    **{kind.name: kind.label for kind in sorted(KINDS, key=lambda kind: kind.needs not in MODELS)},
    GRAMMAR.name: GRAMMAR.label,
}
"""names of sources, models first"""


def summary(pairing: Pairing | None, answer: ChatAnswer | None, *, private: bool) -> str:
    """A chat in a line: the models, and the figures of its last answer, if it is the current model's."""
    models = pairing is None or answer is None or answer.model in ("", pairing.target)
    return " · ".join(_parts(pairing, answer if models else None, private=private))


def _parts(pairing: Pairing | None, answer: ChatAnswer | None, *, private: bool) -> Iterator[str]:
    if private:
        yield "private"
    if pairing is not None:
        yield pairing.target
        if pairing.placement is not None:
            yield _placement(pairing.placement)
    if answer is not None and answer.growing:
        yield count_noun(answer.tokens, "token")
        if answer.speed:
            yield f"{answer.speed:.0f} tok/s"
    result = None if answer is None else answer.result
    if answer is not None and result is not None and answer.context:
        yield f"{result.prompt_tokens + result.completion_tokens:,} of {answer.context:,} tokens"
    stats = Stats() if result is None else result.stats
    yield from _figures(stats)
    if pairing is not None:
        names = " + ".join(NAMES.get(name, name) for name, each in stats.proposers.items() if each.drafted)
        yield f"auto: {names}" if names and pairing.proposer == "auto" else pairing.proposer
        if pairing.draft is not None:
            yield f"draft {pairing.draft}"


def _placement(placement: Placement) -> str:
    """``gpu``, ``gpu 6/7``, ``gpu, experts cpu``, ``cpu``."""
    number = f" {placement.layers}/{placement.of}" * (placement.layers < placement.of)
    return (f"gpu{number}" if placement.layers else "cpu") + ", experts cpu" * (placement.cpu_experts > 0)


def _figures(stats: Stats) -> Iterator[str]:
    if stats.decode_tokens_per_s:
        yield f"{stats.decode_tokens_per_s:.0f} tok/s"
    if stats.acceptance_rate is not None:
        yield f"{stats.acceptance_rate:.0%} accepted"
    if stats.time_saved_s is not None and (stats.drafted or GRAMMAR.name in stats.proposers):
        yield f"{duration(abs(stats.time_saved_s))} {'saved' if stats.time_saved_s >= 0 else 'slower'}"
    if stats.speculation_off_reason:
        yield stats.speculation_off_reason


def legend(answer: ChatAnswer | None, look: Look) -> Text:
    """The proposers in the colours of their tokens, each with its share of an answer's tokens, if known."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for source, name in NAMES.items():
        share = f" {answer.sources[source] / answer.tokens:.0%}" if answer and answer.tokens else ""
        line.append("  " if line else "").append(f"{name}{share}", look.sources[source])
    return line
