"""A bounded reader of GGUF headers, and of other files that may be hostile.

Files are plain ones, read up to a limit, and no error is raised but a ModelError. Every count, length and
offset of a header is checked against the file before native code sees it. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
import struct
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec

from localspec.errors import ModelInvalid, ModelNotFound

T = TypeVar("T")

REMEDY = "Give a complete model directory; `-m bundled` always works."
RIGHT = "Give your user the right to read it."
MAX_NUMBER = 2**31
"""largest size in a header that a model can have"""
LONGEST_SHOWN = 100
"""characters or bytes of a text from a file that are shown"""


def quote_beginning(text: str | bytes) -> str:
    """The beginning of a text from a file, in quotes, for a message."""
    return repr(text) if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]!r}…"


@contextmanager
def open_plain(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """A plain file and its size in bytes; links are followed. Raises :class:`ModelNotFound` for a file that
    is not there, :class:`ModelInvalid` for one that cannot be read, also where that fails while it is open.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # opening a pipe would wait for its writer
            raise ModelInvalid(f"{path} is {'a directory' if stat.S_ISDIR(mode) else 'not a plain file'}")
        with path.open("rb") as file:
            yield file, os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise ModelNotFound(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError | ValueError) -> ModelInvalid:
    """The error for a file that cannot be read, with a remedy of its own where only a right is missing."""
    remedy = RIGHT if isinstance(error, PermissionError) else None
    return ModelInvalid(f"{path} cannot be read: {error}", remedy)


def read_bounded(path: Path, limit: int) -> bytes:
    """All of a file of at most ``limit`` bytes; raises as :func:`open_plain` does."""
    with open_plain(path) as (file, size):
        if size > limit:
            raise ModelInvalid(f"{path} is longer than {limit} bytes", REMEDY)
        return file.read(size)


def decode_json(data: bytes, kind: type[T], path: Path) -> T:
    """The JSON of ``path`` as a ``kind``; raises :class:`ModelInvalid` where it is not JSON of that form."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ModelInvalid(f"{path} does not contain the expected JSON: {error}", REMEDY) from None


MAGIC = b"GGUF"
VERSIONS = (2, 3)
# Each several times the need of the largest models of 2026 (262k tokens: 18 MB of header).
MAX_HEADER = 64 * 1024 * 1024
MAX_ENTRIES = 65_536
MAX_ARRAY = 2_000_000
MAX_KEY = 65_535
MAX_DIMENSIONS = 4
MAX_ELEMENTS = 2**63 - 1
PIECE = 256 * 1024
"""bytes read at a time"""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FORMS = {code: struct.Struct("<" + code) for code in _SCALARS.values()}
_UINT32, _STRING, _ARRAY = 4, 8, 9

# ggml type id: (name, elements per block, bytes per block).
TENSOR_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    26: ("I32", 1, 4),
    30: ("BF16", 1, 2),
    39: ("MXFP4", 32, 17),
}

# general.file_type (llama.cpp's llama_ftype): the name of a mix of types.
FILE_TYPES = {
    **{0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S"},
    **{12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K"},
    **{19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL"},
    **{26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16"},
    **{36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE"},
}

# No type packs a weight into less than one bit.
LEAST = ("", 8, 1)

MISSING_PART = "Put it beside the first part, or run `localspec models pull` again."
TOKENS = "tokenizer.ggml.tokens"
# The arrays that are kept, and the type of their items.
KEPT_ARRAYS = {TOKENS: str, "tokenizer.ggml.token_type": int}
MAX_LAYERS = 1024
"""numbers in an array that is kept in any case: it may have one for each layer"""
SPLIT = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
BLOCK = re.compile(r"blk\.(\d{1,6})\.")
EXPERTS = re.compile(r"blk\.(\d+)\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps")
"""tensors of experts, as llama.cpp's own ``--n-cpu-moe`` finds them"""
ALIGNMENT = "general.alignment"
TOKENIZER = "tokenizer.ggml."
EMBEDDING = "token_embd.weight"
"""the tensor with a row for each token"""
REPACKED = frozenset(("Q4_0", "Q4_K", "IQ4_NL", "MXFP4"))
"""types that ``ggml_repack_get_optimal_repack_type`` repacks on common CPUs"""


class Tensor(NamedTuple):
    """One tensor's place: ``offset`` counts from the start of the data section, in bytes."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int

    @property
    def bytes(self) -> int:
        """The bytes that it takes; of an unknown type the least that it may take."""
        _, elements, size = TENSOR_TYPES.get(self.type, LEAST)
        return math.prod(self.shape) // elements * size


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The metadata (arrays only where kept, or short and of numbers) and the tensors of a GGUF file, or of
    all parts of a split one. ``tokenizer_fp`` is 16 hex digits of sha256 over all of its tokenizer
    metadata; None without any. ``n_tokens`` is the number of its tokens, read or not; 0 without a
    vocabulary."""

    metadata: dict[str, Any]
    tensors: tuple[Tensor, ...]
    size: int
    tokenizer_fp: str | None = None
    n_tokens: int = 0

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", "unknown"))

    @property
    def parameters(self) -> int:
        """Weights in all tensors."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors)

    @property
    def quantisation(self) -> str:
        """The file's own name of its types, or else the type most weights have."""
        if (named := FILE_TYPES.get(self.metadata.get("general.file_type", -1))) is not None:
            return named
        weights: Counter[int] = Counter()
        for tensor in self.tensors:
            weights[tensor.type] += math.prod(tensor.shape)
        if not weights:
            return "unknown"
        return _type_name(max(weights, key=lambda kind: weights[kind]))

    @property
    def types(self) -> set[str]:
        return {_type_name(tensor.type) for tensor in self.tensors}

    @property
    def layers(self) -> int:
        """The number of layers, without the output; each has a tensor, whatever number its name has."""
        blocks = (int(found[1]) for tensor in self.tensors if (found := BLOCK.match(tensor.name)))
        return min(1 + max(blocks, default=-1), len(self.tensors))

    def bytes_of_last(self, n: int, cpu_experts: int = 0) -> int:
        """Bytes of the weights that llama.cpp puts on a GPU for ``n_gpu_layers`` of ``n``, where the
        experts of the first ``cpu_experts`` layers stay with the processor. These are those of the output,
        which counts as a layer, and of the last layers; the input embedding stays with the processor, or is
        copied where it is the output's too (``load_tensors`` of its src/llama-model.cpp)."""
        first = max(self.layers + 1 - n, 0)
        outputs = ("output", EMBEDDING) if self.is_tied else ("output",)
        return sum(
            t.bytes
            for t in self.tensors
            if n > 0 and _is_on_gpu(t.name, first, outputs) and not _is_expert(t.name, cpu_experts)
        )

    @property
    def has_experts(self) -> bool:
        return any(EXPERTS.match(tensor.name) for tensor in self.tensors)

    @property
    def is_tied(self) -> bool:
        """True if the embedding is the output's matrix too."""
        return not any(tensor.name == "output.weight" for tensor in self.tensors)

    @property
    def bytes_unread(self) -> int:
        """Bytes of an input embedding of its own, of which a forward reads a few rows."""
        return 0 if self.is_tied else sum(t.bytes for t in self.tensors if t.name == EMBEDDING)

    @property
    def bytes_repacked(self) -> int:
        """Bytes of the weights that llama.cpp copies into another order for a CPU with AVX2 or NEON."""
        return sum(t.bytes for t in self.tensors if t.name != EMBEDDING and _type_name(t.type) in REPACKED)

    @property
    def context(self) -> int | None:
        """The context length in tokens that the model was trained for; None if it has none."""
        return self.number("context_length") or None

    def of_architecture(self, key: str) -> Any:
        """The value of a key of the architecture, such as ``context_length``; None if not there."""
        return self.metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str) -> int:
        """A positive number of the architecture; 0 without one."""
        value = self.of_architecture(key)
        return value if type(value) is int and 0 < value <= MAX_NUMBER else 0


# Names of the files of a split model: ``model-00001-of-00003.gguf``, as llama.cpp writes them.


class Split(NamedTuple):
    """One part of a split model; ``stem`` is the beginning of all parts' names."""

    path: Path
    stem: str
    number: int
    total: int

    def part(self, number: int) -> Path:
        """The path of another part: beside this one."""
        return self.path.with_name(f"{self.stem}-{number:05}-of-{self.total:05}.gguf")


def split_of(path: Path) -> Split | None:
    """The part of a split model that this file is by its name; None for a file that is a model by itself."""
    found = SPLIT.fullmatch(path.name)
    if found is None:
        return None
    split = Split(path, found["stem"], int(found["number"]), int(found["count"]))
    return split if 1 <= split.number <= split.total else None


def first_part(path: Path) -> Path:
    """The file that a model is loaded by: of a split one the first part, there or not."""
    split = split_of(path)
    return path if split is None else split.part(1)


def read_header(path: Path, *, texts: bool = True) -> GgufHeader:
    """Read and check a GGUF header; of the first part of a split model those of all parts, as one. Without
    ``texts`` no long array is kept, which saves half of the time. Raises :class:`ModelNotFound` for a file
    that is not there, :class:`ModelInvalid` for one that cannot be read, is not GGUF, is truncated, or
    whose counts and offsets do not fit its size; and for a split model that is incomplete, or named by
    another part than the first."""
    split = split_of(path)
    header = _read_file(path, texts=texts)
    return header if split is None else _join_parts(header, split)


def _join_parts(first: GgufHeader, split: Split) -> GgufHeader:
    """One header for all parts, as llama.cpp loads them: by the name of the first."""
    if split.number != 1:
        raise ModelInvalid(
            f"{split.path} is part {split.number} of {split.total} of a model",
            f"Give its first part, {split.part(1)}.",
        )
    tensors, size = first.tensors, first.size
    for number in range(2, split.total + 1):
        path = split.part(number)
        try:
            part = _read_file(path, texts=False)  # the first has them all
        except ModelNotFound:
            raise ModelInvalid(
                f"part {number} of {split.total} is missing: there is no file {path}",
                MISSING_PART,
            ) from None
        tensors, size = tensors + part.tensors, size + part.size
    return replace(first, tensors=tensors, size=size)


def _read_file(path: Path, *, texts: bool = True) -> GgufHeader:
    with open_plain(path) as (file, size):
        return _Reader(file, path, size, KEPT_ARRAYS if texts else ()).header()


class _Reader:
    """A reader that does not map the file: a mapped file that is shortened kills the process."""

    def __init__(self, file: BinaryIO, path: Path, size: int, kept: Collection[str]) -> None:
        self.file, self.path, self.size, self.kept, self.at = file, path, size, kept, 0
        self.n_tokens = self.length = 0
        self.data = bytearray()
        self.tokenizer = hashlib.sha256()

    def bad(self, what: str) -> ModelInvalid:
        return ModelInvalid(f"{self.path} is not a usable GGUF file: {what}")

    def header(self) -> GgufHeader:
        if self.size == 0:
            raise self.bad("it is empty")
        if self.take(min(self.size, len(MAGIC))) != MAGIC:
            raise self.bad("it does not start with the letters GGUF")
        version = self.scalar("I")
        if version not in VERSIONS:
            raise self.bad(f"its version is {version}; versions 2 and 3 are supported")
        n_tensors, n_values = self.scalar("Q"), self.scalar("Q")
        if max(n_tensors, n_values) > MAX_ENTRIES:
            raise self.bad(f"it states {n_tensors} tensors and {n_values} values; {MAX_ENTRIES} are the most")
        metadata: dict[str, Any] = {}
        for _ in range(n_values):
            self.entry(metadata)
        tensors = tuple(self.tensor() for _ in range(n_tensors))
        if self.kept:
            self.check_vocabulary(metadata)
        self.check_data(tensors, metadata.get(ALIGNMENT, 32))
        has_tokenizer = any(key.startswith(TOKENIZER) for key in metadata)
        fp = self.tokenizer.hexdigest()[:16] if has_tokenizer else None
        return GgufHeader(metadata, tensors, self.size, fp, self.n_tokens)

    def entry(self, metadata: dict[str, Any]) -> None:
        start = self.at
        key, kind = self.string(MAX_KEY), self.scalar("I")
        if key in metadata:
            raise self.bad(f"it has two values for the key {quote_beginning(key)}")
        if key == ALIGNMENT and kind != _UINT32:
            raise self.bad(f"its alignment has the value type {kind}, not {_UINT32} (uint32)")
        metadata[key] = self.value(kind, keep=key in self.kept)
        if key == TOKENS:
            self.n_tokens = self.length
        if key.startswith(TOKENIZER):
            self.tokenizer.update(self.data[start : self.at])

    def need(self, n: int) -> None:
        """Read until the next ``n`` bytes are in memory."""
        end = self.at + n
        if end > self.size:
            raise self.bad("it is truncated inside its header")
        if end > MAX_HEADER:
            raise self.bad(f"its header is longer than {MAX_HEADER} bytes")
        if end > len(self.data):
            self.data += self.file.read(max(PIECE, end - len(self.data)))
            if end > len(self.data):
                raise self.bad("it became shorter while it was read")

    def take(self, n: int) -> bytes:
        self.need(n)
        self.at += n
        return bytes(self.data[self.at - n : self.at])

    def scalar(self, code: str) -> Any:
        form = _FORMS[code]
        return form.unpack(self.take(form.size))[0]

    def string(self, limit: int) -> str:
        n = self.scalar("Q")
        if n > limit:
            raise self.bad(f"its header has a string of {n} bytes; {limit} are the most")
        return self.take(n).decode("utf-8", "replace")

    def value(self, kind: int, *, keep: bool) -> Any:
        if kind == _STRING:
            return self.string(MAX_HEADER)
        if kind == _ARRAY:
            return self.array(keep=keep)
        if kind not in _SCALARS:
            raise self.bad(f"its header has a value of the unknown type {kind}")
        return self.scalar(_SCALARS[kind])

    def array(self, *, keep: bool) -> tuple[Any, ...] | None:
        kind, n = self.scalar("I"), self.scalar("Q")
        if n > MAX_ARRAY:
            raise self.bad(f"its header has an array of {n} items; {MAX_ARRAY} are the most")
        self.length = n
        if kind == _STRING:
            return self.strings(n, keep=keep)
        if kind not in _SCALARS:
            raise self.bad(f"its header has an array of the unknown type {kind}")
        form = struct.Struct(f"<{n}{_SCALARS[kind]}")
        data = self.take(form.size)
        return form.unpack(data) if keep or n <= MAX_LAYERS else None

    def strings(self, n: int, *, keep: bool) -> tuple[str, ...] | None:
        """An array of strings: the loop over a vocabulary, which takes most of a header's time."""
        texts: list[str] = []
        data, length_at, at = self.data, _FORMS["Q"].unpack_from, self.at
        have = len(data)
        for _ in range(n):
            begin = at + 8
            if begin > have:
                self.at = at
                self.need(8)
                have = len(data)
            at = begin + length_at(data, at)[0]
            if at > have:
                self.at = begin
                self.need(at - begin)
                have = len(data)
            if keep:
                texts.append(data[begin:at].decode("utf-8", "replace"))
        self.at = at
        return tuple(texts) if keep else None

    def tensor(self) -> Tensor:
        name = self.string(MAX_KEY)
        dimensions = self.scalar("I")
        if not 0 < dimensions <= MAX_DIMENSIONS:
            shown = quote_beginning(name)
            raise self.bad(f"tensor {shown} has {dimensions} dimensions; it must have 1 to {MAX_DIMENSIONS}")
        shape = tuple(self.scalar("Q") for _ in range(dimensions))
        if not 0 < math.prod(shape) <= MAX_ELEMENTS:
            raise self.bad(f"tensor {quote_beginning(name)} has the invalid shape {shape}")
        return Tensor(name, shape, self.scalar("I"), self.scalar("Q"))

    def check_vocabulary(self, metadata: dict[str, Any]) -> None:
        """Raise :class:`ModelInvalid` if a kept array has items of another type."""
        for key, kind in KEPT_ARRAYS.items():
            items = metadata.get(key, ())
            if not isinstance(items, tuple) or not all(type(item) is kind for item in items[:1]):
                raise self.bad(f"{key} is not a list of {kind.__name__}")

    def check_data(self, tensors: tuple[Tensor, ...], alignment: int) -> None:
        """Raise :class:`ModelInvalid` if a tensor lies outside of the file."""
        if alignment < 1 or alignment & (alignment - 1):
            raise self.bad(f"its alignment is {alignment}, not a power of two")
        data = -(-self.at // alignment) * alignment
        for tensor in tensors:
            end = data + tensor.offset + tensor.bytes
            if end > self.size:
                shown, beyond = quote_beginning(tensor.name), end - self.size
                raise self.bad(f"it is truncated: tensor {shown} ends {beyond} bytes past its end")


def _is_on_gpu(name: str, first: int, outputs: tuple[str, ...]) -> bool:
    """Return True if the tensor is of a layer from ``first`` on, or of no layer and named as ``outputs``."""
    block = BLOCK.match(name)
    return name.startswith(outputs) if block is None else int(block[1]) >= first


def _is_expert(name: str, layers: int) -> bool:
    """Return True if the tensor has the experts of one of the first ``layers``."""
    block = EXPERTS.match(name)
    return block is not None and int(block[1]) < layers


def _type_name(kind: int) -> str:
    return TENSOR_TYPES[kind][0] if kind in TENSOR_TYPES else f"type {kind}"
