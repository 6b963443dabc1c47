"""``python -m localspec.doctor.probe BACKEND``: test that a backend can be loaded and computes.

It runs in a process of its own: native code that was built for another processor, or is broken, ends the
process that loads it. Prints one line of JSON.
"""

from __future__ import annotations

import sys
from importlib import metadata

import msgspec

from localspec.backends.base import Span
from localspec.models.catalogue import BUNDLED_DRAFT, bundled_model
from localspec.models.model import model_at
from localspec.protocol.jsonrpc import shorten
from localspec.protocol.requests import EngineConfig
from localspec.wording import size

CPU, LONGEST = "the CPU", 300
PACKAGES = {"llama_cpp": ("llama_cpp",), "mlx": ("mlx", "mlx_lm", "tokenizers", "transformers")}


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``error``: why the backend cannot be used; ``missing``: True if it is not installed."""

    versions: str = ""
    device: str = ""
    error: str = ""
    missing: bool = False

    @property
    def usable(self) -> bool:
        return not self.error


def look_at(backend: str) -> Report:
    try:
        return _mlx() if backend == "mlx" else _llama_cpp()
    except Exception as error:
        # Whatever a broken installation raises is the result.
        text = shorten(" ".join(str(error).split()) or type(error).__name__, LONGEST)
        lacks = str(error.name).partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        return Report(error=text, missing=lacks in PACKAGES[backend])


def _llama_cpp() -> Report:
    """Compute one token of the bundled draft model."""
    from localspec.backends.llama_cpp import backend, native

    gpus = (f"{gpu.name}, {size(native.free_of(each))} free" for each, gpu in native.list_gpus().items())
    path = bundled_model(BUNDLED_DRAFT)
    if path.exists():  # the check of the bundled models reports a missing one
        model = backend.LlamaCppBackend(model_at(path), EngineConfig(n_ctx=64, parallel=1, threads=1))
        model.forward([Span(model.open(), [0], 1)]).argmax()
        model.free()
    return Report(versions=f"llama-cpp-python {native.version()}", device="; ".join(gpus) or CPU)


def _mlx() -> Report:
    """Import everything that a model is run with, and multiply two matrices."""
    import mlx.core as mx

    from localspec.backends.mlx import backend, native

    mx.eval(mx.ones((8, 8)) @ mx.ones((8, 8)))
    device = native.device()
    versions = f"{backend.MlxBackend.name} {native.version()} with mlx-lm {metadata.version('mlx-lm')}"
    return Report(versions=versions, device=CPU if device == "cpu" else device)


if __name__ == "__main__":
    sys.stdout.write(f"\n{msgspec.json.encode(look_at(sys.argv[1])).decode()}\n")
