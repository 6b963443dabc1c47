"""Loading MLX models, and the name of the device that MLX uses."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable
from importlib import metadata
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from localspec.backends.mlx.lm import _get_classes, maybe_set_recommended_wired_limit
from localspec.backends.mlx.lm import load_model as load_mlx
from localspec.errors import EngineError, ModelInvalid, OutOfMemory
from localspec.models.directory import ModelDirectory, number_of

CONNECT_S = 10
"""seconds in which all ranks must connect, which they begin at once"""
PIECES = 40
"""number of pieces in which weights are read and progress is reported"""


def version() -> str:
    return metadata.version("mlx")


def is_on_gpu() -> bool:
    return bool(mx.default_device().type == mx.DeviceType.gpu)


def device() -> str:
    """The device that MLX computes on, for display: ``Apple M3 Max (gpu)``, ``cpu``."""
    if not is_on_gpu():
        return "cpu"
    return f"{mx.device_info().get('device_name', '')} (gpu)".strip()


def ring(rank: int, hosts: list[list[str]]) -> Any:
    """Connect to the other ranks by the addresses of all, and wait for them; once in a process. Raises
    :class:`EngineError`; if they do not come this process is ended by SIGALRM."""
    # Without a name, as this process may be ended at any time.
    with tempfile.TemporaryFile("w+") as file:
        json.dump(hosts, file)
        file.seek(0)
        os.environ |= {"MLX_RANK": str(rank), "MLX_HOSTFILE": f"/dev/fd/{file.fileno()}"}
        # MLX would wait for ever, and no thread runs meanwhile.
        signal.alarm(CONNECT_S)
        try:
            return mx.distributed.init(backend="ring", strict=True)
        except RuntimeError as error:
            raise EngineError(
                f"the machines could not be connected by {hosts}: {sentence(error)}",
                "Let these addresses through the firewalls of both machines.",
            ) from None
        finally:
            signal.alarm(0)


def check_divides(directory: ModelDirectory, ranks: int) -> None:
    """Raise :class:`ModelInvalid` if a model cannot be shared by this number of ranks."""
    name, remedy = directory.path.name, "Use fewer nodes, or another model."
    try:
        shards = hasattr(_get_classes(dict(directory.config))[0], "shard")
    except Exception as error:
        # A wrong name or type can lead to any exception in mlx-lm.
        raise ModelInvalid(f"mlx-lm cannot load {directory.path}: {sentence(error)}") from None
    if not shards:
        raise ModelInvalid(f"mlx-lm cannot divide models of type {directory.architecture}: {name}", remedy)
    for key in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        number = number_of(directory.config, key)
        if number and number % ranks:
            raise ModelInvalid(f"{name} has {key} = {number}, not divisible by {ranks} machines", remedy)


def load_model(
    directory: ModelDirectory, progress: Callable[[float], None] | None = None, group: Any = None
) -> Any:
    """Load the model, or this rank's share of it, and read its weights into memory; never run code from the
    directory. Raises :class:`ModelInvalid` with mlx-lm's reason, :class:`OutOfMemory`."""
    try:
        model = load_mlx(directory.path, lazy=True, trust_remote_code=False)[0]
        if group is not None:
            model.shard(group)
        _read_weights(model, progress or (lambda fraction: None))
        return model
    except MemoryError:
        raise OutOfMemory(f"{directory.path} does not fit into memory") from None
    except Exception as error:
        # A wrong shape, key or type can lead to any exception in mlx-lm.
        raise ModelInvalid(
            f"mlx-lm cannot load {directory.path}: {sentence(error)}",
            "Give a complete MLX model directory of an architecture that mlx-lm supports.",
        ) from None


def _read_weights(model: Any, progress: Callable[[float], None]) -> None:
    """Read the weights, which are lazy so far, some of them at a time."""
    arrays = [array for _, array in tree_flatten(model.parameters())]
    total, done, piece = sum(array.nbytes for array in arrays), 0, list[mx.array]()
    for array in arrays:
        piece.append(array)
        done += array.nbytes
        if sum(each.nbytes for each in piece) >= total // PIECES:
            mx.eval(piece)
            progress(done / total)
            piece = []
    mx.eval(piece)


def sentence(error: Exception) -> str:
    """The text of an error in one line of at most 300 characters, longer ones with an ellipsis."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]} …"


class Wired:
    """Keeps a model's memory from being swapped out on Apple silicon, as mlx-lm does while it generates."""

    def __init__(self) -> None:
        self._before = maybe_set_recommended_wired_limit() if mx.metal.is_available() else None

    def release(self) -> None:
        """Set the limit of wired memory back."""
        if self._before is not None:
            mx.synchronize()
            mx.set_wired_limit(self._before)
            self._before = None
