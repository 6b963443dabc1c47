"""What memory a model needs, from its headers alone, and what memory there is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from localspec.config import EngineConfig
from localspec.errors import ModelTooLarge
from localspec.models.directory import ModelDirectory, number_of
from localspec.models.gguf import GgufHeader, Tensor
from localspec.models.model import Model
from localspec.units import MB, size

DEFAULT_CTX = 8192
MIN_CTX = 64
CELL_BYTES = {0: 2.0, 8: 34 / 32, 4: 18 / 32}
"""of one number in the cache, by ``kv_bits``"""
PROCESS = 100 * MB
"""bytes of a worker besides its model: Python, numpy, the backend's library"""
ROWS = 256
"""of float32 logits that a forward has room for"""
ROLLBACK = 8
"""tokens that a round can take back of a recurrent model: a state for each, and drafts are rarely longer"""
MARKS = 2
"""copies of a sequence's state, where it can come back to: its prompt's mark, and one beside that"""
STATES_SHARE = 0.125
"""of the free memory, at most, for earlier states"""
ROLLED_BACK = frozenset(
    ("qwen35", "qwen35moe", "qwen4exp", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "kimi-k3")
    + ("deepseek4", "glm5-next", "bailingmoe3")
)
"""architectures of which llama.cpp keeps earlier states (its ``llm_arch_supports_rs_rollback``)"""
CONVOLUTIONS = ("ssm_conv1d", "shortconv.conv")
"""prefixes of the tensors of which a recurrent layer has one, or one each for query, key and value"""
NUMBER = 4
"""bytes of one number of a state"""
MOST = 2**31
"""of a size that a header tells: more is no model's"""
EMBEDDING = "token_embd.weight"
"""the tensor with a row for each token"""
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


class Needs(NamedTuple):
    """Bytes of memory; ``mapped`` of them are pages of files, which count as free while they are used."""

    weights: int = 0
    cells: int = 0
    draft: int = 0
    overhead: int = 0
    mapped: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.cells + self.draft + self.overhead

    def check(self, model: str, free: int) -> None:
        """Raises :class:`ModelTooLarge`, with all numbers, if that is more than ``free`` bytes."""
        if self.total > free:
            raise ModelTooLarge(
                f"{model} needs {size(self.total)} of memory (weights {size(self.weights)}, cells "
                f"{size(self.cells)}, draft {size(self.draft)}, overhead {size(self.overhead)}); "
                f"{size(max(0, free))} are free",
                "Use a smaller model or quantisation, a smaller n_ctx, or unload others: "
                "`localspec models unload`. Where memory_mb is set, more may be allowed.",
            )


class Size(NamedTuple):
    """A model by its headers: bytes of weights, of a cell in all layers, and of a token's logits; whether its
    weights are mapped; bytes of a recurrent state, and whether earlier ones are kept."""

    weights: int
    cell: float
    row: int
    context: int | None
    mapped: bool
    state: int = 0
    rolls_back: bool = False

    def needs(self, draft: Size | None, config: EngineConfig, free: int | None = None) -> Needs:
        """The least that this target needs beside a draft, with as many earlier states as ``free`` bytes have
        room for; None: as many as are of use."""
        sequences = max(1, config.parallel)
        n_cells = context_size(self.context, config) * sequences
        kept = states_kept(self.state, sequences, free) if self.rolls_back else 0
        cells = int(self.cell * n_cells) + (1 + kept + MARKS) * self.state * sequences
        weights, beside = self.weights, 0
        if draft is not None:
            weights += draft.weights
            beside = draft.weights + int(draft.cell * n_cells) + (1 + MARKS) * draft.state * sequences
        mapped = weights if self.mapped else 0
        return Needs(self.weights, cells, beside, PROCESS + ROWS * self.row, mapped)


def needs_of(target: Model, draft: Model | None, config: EngineConfig, free: int | None = None) -> Needs:
    """The least that target and draft need: what the headers do not tell counts as nothing. ``free``: see
    :meth:`Size.needs`.

    Raises :class:`ModelError`.
    """
    beside = None if draft is None else size_of(draft, config)
    return size_of(target, config).needs(beside, config, free)


def states_kept(state: int, sequences: int, free: int | None) -> int:
    """Return the number of earlier recurrent states kept per sequence, at most :data:`ROLLBACK`.

    ``state`` is the size of one and ``free`` the memory available, in bytes; None sets no bound.
    """
    if free is None or not state:
        return ROLLBACK
    return min(ROLLBACK, int(free * STATES_SHARE) // (state * sequences))


def context_size(trained: int | None, config: EngineConfig) -> int:
    """Tokens per sequence: what the configuration says, or else the model's own, within bounds."""
    return config.n_ctx or max(MIN_CTX, min(trained or DEFAULT_CTX, DEFAULT_CTX))


def size_of(model: Model, config: EngineConfig) -> Size:
    """The size that the headers tell of; raises :class:`ModelError`."""
    header = model.header
    if isinstance(header, ModelDirectory):
        return _size_of_directory(header, config)
    return size_of_header(header, config)


def size_of_header(header: GgufHeader, config: EngineConfig) -> Size:
    """The size of a GGUF model."""

    def number(key: str) -> int:
        value = header.of_architecture(key)
        return value if type(value) is int else 0

    heads = number("attention.head_count")
    of_cells = heads
    if f"{header.architecture}.attention.head_count_kv" in header.metadata:
        of_cells = number("attention.head_count_kv")  # a list differs by layer: then nothing is known
    width = number("attention.key_length") or number("embedding_length") // max(1, heads)
    state = _state_bytes(header)
    layers = _cells_of_hybrid(header, of_cells) if state else of_cells * number("block_count")
    cell = 2 * CELL_BYTES[config.kv_bits] * width * layers
    vocabulary = next((t.shape[-1] for t in header.tensors if t.name == EMBEDDING), 0)
    return Size(
        header.file_size,
        cell,
        4 * vocabulary,
        number("context_length") or None,
        mapped=True,
        state=state,
        rolls_back=header.architecture in ROLLED_BACK,
    )


def _state_bytes(header: GgufHeader) -> int:
    """Bytes of a sequence's recurrent state in all layers, as llama.cpp sizes it (``n_embd_r``, ``n_embd_s``
    of its src/llama-hparams.cpp); 0 for a model without one."""
    convolved = {t.name.split(".")[1]: 0 for t in header.tensors if _is_convolution(t)}
    for tensor in filter(_is_convolution, header.tensors):
        convolved[tensor.name.split(".")[1]] += (tensor.shape[0] - 1) * math.prod(tensor.shape[1:])
    head, heads = header.of_architecture("kda.head_dim"), header.of_architecture("attention.head_count")
    inner, size = (header.of_architecture(f"ssm.{key}") for key in ("inner_size", "state_size"))
    matrix = 0
    if _are_numbers(head, heads):
        matrix = head * head * heads
    elif _are_numbers(inner, size):
        matrix = inner * size
    return NUMBER * sum(each + matrix for each in convolved.values())


def _is_convolution(tensor: Tensor) -> bool:
    _, layer, name = (*tensor.name.split(".", 2), "", "")[:3]
    return layer.isdecimal() and name.startswith(CONVOLUTIONS) and name.endswith("weight")


def _are_numbers(*values: object) -> bool:
    return all(type(value) is int and 0 < value <= MOST for value in values)


def _cells_of_hybrid(header: GgufHeader, heads: int) -> int:
    """Heads of keys in all layers of a model of which some layers have no cells."""
    by_layer = header.of_architecture("attention.head_count_kv")
    if isinstance(by_layer, tuple):
        return sum(number for number in by_layer if _are_numbers(number))
    return heads * sum(tensor.name.endswith(".attn_k.weight") for tensor in header.tensors)


def _size_of_directory(model: ModelDirectory, config: EngineConfig) -> Size:
    found = model.config
    heads, hidden = number_of(found, "num_attention_heads"), number_of(found, "hidden_size")
    width = number_of(found, "head_dim") or (hidden or 0) // (heads or 1)
    of_cells = number_of(found, "num_key_value_heads") or 0
    cell = 2 * CELL_BYTES[config.kv_bits] * width * of_cells * _layers_with_all_cells(found)
    return Size(model.size, cell, 4 * (number_of(found, "vocab_size") or 0), model.context, mapped=False)


def _layers_with_all_cells(config: Mapping[str, Any]) -> int:
    """How many layers keep a cell of every token, where that is plain to see."""
    if "kv_lora_rank" in config:
        return 0  # compressed
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return sum(kind == "full_attention" for kind in kinds)
    return number_of(dict(config), "num_hidden_layers") or 0


def free_memory() -> int:
    """Bytes that are there for the taking: this machine's, or what is left to the container."""
    left = _left_to_cgroup(OWN_CGROUP, CGROUPS)
    available = int(psutil.virtual_memory().available)
    return available if left is None else min(available, left)


def _left_to_cgroup(own: Path, root: Path) -> int | None:
    """What the limits of version 2's control groups leave, from our own up to the root; None: no limit."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    name = next((line[3:] for line in lines if line.startswith("0::")), None)
    if name is None:
        return None
    # Where the group's name leads out of what is mounted here, the mounted root is ours.
    group = root / name.lstrip("/")
    groups = [each for each in (group, *group.parents) if each == root or root in each.parents]
    left = [found for each in groups if (found := _left_to(each)) is not None]
    return min(left, default=None)


def _left_to(group: Path) -> int | None:
    try:
        limit, used = int((group / "memory.max").read_text()), int((group / "memory.current").read_text())
        kept = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such file, or "max"
        return None
    # Files that were read are given up for whoever needs the room.
    cached = int(kept.get("active_file", 0)) + int(kept.get("inactive_file", 0))
    return max(0, limit - used + cached)
