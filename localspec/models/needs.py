"""The size of a model by its headers alone, and the memory that it needs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from localspec.errors import ModelTooLarge
from localspec.models.directory import ModelDirectory, number_of
from localspec.models.gguf import EMBEDDING, MAX_NUMBER, GgufHeader
from localspec.models.model import Model
from localspec.protocol.requests import EngineConfig
from localspec.wording import MB, size

DEFAULT_CTX = 8192
MIN_CTX = 64
LOWER_CTX = (4096, 2048, 1024)
"""contexts that are tried where none is set and the usual one has no room"""
CELL_BYTES = {0: 2.0, 8: 34 / 32, 4: 18 / 32}
"""bytes of one number in the KV cache, by ``kv_bits``"""
MAX_PARALLEL = 4
"""most sequences where none are configured"""
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
MIN_BATCH = 256
WIDE, MASK = 16, 2
"""bytes of a token's activations for a number of the widest layer, and of its attention mask for a cell"""
WIDEST_ROUND = 48
"""the newest token and the longest draft: long copies gain from such forwards where they cost little,
as on a GPU"""


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


def lower_contexts(target: Model, config: EngineConfig) -> Iterator[EngineConfig]:
    """The settings, and then those with smaller contexts, if none is set."""
    yield config
    usual = context_size(size_of(target, config).context, config)
    yield from (replace(config, n_ctx=n) for n in LOWER_CTX if not config.n_ctx and n < usual)


def preferred_sequences(each: int, weights: int) -> int:
    """The sequences at once where none are configured and memory does not bound them: of ``each`` bytes of
    cells, beside so many bytes of weights."""
    room = max(CELLS_LEAST, int(weights * CELLS_SHARE))
    return max(1, min(MAX_PARALLEL, room // each)) if each > 0 else MAX_PARALLEL


def states_kept(state: int, sequences: int, free: int | None) -> int:
    """Return the number of earlier recurrent states kept per sequence, at most :data:`ROLLBACK`. ``state``
    is the size of one and ``free`` the memory available, in bytes; None sets no bound."""
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
    heads = header.number("attention.head_count")
    by_layer = header.of_architecture("attention.head_count_kv")
    of_cells = heads if by_layer is None else header.number("attention.head_count_kv")
    width = header.number("attention.key_length") or header.number("embedding_length") // max(1, heads)
    state = _state_bytes(header)
    if isinstance(by_layer, tuple):  # such as a hybrid's: some layers have no KV entries
        keys = sum(number for number in by_layer if type(number) is int and 0 < number <= MAX_NUMBER)
    elif state:
        keys = of_cells * sum(tensor.name.endswith(".attn_k.weight") for tensor in header.tensors)
    else:
        keys = of_cells * header.number("block_count")
    vocabulary = next((t.shape[-1] for t in header.tensors if t.name == EMBEDDING), 0)
    weights = header.size - header.bytes_unread
    return Size(
        weights,
        2 * CELL_BYTES[config.kv_bits] * width * keys,
        4 * vocabulary,
        header.context,
        mapped=max(0, weights - header.bytes_repacked),
        state=state,
        rolls_back=header.architecture in ROLLED_BACK,
        single=header.architecture in FIRST_ALONE,
    )


def _state_bytes(header: GgufHeader) -> int:
    """Bytes of a sequence's recurrent state in all layers, as llama.cpp sizes it (``n_embd_r``, ``n_embd_s``
    of its src/llama-hparams.cpp); 0 for a model without one."""
    convolved: Counter[str] = Counter()
    for tensor in header.tensors:
        _, layer, name = (*tensor.name.split(".", 2), "", "")[:3]
        if layer.isdecimal() and name.startswith(CONVOLUTIONS) and name.endswith("weight"):
            convolved[layer] += (tensor.shape[0] - 1) * math.prod(tensor.shape[1:])
    head = header.number("kda.head_dim")
    matrix = head * head * header.number("attention.head_count")
    matrix = matrix or header.number("ssm.inner_size") * header.number("ssm.state_size")
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


def widest_forward(config: EngineConfig, n_sequences: int) -> int:
    """The tokens of the widest forward: a piece of a prompt, or a round of all sequences with full drafts."""
    return max(config.chunk, MIN_BATCH, widest_round(n_sequences))


def widest_round(n_sequences: int) -> int:
    """The tokens of the widest round, each with its row of logits."""
    return n_sequences * WIDEST_ROUND
