"""Small random GGUF models with recurrent states, for generated cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.models.model import model_at
from localspec.protocol.requests import EngineConfig
from tests import gguf_parts, random_ggufs
from tests.parity.loaded import SOURCES, TEXTS, loaded_in_turn, quantised
from tests.parity.play import Loaded

N_CTX = 320
WIDE = gguf_parts.Dimensions(width=256, hidden=256, state=32, head=64)
"""sizes that can be quantised by K-quants"""
QUANTISED = {"qwen35 Q8_0": "Q8_0", "qwen35 Q4_K_M": "Q4_K_M"}
MODELS = (*random_ggufs.FAMILIES, *QUANTISED)
HYBRID_TEXTS = replace(TEXTS, bases=tuple(source[:240] for source in SOURCES))


@contextmanager
def loaded_hybrid(name: str, folder: Path) -> Iterator[Loaded]:
    """One of MODELS as the target, and as its own draft: that one is right now and then."""
    architecture, _, _ = name.partition(" ")
    wide = gguf_parts.SMALL if name not in QUANTISED else WIDE
    path = random_ggufs.write_model(folder / f"{architecture}.gguf", architecture, wide)
    if name in QUANTISED:
        path = quantised(path, folder, QUANTISED[name])
    config = EngineConfig(n_ctx=N_CTX, parallel=4, threads=1)
    load = partial(LlamaCppBackend, model_at(path), config)
    with loaded_in_turn(load, partial(load, drafts=True)) as both:
        yield both
