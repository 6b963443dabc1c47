"""One model on two backends: the same conversation gives the same greedy text.

Both compute in half precision, in orders of their own, so logits differ a little: where the best two
tokens are nearer to each other than that, either may win.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from localspec.backends.base import Backend, Rows, Span, top_margin
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.engine.prompt import PromptEncoder
from localspec.models.catalogue import bundled_model
from localspec.models.model import model_at
from localspec.protocol.requests import EngineConfig
from tests.parity.prompts import prompts
from tests.slow.share import share

pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
from localspec.backends.mlx.backend import MlxBackend  # noqa: E402
from tests.mlx_pair import mlx_model

CONFIG = EngineConfig(n_ctx=1024, parallel=2, threads=1)
NAMES = ("stdlib-6m", "stdlib-1m")
PROBES, TOKENS = 2, 40
SAFETY = 2.0
"""as in localspec.backends.base: a few rows do not show the worst"""


class Both(NamedTuple):
    """One model, loaded twice."""

    gguf: Backend
    mlx: Backend


class Agreement:
    """Counts over many tokens."""

    def __init__(self) -> None:
        self.clear = self.near = self.swapped = self.texts = self.equal_texts = 0


@pytest.fixture(scope="module", params=NAMES)
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    pair = Both(
        LlamaCppBackend(model_at(bundled_model(request.param)), CONFIG),
        MlxBackend(model_at(mlx_model(request.param)), CONFIG),
    )
    yield pair
    for backend in pair:
        backend.free()


def steps(pair: Both, tokens: list[int], n: int) -> Iterator[tuple[Rows, Rows]]:
    """The rows of both behind ``tokens`` and the answer's first ``n``, which the first backend chooses."""
    opened = [backend.open() for backend in pair]
    for at in range(0, len(tokens), 256):
        piece = tokens[at : at + 256]
        found = [b.forward([Span(s, piece, 1)]).rows(0, 1)[0] for b, s in zip(pair, opened, strict=True)]
    ends = pair.gguf.vocabulary.end_tokens
    for _ in range(n):
        yield found[0], found[1]
        token = int(found[0].argmax())
        if token in ends:
            break
        found = [b.forward([Span(s, [token], 1)]).rows(0, 1)[0] for b, s in zip(pair, opened, strict=True)]
    for backend, sequence in zip(pair, opened, strict=True):
        backend.close(sequence)


def encoded(pair: Both, number: int) -> list[list[int]]:
    """Prompts as each backend encodes them, which must be alike."""
    one, other = (
        [PromptEncoder(b.vocabulary, CONFIG.n_ctx).encode(p, TOKENS) for p in prompts(number)] for b in pair
    )
    assert one == other
    return [each.tokens for each in one]


def test_the_vocabularies_are_one(both: Both) -> None:
    one, other = (backend.vocabulary for backend in both)
    assert (one.size, one.bos, one.eos, one.fim) == (other.size, other.bos, other.eos, other.fim)
    assert (one.end_tokens, one.special_tokens) == (other.end_tokens, other.special_tokens)
    assert one.chat_template == other.chat_template
    for token in range(one.size):
        assert (one.piece(token), one.text_of(token)) == (other.piece(token), other.text_of(token))
    for text in (Path(__file__).read_text(encoding="utf-8"), "naïve 🙂\t\r\n <|im_end|> x", " \ud800"):
        for special in (True, False):
            assert one.encode(text, special=special) == other.encode(text, special=special)


def agreement(pair: Both, number: int) -> tuple[Agreement, float]:
    """Compares token by token; raises where a token that was clearly the best on one is not on the other."""
    said, bound = Agreement(), 0.0
    for i, tokens in enumerate(encoded(pair, number)):
        before = said.swapped
        for one, other in steps(pair, tokens, TOKENS):
            if i < PROBES:
                bound = max(bound, SAFETY * float(np.abs(one - other).max()))
                continue
            same = int(one.argmax()) == int(other.argmax())
            if top_margin(one) > bound:
                said.clear += 1
                assert same, f"a margin of {top_margin(one):.3f} was lost; {bound:.3f} is the difference"
            else:
                said.near += 1
                said.swapped += not same
        said.texts += i >= PROBES
        said.equal_texts += i >= PROBES and said.swapped == before
    return said, bound


def check(pair: Both, number: int) -> None:
    said, bound = agreement(pair, number)
    print(
        f"{pair.mlx.model}: {said.equal_texts} of {said.texts} texts equal, {said.clear} tokens clear, "
        f"{said.near} within {bound:.3f}, {said.swapped} of them swapped"
    )
    assert said.clear > 10 * said.near and said.equal_texts > 0.8 * said.texts


@pytest.mark.slow
def test_greedy_text_is_the_same_on_both(both: Both) -> None:
    check(both, share(104))
