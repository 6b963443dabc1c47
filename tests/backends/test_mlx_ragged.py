"""Several sequences of an MLX model share a forward, each with its own draft and its own rollback."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from localspec.backends.base import Backend, Rows, Span

pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
from tests.backends.test_mlx import load  # noqa: E402

TOLERANCES = {"qwen3": 1e-5, "gpt-oss": 1e-4, "qwen3, 8-bit cells": 0.05}
"""largest difference of logits from those of a sequence alone: rows are summed in other pieces"""
ROUNDS, SEQUENCES, LONGEST = 200, 4, 470


class Verified(NamedTuple):
    """One round: whose turn it was, what each drafted, and how much of that was right."""

    rows: list[int]
    spans: list[list[int]]
    right: list[int]


class Conversation:
    """Four texts that grow at random on a backend; it plays the rounds that it is given."""

    def __init__(self, backend: Backend, texts: list[list[int]]) -> None:
        self.backend, self.texts = backend, texts
        self.sequences = [backend.open() for _ in texts]

    def begin(self, i: int, n: int) -> None:
        """Text ``i`` again, from its first ``n`` tokens."""
        self.backend.truncate(self.sequences[i], 0)
        self.backend.forward([Span(self.sequences[i], self.texts[i][:n], 0)])

    def play(self, turn: Verified, *, together: bool) -> list[Rows]:
        """The rows of a round, for each sequence; rejected tokens are rolled back."""
        spans = [
            Span(self.sequences[i], span, len(span)) for i, span in zip(turn.rows, turn.spans, strict=True)
        ]
        found = []
        for batch in [spans] if together else [[span] for span in spans]:
            logits, start = self.backend.forward(batch), 0
            for _, _, rows, _ in batch:
                found.append(logits.rows(start, start + rows))
                start += rows
        for i, span, right in zip(turn.rows, turn.spans, turn.right, strict=True):
            length = self.backend.length(self.sequences[i]) - len(span) + 1 + right
            assert self.backend.truncate(self.sequences[i], length) == length
        return found


def drawn(rng: random.Random, texts: list[list[int]], held: list[int]) -> Verified:
    """Two to four sequences, drafts of up to five tokens, any of which may be wrong from some token on."""
    rows = sorted(rng.sample(range(SEQUENCES), rng.choice((2, 3, 4, 4))))
    spans, rights = [], []
    for i in rows:
        k = rng.randrange(6)
        right = rng.randrange(k + 1)
        text = texts[i][held[i] :]
        spans.append([*text[: right + 1], *(rng.randrange(256) for _ in range(k - right))])
        rights.append(right)
    return Verified(rows, spans, rights)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOLERANCES)
def test_four_sequences_verify_together(name: str, tmp_path: Path) -> None:
    """Every row of ragged rounds is the one that the sequence gets alone; no cell is padding."""
    backend, reference = load(name, tmp_path / "together"), load(name, tmp_path / "alone")
    rng, furthest, seen = random.Random(name), 0.0, 0
    texts = [[rng.randrange(256) for _ in range(500)] for _ in range(SEQUENCES)]
    held = [rng.randrange(3, 60) for _ in texts]
    batch, alone = Conversation(backend, texts), Conversation(reference, texts)
    for i, n in enumerate(held):
        batch.begin(i, n)
        alone.begin(i, n)
    for _ in range(ROUNDS):
        if max(held) > LONGEST:
            i = held.index(max(held))
            held[i] = 5
            batch.begin(i, 5)
            alone.begin(i, 5)
        turn = drawn(rng, texts, held)
        for one, other in zip(batch.play(turn, together=True), alone.play(turn, together=False), strict=True):
            furthest, seen = max(furthest, float(np.abs(one - other).max())), seen + len(one)
        for i, right in zip(turn.rows, turn.right, strict=True):
            held[i] += right + 1
    cells = max(each.arrays()[0].shape[2] for each in backend.attention)
    print(f"{name}: {ROUNDS} rounds, {seen} rows, furthest {furthest:.2g}, {cells} cells a row")
    assert furthest <= TOLERANCES[name] and seen > 4 * ROUNDS
    assert cells <= 512 + 256, "as many as the longest text ever had, and room to grow"
    backend.free()
    reference.free()
