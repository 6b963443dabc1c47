"""Models for generated cases: the bundled ones, quantisations of them, and small random recurrent ones."""

from __future__ import annotations

import ctypes
import inspect
import math
import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import llama_cpp.llama_cpp as lib
from hypothesis import strategies as st

from localspec.backends.base import Backend, measure_rounding, set_rounding
from localspec.backends.llama_cpp import native
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.models.catalogue import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.models.model import model_at
from localspec.protocol.requests import EngineConfig
from tests import random_ggufs
from tests.parity.cases import Texts
from tests.parity.play import Loaded

N_CTX, LONG_CTX = 320, 640
LONG = " at length"
"""behind more than 256 cells, with two threads: there the kernels of attention are others"""
MODELS = (
    *("F16", "Q8_0", "Q4_0", "Q4_K_M", "draft as target"),
    *(name + LONG for name in ("F16", "Q8_0", "Q4_K_M")),
)

SOURCES = tuple(
    inspect.getsource(function)
    for function in (textwrap.fill, textwrap.TextWrapper._wrap_chunks, inspect.getdoc, inspect.cleandoc)
)
TEXTS = Texts(
    bases=tuple(source[:700] for source in SOURCES),
    tails=st.sampled_from(["", "\n", " return", "\n    def ", "# é\n", "x = [1, 2, 3]\nx = [1, 2,"]),
    stops=st.sampled_from(["\n\n", "self.", "):\n", " = ", "return", "zzz"]),
    chunks=(16, 32, 100, 256),
    max_tokens=(1, 12, 24, 24, 40, None),
)


LONG_TEXTS = replace(TEXTS, bases=tuple((source * 3)[:1800] for source in SOURCES))


def texts_of(name: str) -> Texts:
    """Return the texts for prompts of one of MODELS."""
    return LONG_TEXTS if name.endswith(LONG) else TEXTS


def quantised(source: Path, folder: Path, name: str) -> Path:
    """A copy in another precision; takes about a tenth of a second."""
    params = lib.llama_model_quantize_default_params()
    params.ftype = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{name}")
    params.nthread = 1
    native.initialise()
    path = folder / f"{name}.gguf"
    code = lib.llama_model_quantize(os.fsencode(source), os.fsencode(path), ctypes.byref(params))
    assert code == 0
    return path


def measured(backend: Backend) -> None:
    """Probed to the end, as an idle engine does, however busy the machine is."""
    if not backend.capabilities.obstacle:
        found = measure_rounding(backend, within_s=math.inf)
        assert found is not None
        set_rounding(backend, found)


@contextmanager
def loaded_in_turn(*loads: Callable[[], Backend]) -> Iterator[Loaded]:
    """A target and its draft, loaded one after the other, and freed at the end."""
    with ExitStack() as stack:
        models = []
        for load in loads:
            models.append(load())
            stack.callback(models[-1].free)
        measured(models[0])
        yield Loaded(*models)


@contextmanager
def loaded(name: str, folder: Path, *, parallel: int = 4) -> Iterator[Loaded]:
    """One of MODELS, with a draft model."""
    target, draft = bundled_model(BUNDLED_TARGET), bundled_model(BUNDLED_DRAFT)
    if name == "draft as target":
        target, draft = draft, target
    elif not name.startswith("F16"):
        target = quantised(target, folder, name.removesuffix(LONG))
    config = EngineConfig(n_ctx=N_CTX, parallel=parallel, threads=1)
    if name.endswith(LONG):
        config = EngineConfig(n_ctx=LONG_CTX, parallel=parallel, threads=2)
    load = partial(LlamaCppBackend, config=config)
    with loaded_in_turn(partial(load, model_at(target)), partial(load, model_at(draft))) as both:
        yield both


WIDE = random_ggufs.Dimensions(width=256, hidden=256, state=32, head=64)
"""sizes that can be quantised by K-quants"""
QUANTISED = {"qwen35 Q8_0": "Q8_0", "qwen35 Q4_K_M": "Q4_K_M"}
HYBRIDS = (*random_ggufs.FAMILIES, *QUANTISED)
HYBRID_TEXTS = replace(TEXTS, bases=tuple(source[:240] for source in SOURCES))


@contextmanager
def loaded_hybrid(name: str, folder: Path) -> Iterator[Loaded]:
    """One of HYBRIDS as the target, and as its own draft: that one is right now and then."""
    architecture, _, _ = name.partition(" ")
    wide = random_ggufs.SMALL if name not in QUANTISED else WIDE
    path = random_ggufs.write_model(folder / f"{architecture}.gguf", architecture, wide)
    if name in QUANTISED:
        path = quantised(path, folder, QUANTISED[name])
    config = EngineConfig(n_ctx=N_CTX, parallel=4, threads=1)
    load = partial(LlamaCppBackend, model_at(path), config)
    with loaded_in_turn(load, partial(load, drafts=True)) as both:
        yield both
