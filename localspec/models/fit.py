"""The memory that a model needs, from its headers alone, and the memory that is free.

Also the size of its KV cache, chosen by both: tokens per sequence, and number of sequences; and the builds of
the libraries that run models, and the kind of this machine: a measurement with one does not hold for another.
No library is imported to find them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import platform
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import psutil
from msgspec.structs import replace

from localspec.errors import InvalidOptions, ModelError, ModelTooLarge
from localspec.models.directory import ModelDirectory, number_of
from localspec.models.gguf import EMBEDDING, GgufHeader
from localspec.models.model import Format, Model
from localspec.protocol.requests import EngineConfig
from localspec.wording import MB, size

LIBRARIES: dict[Format, dict[str, str]] = {
    "gguf": {"llama_cpp": "llama-cpp-python"},
    "mlx": {"mlx": "mlx", "mlx_lm": "mlx-lm"},
}
"""the packages that run a format, and the distributions that they come in"""
NATIVE = (".so", ".dylib", ".dll", ".metallib")
DEVICES = re.compile("cuda|hip|vulkan|metal|sycl|musa|cann|opencl", re.IGNORECASE)
"""names of device libraries, as they stand in the names of native libraries"""


def build_for(format: Format) -> str:
    """The builds of the packages that run a format, as one name."""
    return ", ".join(library_build(*each) for each in LIBRARIES[format].items())


@functools.cache
def library_build(package: str, distribution: str) -> str:
    """A name of an installed package's build: its version, and a digest of the names, sizes and times of its
    native libraries, by which builds of one version for a processor and for a GPU differ."""
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        version = "unknown"
    files = sorted(native_files(package))
    return f"{distribution} {version} {hashlib.sha256(repr(files).encode()).hexdigest()[:8]}"


def native_files(package: str) -> Iterator[tuple[str, int, int]]:
    """Name, size in bytes and time of change in ns of every native library of an installed package."""
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in Path(folder).rglob("*"):
            if any(end in path.name for end in NATIVE):
                with contextlib.suppress(OSError):
                    found = path.stat()
                    yield path.name, found.st_size, found.st_mtime_ns


@functools.cache
def has_device_code(format: Format) -> bool:
    """True if the packages that run a format came with libraries for devices, by the libraries' names."""
    files = (name for package in LIBRARIES[format] for name, *_ in native_files(package))
    return any(map(DEVICES.search, files))


@functools.cache
def processor_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the system reports it; Linux does so in a file only."""
    for line in _text(info).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


@functools.cache
def driver(nvidia: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The version of NVIDIA's driver, or of macOS, of which its drivers are a part; empty without either."""
    return (_text(nvidia).splitlines() or [platform.mac_ver()[0]])[0]


def machine_name() -> str:
    """The kind of this machine and its driver, as a key for measurements."""
    return " with ".join(filter(None, (f"{platform.machine()} {processor_name()}", driver())))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


DEFAULT_CTX = 8192
MIN_CTX = 64
LOWER_CTX = (4096, 2048, 1024)
"""contexts that are tried where none is set and the usual one has no room"""
CELL_BYTES = {0: 2.0, 8: 34 / 32, 4: 18 / 32}
"""bytes of one number in the KV cache, by ``kv_bits``"""
MAX_PARALLEL = 4
"""most sequences where none are configured"""
DIVIDED_SEQUENCES = 2
"""most sequences of a model that is divided, where none are configured: each takes layers from the device"""
CELLS_SHARE = 0.5
"""largest size of the cells of all sequences where none are configured, as a share of the weights"""
CELLS_LEAST = 512 * MB
"""bytes of cells that are allowed beside any weights"""
PROCESS = 75 * MB
"""bytes of a worker besides its model: Python, numpy, the backend's library"""
MLX = 45 * MB
"""bytes that MLX and mlx-lm take beyond llama.cpp"""
RING = 25 * MB
"""bytes of a rank for its connections to the others"""
ROWS = 96
"""rows of float32 logits of the size of all that grows with a model: rows, tables of tokens, activations.
Resident after a prompt of 1,800 tokens and 64 of answer: 3 to 6 % more than this for 0.5B and 1.5B"""
ROLLBACK = 8
"""tokens that a round can roll back of a recurrent model: a state for each, and drafts are rarely longer"""
MARKS = 1
"""copies of a sequence's state to return to: that of its prompt"""
STATES_SHARE = 0.125
"""largest share of the free memory for earlier states"""
ROLLED_BACK = frozenset(
    ("qwen35", "qwen35moe", "qwen4exp", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "kimi-k3")
    + ("deepseek4", "glm5-next", "bailingmoe3")
)
"""architectures of which llama.cpp keeps earlier states (its ``llm_arch_supports_rs_rollback``)"""
FIRST_ALONE = frozenset(("glm5-next",))
"""architectures of which llama.cpp computes only the context's first sequence right: in the second one, the
same tokens have logits that differ by more than 1 (random weights, llama.cpp of llama-cpp-python 0.3.36)"""
CONVOLUTIONS = ("ssm_conv1d", "shortconv.conv")
"""prefixes of the tensors of which a recurrent layer has one, or one each for query, key and value"""
NUMBER = 4
"""bytes of one number of a state"""
MOST = 2**31
"""largest size in a header that a model can have"""
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


class Needs(NamedTuple):
    """Bytes of memory for ``sequences`` at once; ``mapped`` of them are pages of files, which count as free
    while they are used."""

    weights: int = 0
    cells: int = 0
    draft: int = 0
    overhead: int = 0
    mapped: int = 0
    sequences: int = 1

    @property
    def total(self) -> int:
        return self.weights + self.cells + self.draft + self.overhead

    def check(self, model: str, free: int) -> None:
        """Raise :class:`ModelTooLarge`, with all numbers, if the total is more than ``free`` bytes."""
        if self.total > free:
            raise ModelTooLarge(
                f"{model} needs {size(self.total)} of memory (weights {size(self.weights)}, KV "
                f"cache {size(self.cells)}, draft {size(self.draft)}, overhead {size(self.overhead)}); "
                f"{size(max(0, free))} are free",
                "Use a smaller model or quantisation, a smaller n_ctx, or unload others: "
                "`localspec models unload`. If memory_mb is set, raise it.",
            )


class Size(NamedTuple):
    """A model by its headers: bytes of the weights that become resident, of a cell in all layers, and of a
    token's logits; bytes of weights that are mapped; bytes of a recurrent state, and whether earlier ones are
    kept; whether a context can have one sequence only."""

    weights: int
    cell: float
    row: int
    context: int | None
    mapped: int = 0
    state: int = 0
    rolls_back: bool = False
    single: bool = False
    whole: int = 0
    """bytes of weights that every machine has where several share a model"""
    process: int = PROCESS
    activations: int = 0
    """on a GPU: bytes of a token in a forward beside its row; 0: the processor's, see :data:`ROWS`"""

    def over(self, machines: int) -> Size:
        """This machine's share of a model over several."""
        shared = self.weights - self.whole
        return self._replace(
            weights=self.whole + shared // machines,
            cell=self.cell / machines,
            process=self.process + RING * (machines > 1),
        )

    def needs(self, draft: Size | None, config: EngineConfig, free: int | None = None) -> Needs:
        """The memory for this target beside a draft, with as many sequences and earlier states as ``free``
        bytes have room for, but at least one sequence; None: as many as are of use."""
        cells = int(self.cell * context_size(self.context, config))
        most = 1 if self.single else config.parallel or preferred_sequences(cells, self.weights)
        least = most if config.parallel else 1
        plans = (self._needs(draft, config, number, free) for number in range(most, least, -1))
        fitting = (plan for plan in plans if free is None or plan.total <= free)
        return next(fitting, None) or self._needs(draft, config, least, free)

    def _needs(self, draft: Size | None, config: EngineConfig, sequences: int, free: int | None) -> Needs:
        n_cells = context_size(self.context, config) * sequences
        kept = states_kept(self.state, sequences, free) if self.rolls_back else 0
        cells = int(self.cell * n_cells) + (1 + kept + MARKS) * self.state * sequences
        more = Needs() if draft is None else self.beside(draft, config, sequences)
        overhead = self.process + self._forward(config, sequences) + more.overhead
        return Needs(self.weights, cells, more.draft, overhead, self.mapped + more.mapped, sequences)

    def _forward(self, config: EngineConfig, sequences: int) -> int:
        """Bytes of the widest forward: on a GPU they are allocated at the load, and rows of logits take the
        place of layers. llama.cpp's buffers are 0.92 to 1.15 of it for 0.1B, 0.5B and 1.5B with one and four
        sequences of 2,048 and 8,192 tokens, and pieces of 256 and 512."""
        if not self.activations:
            return ROWS * self.row
        token = self.activations + MASK * context_size(self.context, config)
        return max(widest_round(sequences) * self.row, widest_forward(config, sequences) * token)

    def beside(self, draft: Size, config: EngineConfig, sequences: int) -> Needs:
        """The memory for a draft model beside this target with so many sequences."""
        each = draft.cell * context_size(self.context, config) + (1 + MARKS) * draft.state
        own = draft.weights + int(each * sequences)
        return Needs(draft=own, overhead=ROWS * draft.row, mapped=draft.mapped)


def needs_of(target: Model, draft: Model | None, config: EngineConfig, free: int | None = None) -> Needs:
    """The memory for target and draft; sizes missing in the headers count as 0. ``free``: see
    :meth:`Size.needs`.

    Raises :class:`ModelError`.
    """
    beside = None if draft is None else size_of(draft, config)
    return share_of(target, config).needs(beside, config, free)


def plan_context(
    target: Model, draft: Model | None, config: EngineConfig, free: int | None
) -> tuple[EngineConfig, Needs]:
    """The settings, with a smaller context if that has room in ``free`` bytes and the usual one has not, and
    the memory for target and draft, which may still be more; raises :class:`ModelError`."""
    for lower in lower_contexts(target, config):
        needs = needs_of(target, draft, lower, free)
        if free is None or needs.total <= free:
            break
    return lower, needs


def needs_beside(target: Model, draft: Model, config: EngineConfig, sequences: int) -> Needs:
    """The memory for a draft model beside a loaded target; nothing where a header cannot be read: the load
    reports it."""
    try:
        return size_of(target, config).beside(size_of(draft, config), config, sequences)
    except ModelError:
        return Needs()


def nodes_of(model: Model, config: EngineConfig) -> tuple[str, ...]:
    """The machines that share this model with this one."""
    return config.nodes if isinstance(model.header, ModelDirectory) else config.rpc


def servers_of(model: Model, config: EngineConfig) -> tuple[str, ...]:
    """The RPC servers that hold layers of this model, which is a GGUF one."""
    return config.rpc if model.format == "gguf" else ()


def share_of(target: Model, config: EngineConfig) -> Size:
    """The size of this machine's share of a target; raises :class:`ModelError`. Before the servers of a GGUF
    model were asked for their memory, each has an equal part of the layers."""
    whole, others = size_of(target, config), len(nodes_of(target, config))
    if isinstance(target.header, ModelDirectory) or not others:
        return whole.over(1 + others)
    return rest_of(target, replace(config, gpu_layers=equal_layers(target, config)))


def equal_layers(target: Model, config: EngineConfig) -> int:
    """The layers of a GGUF model on servers: those that were set, or an equal part for each machine."""
    assert isinstance(target.header, GgufHeader)
    equal = (target.header.layers + 1) * len(config.rpc) // (1 + len(config.rpc))
    return equal if config.gpu_layers < 0 else config.gpu_layers


def rest_of(target: Model, config: EngineConfig) -> Size:
    """The size of what stays with the processor of a GGUF model, by the settings' layers and experts."""
    whole, part = size_of(target, config), part_of(target, config)
    left = max(0, whole.weights - part.weights)
    return whole._replace(weights=left, cell=whole.cell - part.cell, mapped=min(whole.mapped, left))


def part_of(target: Model, config: EngineConfig) -> Size:
    """The size of the last layers of a GGUF model, which the settings put on other devices; the output counts
    as one."""
    whole, header, number = size_of(target, config), target.header, config.gpu_layers
    assert isinstance(header, GgufHeader)
    cell = whole.cell * max(0, min(number - 1, header.layers)) / max(1, header.layers)
    of_experts = _number(header, "expert_used_count") * _number(header, "expert_feed_forward_length")
    wide = max(_number(header, "feed_forward_length"), of_experts, _number(header, "embedding_length"))
    weights = header.bytes_of_last(number, config.cpu_experts)
    return whole._replace(weights=weights, cell=cell, process=0, activations=WIDE * wide)


def device_bytes(model: Model, config: EngineConfig) -> int:
    """Bytes of other devices for a whole GGUF model."""
    config = replace(config, gpu_layers=MOST, cpu_experts=0)
    return part_of(model, config).needs(None, config).total


def divide(target: Model, config: EngineConfig, there: int, here: int) -> EngineConfig:
    """The settings to load a GGUF model with ``there`` bytes of other devices, and ``here`` bytes of this.

    All layers go there, or those that are set, with as many sequences as have room, at least one; otherwise
    the experts of as few layers as possible stay here, then as few layers; last the context is lowered. The
    rest may still be too large for this machine. Raises :class:`ModelTooLarge` if set layers have no room.
    """
    plan = None
    for lower in lower_contexts(target, config):
        for plan in _divisions(target, lower, there):
            if rest_of(target, plan).needs(None, plan, here).total <= here:
                return plan
    if plan is None:
        experts = MOST if lower.cpu_experts < 0 else lower.cpu_experts
        least = replace(lower, parallel=lower.parallel or 1, cpu_experts=experts)
        needed = part_of(target, least).needs(None, least).total
        raise ModelTooLarge(
            f"{config.gpu_layers} layers of {target.name} (gpu_layers) need {size(needed)} of other devices, "
            f"where {size(there)} can be used",
            "Set a smaller gpu_layers, or none: as many as fit.",
        )
    return plan


def lower_contexts(target: Model, config: EngineConfig) -> Iterator[EngineConfig]:
    """The settings, and then those with smaller contexts, if none is set."""
    yield config
    usual = context_size(size_of(target, config).context, config)
    yield from (replace(config, n_ctx=n) for n in LOWER_CTX if not config.n_ctx and n < usual)


def _divisions(target: Model, config: EngineConfig, there: int) -> Iterator[EngineConfig]:
    """The plans of one context that have room in ``there`` bytes of other devices, the best first."""
    header = target.header
    assert isinstance(header, GgufHeader)
    layers = header.layers + 1 if config.gpu_layers < 0 else min(config.gpu_layers, header.layers + 1)
    experts = range(header.layers * header.has_experts + 1)
    if config.cpu_experts >= 0:
        experts = range(config.cpu_experts, config.cpu_experts + 1)
    places = [replace(config, gpu_layers=layers, cpu_experts=number) for number in experts]
    if config.gpu_layers < 0:
        places += [replace(places[-1], gpu_layers=number) for number in range(layers - 1, -1, -1)]
    most = config.parallel or size_of(target, config).needs(None, config).sequences
    numbers = [config.parallel] if config.parallel else [*range(most, 0, -1)]

    def fits(plan: EngineConfig) -> bool:
        return not plan.gpu_layers or part_of(target, plan).needs(None, plan).total <= there

    yield from (plan for number in numbers if fits(plan := replace(places[0], parallel=number)))
    for number in numbers[-DIVIDED_SEQUENCES:]:
        smaller = [replace(place, parallel=number) for place in places]
        yield from smaller[bisect_left(smaller, True, key=fits) :][:1]


def preferred_sequences(each: int, weights: int) -> int:
    """The sequences at once where none are configured and memory does not bound them: of ``each`` bytes of
    cells, beside so many bytes of weights."""
    room = max(CELLS_LEAST, int(weights * CELLS_SHARE))
    return max(1, min(MAX_PARALLEL, room // each)) if each > 0 else MAX_PARALLEL


def states_kept(state: int, sequences: int, free: int | None) -> int:
    """Return the number of earlier recurrent states kept per sequence, at most :data:`ROLLBACK`.

    ``state`` is the size of one and ``free`` the memory available, in bytes; None sets no bound.
    """
    if free is None or not state:
        return ROLLBACK
    return min(ROLLBACK, int(free * STATES_SHARE) // (state * sequences))


def context_size(trained: int | None, config: EngineConfig) -> int:
    """Tokens per sequence: the configuration's ``n_ctx``, or else the model's own, within bounds."""
    return config.n_ctx or max(MIN_CTX, min(trained or DEFAULT_CTX, DEFAULT_CTX))


def size_of(model: Model, config: EngineConfig) -> Size:
    """The size of a model by its headers; raises :class:`ModelError`."""
    header = model.header
    if isinstance(header, ModelDirectory):
        return _size_of_directory(header, config)
    return size_of_header(header, config)


def size_of_header(header: GgufHeader, config: EngineConfig) -> Size:
    """The size of a GGUF model."""
    heads = _number(header, "attention.head_count")
    of_cells = heads
    if f"{header.architecture}.attention.head_count_kv" in header.metadata:
        of_cells = _number(header, "attention.head_count_kv")  # a list differs by layer: nothing is known
    width = _number(header, "attention.key_length") or _number(header, "embedding_length") // max(1, heads)
    state = _state_bytes(header)
    by_layer = header.of_architecture("attention.head_count_kv")
    if state and isinstance(by_layer, tuple):  # a hybrid: some layers have no KV entries
        keys = sum(number for number in by_layer if type(number) is int and 0 < number <= MOST)
    elif state:
        keys = of_cells * sum(tensor.name.endswith(".attn_k.weight") for tensor in header.tensors)
    else:
        keys = of_cells * _number(header, "block_count")
    vocabulary = next((t.shape[-1] for t in header.tensors if t.name == EMBEDDING), 0)
    weights = header.size - header.bytes_unread
    return Size(
        weights,
        2 * CELL_BYTES[config.kv_bits] * width * keys,
        4 * vocabulary,
        _number(header, "context_length") or None,
        mapped=max(0, weights - header.bytes_repacked),
        state=state,
        rolls_back=header.architecture in ROLLED_BACK,
        single=header.architecture in FIRST_ALONE,
    )


def _number(header: GgufHeader, key: str) -> int:
    """A positive number of the architecture; 0 without one."""
    value = header.of_architecture(key)
    return value if type(value) is int and 0 < value <= MOST else 0


def _state_bytes(header: GgufHeader) -> int:
    """Bytes of a sequence's recurrent state in all layers, as llama.cpp sizes it (``n_embd_r``, ``n_embd_s``
    of its src/llama-hparams.cpp); 0 for a model without one."""
    convolved: Counter[str] = Counter()
    for tensor in header.tensors:
        _, layer, name = (*tensor.name.split(".", 2), "", "")[:3]
        if layer.isdecimal() and name.startswith(CONVOLUTIONS) and name.endswith("weight"):
            convolved[layer] += (tensor.shape[0] - 1) * math.prod(tensor.shape[1:])
    head = _number(header, "kda.head_dim")
    matrix = head * head * _number(header, "attention.head_count")
    matrix = matrix or _number(header, "ssm.inner_size") * _number(header, "ssm.state_size")
    return NUMBER * sum(each + matrix for each in convolved.values())


def _size_of_directory(model: ModelDirectory, config: EngineConfig) -> Size:
    found = model.config
    heads, hidden = number_of(found, "num_attention_heads"), number_of(found, "hidden_size")
    width = number_of(found, "head_dim") or (hidden or 0) // (heads or 1)
    kinds, layers = found.get("layer_types"), number_of(found, "num_hidden_layers") or 0
    if "kv_lora_rank" in found:
        layers = 0  # compressed entries
    elif isinstance(kinds, list):  # of others there is no entry of every token
        layers = sum(kind == "full_attention" for kind in kinds)
    of_cells = number_of(found, "num_key_value_heads") or 0
    cell = 2 * CELL_BYTES[config.kv_bits] * width * of_cells * layers
    embedding = model.size * model.n_tokens * (hidden or 0) // max(1, model.parameters)
    whole = min(embedding, model.size)
    process = PROCESS + MLX
    return Size(model.size, cell, 4 * model.n_tokens, model.context, whole=whole, process=process)


def free_memory() -> int:
    """Bytes of memory that are available on this machine, or within the container's limit."""
    left = _left_to_cgroup(OWN_CGROUP, CGROUPS)
    available = int(psutil.virtual_memory().available)
    return available if left is None else min(available, left)


def _left_to_cgroup(own: Path, root: Path) -> int | None:
    """Bytes left by the limits of version 2's control groups, from our own up to the root; None: no limit."""
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
    # The kernel gives up cached files where memory is needed.
    cached = int(kept.get("active_file", 0)) + int(kept.get("inactive_file", 0))
    return max(0, limit - used + cached)


MIN_BATCH = 256
WIDE, MASK = 16, 2
"""bytes of a token's activations for a number of the widest layer, and of its attention mask for a cell"""
WIDEST_ROUND = 48
"""the newest token and the longest draft: long copies gain from such forwards where they cost little,
as on a GPU"""


class CellBytes(NamedTuple):
    """Bytes of a sequence: for each token, and once (the cells of a window, a recurrent state)."""

    each: int = 0
    sequence: int = 0

    def __add__(self, other: tuple[int, ...]) -> CellBytes:  # type: ignore[override]
        return CellBytes(self.each + other[0], self.sequence + other[1])


def choose_sizes(
    trained: int | None, taken: CellBytes, config: EngineConfig, weights: int
) -> tuple[int, int]:
    """Return (tokens per sequence, sequences) from the config, the context that the model was trained for,
    the bytes that sequences take, its bytes of weights, and the free memory.

    Raises :class:`InvalidOptions` for a context too small to work in, :class:`ModelTooLarge` for
    one that does not fit.
    """
    n_ctx = context_size(trained, config)
    if n_ctx < MIN_CTX:
        raise InvalidOptions(f"n_ctx is {n_ctx}; at least {MIN_CTX} tokens are needed", "Set a larger n_ctx.")
    available = free_memory()
    each, wanted = taken.each * n_ctx + taken.sequence, max(1, config.parallel)
    if each * wanted > available:
        raise ModelTooLarge(
            f"a KV cache of {wanted} x {n_ctx} tokens takes {size(each * wanted)},"
            f" but {size(available)} are free",
            "Set a smaller n_ctx or parallel.",
        )
    most = min(preferred_sequences(each, weights), available // max(1, each))
    return n_ctx, config.parallel or max(1, most)


def widest_forward(config: EngineConfig, n_sequences: int) -> int:
    """The tokens of the widest forward: a piece of a prompt, or a round of all sequences with full drafts."""
    return max(config.chunk, MIN_BATCH, widest_round(n_sequences))


def widest_round(n_sequences: int) -> int:
    """The tokens of the widest round, each with its row of logits."""
    return n_sequences * WIDEST_ROUND
