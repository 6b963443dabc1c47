"""Strict texts over whatever earlier requests left in the cache: byte for byte those of a cold cache."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localspec.backends.base import Backend, Span
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.engine.engine import Engine
from localspec.models.catalogue import BUNDLED_TARGET, bundled_model
from localspec.models.model import model_at
from localspec.protocol.options import Options
from localspec.protocol.requests import EngineConfig, FimPrompt, Prompt, Request, TextPrompt
from tests.parity.loaded import SOURCES, measured, quantised
from tests.parity.loaded_mlx import loaded_mlx
from tests.parity.play import emptied
from tests.toy import ToyBackend, ToyLogits
from tests.toys import answer, run_all, small_markov

STRICT: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0, "exactness": "strict"},
    {"temperature": 0.8, "seed": 7, "top_p": 0.9, "exactness": "strict"},
)
CODE = "".join(SOURCES)


class History:
    """Prompts that begin alike: starts of one text, continued answers, edits, gaps, hasty requests."""

    def __init__(self, seed: int, text: str, longest: int) -> None:
        self._rng = random.Random(seed)
        self._text, self._longest = text, longest
        self._said = ""

    def next(self) -> tuple[Prompt, dict[str, Any]]:
        rng = self._rng
        options = dict(rng.choice(STRICT)) | {"max_tokens": rng.choice((1, 5, 12))}
        if rng.random() < 0.15:
            options["exactness"] = "auto"
        options["proposer"] = rng.choice(("none", "prompt-lookup", "auto"))
        kind, end = rng.random(), rng.randrange(1, self._longest)
        if kind < 0.15:
            return FimPrompt(self._text[: end // 2], self._text[end // 2 + 5 : end]), options
        if kind < 0.5 and self._said:
            start = self._said[: self._longest]
            return TextPrompt(start + rng.choice(("", " and", "\n# then\n", self._text[:200]))), options
        tail = rng.choice(("", "", "x", "\n    return", self._text[40:160]))
        return TextPrompt(self._text[:end] + tail), options

    def heard(self, prompt: Prompt, text: str) -> None:
        if isinstance(prompt, TextPrompt):
            self._said = prompt.text + text


def asked(engine: Engine, prompt: Prompt, options: dict[str, Any]) -> tuple[list[int], int, str]:
    """(the answer's tokens, how many of the prompt's were taken over, the text)."""
    sequence = engine.submit(Request(prompt=prompt, options=Options(**options)))
    run_all(engine, [sequence])
    assert sequence.error is None
    return answer(sequence), sequence.cached, sequence.text.text


def divergences(warm: Engine, cold: Backend, history: History, n: int) -> tuple[int, int]:
    """(texts that differ, tokens taken over) of ``n`` requests."""
    wrong = taken = 0
    for _ in range(n):
        prompt, options = history.next()
        spoken, cached, text = asked(warm, prompt, options)
        history.heard(prompt, text)
        taken += cached
        if options["exactness"] == "auto":
            continue
        reference = Engine(emptied(cold), config=EngineConfig(prefill_chunk=256))
        expected, none, _ = asked(reference, prompt, options | {"proposer": "none"})
        assert none == 0
        wrong += spoken != expected
    return wrong, taken


class Tiled(ToyBackend):
    """Rounds as ggml's kernels do: forwards of 64 tokens and more in tiles, K-quants' rows by eights."""

    def __init__(self, seed: int, *, row_by_row: bool) -> None:
        super().__init__(small_markov(seed, sharpness=0.3), n_ctx=2048, max_sequences=3)
        self._row_by_row = row_by_row
        self.make_noisy(0.2)

    def forward(self, batch: Seq[Span]) -> ToyLogits:
        self._width = sum(len(span.tokens) for span in batch)
        return super().forward(batch)

    def _append(self, span: Span, *, wide: bool) -> Any:
        width = self._width
        step = 64 if width >= 64 else 1 if self._row_by_row else 8
        kind = (min(width, step) if width % step == 0 else 1000 + width) * (step > 1)
        return super()._append(span, wide=kind)  # type: ignore[arg-type]


class Apart(Tiled):
    """Computes the row of a wide piece in a forward of its own, as MLX does."""

    def forward(self, batch: Seq[Span]) -> ToyLogits:
        sequence, tokens, rows, _ = batch[0]
        headless = len(tokens) - rows
        if rows and headless >= 32 and len(batch) == 1:
            super().forward([Span(sequence, tokens[:headless], 0)])
            batch = [Span(sequence, tokens[headless:], rows)]
        return super().forward(batch)


@pytest.mark.parametrize("length", [255, 256, 257, 512])
def test_a_prompt_that_gave_a_row_lends_what_a_longer_one_writes(length: int) -> None:
    text, kinds = "abcabcabdabcfed" * 60, []
    for starts in ((length, 600), (600,)):
        backend = Apart(0, row_by_row=False)
        measured(backend)
        engine = Engine(backend)
        for end in starts:
            options = STRICT[0] | {"max_tokens": 1, "proposer": "none"}
            _, taken, _ = asked(engine, TextPrompt(text[:end]), options)
        assert len(starts) == 1 or taken == (length - 1) // 256 * 256
        (slot,) = (cached.slot for cached in engine._prefixes.kept if len(cached.tokens) >= 600)
        kinds.append(json.loads(backend.save(slot))[1][:600])
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("row_by_row", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_toys_that_round_by_tiles(seed: int, row_by_row: bool) -> None:
    warm, cold = (Tiled(seed, row_by_row=row_by_row) for _ in range(2))
    for each in (warm, cold):
        measured(each)
    draft = ToyBackend(small_markov(seed + 1), n_ctx=2048, max_sequences=3)
    with Engine(warm, draft) as engine:
        wrong, taken = divergences(engine, cold, History(seed, "abcabcabdabcfed" * 60, 700), 25)
    assert wrong == 0 and taken > 500


@contextmanager
def target(name: str, folder: Path) -> Iterator[LlamaCppBackend]:
    """A quantisation of the bundled model, probed to the end, with one thread."""
    source = bundled_model(BUNDLED_TARGET)
    made = folder / f"{name}.gguf"
    path = source if name == "F16" else made if made.exists() else quantised(source, folder, name)
    backend = LlamaCppBackend(model_at(path), EngineConfig(n_ctx=768, parallel=3, threads=1))
    try:
        measured(backend)
        yield backend
    finally:
        backend.free()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["F16", "Q8_0", "Q4_K_M", "Q4_0"])
def test_llama_cpp(name: str, tmp_path: Path) -> None:
    with target(name, tmp_path) as warm, target(name, tmp_path) as cold:
        check(warm, None, cold, range(12), 25)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3", "qwen3, 8-bit cells"])
def test_mlx(name: str, tmp_path: Path) -> None:
    with loaded_mlx(name, tmp_path) as one, loaded_mlx(name, tmp_path) as other:
        check(one.target(), one.draft(), other.target(), range(8), 25)


def check(warm: Backend, draft: Backend | None, cold: Backend, seeds: Seq[int], n: int) -> None:
    """No text of the histories differs."""
    longest = warm.capabilities.n_ctx - 300
    wrong = taken = 0
    for seed in seeds:
        engine = Engine(emptied(warm), None if draft is None else emptied(draft))
        found = divergences(engine, cold, History(seed, CODE[seed * 31 :], longest), n)
        wrong, taken = wrong + found[0], taken + found[1]
    print(f"{len(seeds) * n} requests, {taken} tokens taken over, {wrong} divergences")
    assert wrong == 0 and taken > 0
