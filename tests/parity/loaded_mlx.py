"""Small random MLX models of every kind of cache, for generated cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from hypothesis import strategies as st

from localspec.backends.mlx.backend import MlxBackend
from localspec.models.model import model_at
from localspec.protocol.requests import EngineConfig
from tests.mlx_models import FAMILIES, write_model
from tests.parity.cases import Texts
from tests.parity.loaded import SOURCES, loaded_in_turn
from tests.parity.play import Loaded

N_CTX = 448
"""more than a window and what it keeps for rollbacks, so that its cells are used again"""
QUANTISED: dict[str, Literal[0, 4, 8]] = {"qwen3, 8-bit cells": 8, "qwen3, 4-bit cells": 4}
MODELS = (*FAMILIES, *QUANTISED)
TEXTS = Texts(
    bases=(SOURCES[0][:40], SOURCES[1][:90], SOURCES[2][:300], SOURCES[3][:330]),
    tails=st.sampled_from(["", "\n", " return", "\n    def ", "# é\n", "x = [1, 2, 3]\nx = [1, 2,"]),
    stops=st.text("abcé", min_size=1, max_size=2),
    chunks=(16, 100, 256),
    max_tokens=(1, 12, 24, 40, None),
)


@contextmanager
def loaded_mlx(name: str, folder: Path) -> Iterator[Loaded]:
    """One of MODELS as the target, and as its own draft: that one is right now and then."""
    path = write_model(name.split(",")[0], folder)
    config = EngineConfig(n_ctx=N_CTX, parallel=4, kv_bits=QUANTISED.get(name, 0))
    load = partial(MlxBackend, model_at(path), config)
    with loaded_in_turn(load, load) as both:
        yield both
