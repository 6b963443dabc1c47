"""MLX models obey the contract, whatever kinds of caches they have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from localspec.backends.base import Backend
from localspec.models.model import model_at
from localspec.protocol.requests import EngineConfig
from tests.conformance.backend import BackendConformance
from tests.mlx_models import FAMILIES, write_model

pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
from localspec.backends.mlx.backend import MlxBackend  # noqa: E402
from tests.mlx_pair import mlx_model

SMALL = EngineConfig(n_ctx=512, parallel=4, prefill_chunk=16)
MODELS = {name: (name, 0) for name in FAMILIES} | {f"qwen3, {n}-bit cells": ("qwen3", n) for n in (8, 4)}
SLOW = "qwen3, 4-bit cells"


def load(name: str, folder: Path) -> MlxBackend:
    """One of MODELS."""
    family, bits = MODELS[name]
    config = msgspec.structs.replace(SMALL, kv_bits=bits)
    return MlxBackend(model_at(write_model(family, folder)), config)


class TestFamilies(BackendConformance):
    tolerance = 2e-3
    far = 300

    @pytest.fixture(
        scope="class",
        params=[pytest.param(name, marks=[pytest.mark.slow] * (name == SLOW)) for name in MODELS],
    )
    @classmethod
    def shared(
        cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Backend]:
        backend = load(request.param, tmp_path_factory.mktemp("model"))
        yield backend
        backend.free()

    def keeps(self, backend: Backend) -> bool:
        # Marks are for states; chunks that were left behind are gone.
        return not backend.capabilities.replays and backend.model != "llama4"


class TestBundled(BackendConformance):
    # Half precision: a row depends a little on how many stand beside it.
    tolerance = 0.1

    @classmethod
    def make(cls) -> Backend:
        return MlxBackend(model_at(mlx_model("stdlib-1m")), SMALL)
