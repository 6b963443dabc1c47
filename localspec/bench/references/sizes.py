"""The sizes with which localspec's backend runs a model, so that the references use the same."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import llama_cpp.llama_cpp as lib

from localspec.backends.llama_cpp import native
from localspec.models.gguf import read_header
from localspec.protocol.engine_config import EngineConfig

ALL_LAYERS = 999


class Sizes(NamedTuple):
    """``n_ctx`` tokens of one sequence, CPU threads, layers on the GPU."""

    n_ctx: int
    threads: int
    gpu_layers: int


def sizes_of(path: Path, config: EngineConfig) -> Sizes:
    """The sizes for one model; raises what loading it raises."""
    read_header(path)
    model = native.load_model(str(path), config, None)
    try:
        n_ctx, _ = native.sizes(model, config)
        wanted = config.gpu_layers if config.gpu_layers >= 0 else ALL_LAYERS
        return Sizes(n_ctx, native.threads(config, model), wanted if lib.llama_supports_gpu_offload() else 0)
    finally:
        lib.llama_model_free(model)
