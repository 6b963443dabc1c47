"""Model directories as MLX reads them: ``config.json``, weights in safetensors files, ``tokenizer.json``.

Every length and offset of a safetensors header is checked against its file before native code sees it (the
format: https://github.com/huggingface/safetensors#format). The reader of ``tokenizer.json`` is bounded, too;
it gives the tokens as the files write them.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from localspec.errors import ModelError, ModelInvalid, ModelNotFound
from localspec.models.gguf import (
    MAX_ARRAY,
    REMEDY,
    decode_json,
    open_plain,
    quote_beginning,
    read_bounded,
    unreadable,
)

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
MAX_CONFIG = 16 * 1024 * 1024
MAX_INDEX = 100 * 1024 * 1024
"""bytes of the index of split weights; that of the largest models has 9 MB"""
MAX_WEIGHTS_HEADER = 100 * 1024 * 1024
MAX_NUMBER = 2**63 - 1
"""the largest integer on the wire, and more than any model has"""
BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""bits of one element, by type"""

Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """The configuration and weights of a model directory: ``weights`` are the files to load, ``size`` their
    bytes."""

    path: Path
    config: dict[str, Any]
    weights: tuple[Path, ...]
    quantisation: str
    parameters: int
    size: int

    @property
    def architecture(self) -> str:
        name = self.config.get("model_type")
        if not isinstance(name, str):
            return "unknown"
        return name.encode("utf-8", "replace").decode()  # JSON may hold half a surrogate pair

    @property
    def context(self) -> int | None:
        """The context length in tokens that the model was trained for; None if its configuration has none."""
        return number_of(self.config, "max_position_embeddings")

    @property
    def n_tokens(self) -> int:
        """Tokens in a row of logits; 0 if its configuration does not say."""
        return number_of(self.config, "vocab_size") or 0


class Weight(NamedTuple):
    """One tensor of a safetensors file: the type of its elements, and their number."""

    type: str
    elements: int


class _TensorEntry(msgspec.Struct):
    dtype: str
    shape: list[Number]
    data_offsets: tuple[Number, Number]


class _WeightIndex(msgspec.Struct):
    weight_map: dict[str, str]


def is_directory_model(path: Path) -> bool:
    """Return True if this is a directory with a ``config.json``."""
    return os.path.isfile(path / CONFIG)


def read_directory(path: Path) -> ModelDirectory:
    """Read a model directory's configuration and check its weight files' headers. Raises
    :class:`ModelNotFound` for a directory that is not there, :class:`ModelInvalid` for one that is not a
    model's, is incomplete, needs code of its own, or has a file that cannot be used."""
    if not os.path.exists(path):
        raise ModelNotFound(f"there is no directory {path}")
    config = read_config(path)
    if "model_file" in config:
        raise ModelInvalid(
            f"{path} needs code of its own: its config.json has the key model_file",
            "Choose another model: localspec never runs code that comes with a model.",
        )
    weights = _weight_files(path)
    tensors: dict[str, Weight] = {}
    size = 0
    for file in weights:
        found, length = read_weights(file)
        tensors |= found
        size += length
    layers = number_of(config, "num_hidden_layers") or 0
    if layers > len(tensors):
        raise _bad(path, f"its config.json states {layers} layers, its weights have {len(tensors)} tensors")
    bits = _bits(config.get("quantization"))
    elements: Counter[str] = Counter()
    parameters = 0
    for name, tensor in tensors.items():
        elements[tensor.type] += tensor.elements
        if bits and tensor.type == "U32":  # several weights in each
            parameters += tensor.elements * 32 // bits
        elif not (bits and name.endswith((".scales", ".biases"))):
            parameters += tensor.elements
    most = max(elements, key=lambda kind: elements[kind], default="unknown")
    return ModelDirectory(
        path=path,
        config=config,
        weights=weights,
        quantisation=f"{bits}bit" if bits else most,
        parameters=parameters,
        size=size,
    )


def read_config(path: Path) -> dict[str, Any]:
    """The ``config.json`` of a directory; raises :class:`ModelInvalid` where it is not a JSON object."""
    file = path / CONFIG
    try:
        # Not msgspec: the configurations of real models contain the word Infinity.
        config = json.loads(read_bounded(file, MAX_CONFIG).decode())
    except ModelNotFound:
        raise _bad(path, f"it has no {CONFIG}") from None
    except (ValueError, RecursionError) as error:
        raise ModelInvalid(f"{file} is not valid JSON: {error}", REMEDY) from None
    if not isinstance(config, dict):
        raise ModelInvalid(f"{file} does not contain a JSON object", REMEDY)
    return config


def number_of(config: dict[str, Any], key: str) -> int | None:
    """A positive number of a configuration or of its ``text_config``; None if there is none."""
    for part in (config, config.get("text_config")):
        value = part.get(key) if isinstance(part, dict) else None
        if type(value) is int and 0 < value <= MAX_NUMBER:
            return value
    return None


def _weight_files(path: Path) -> tuple[Path, ...]:
    """The weight files that mlx-lm loads; without any, every weight file."""
    try:
        names = {name for name in os.listdir(path) if name.endswith(".safetensors")}
    except OSError as error:
        raise unreadable(path, error) from None
    if not names:
        raise _bad(path, "it has no *.safetensors file")
    if os.path.lexists(index := path / INDEX):
        indexed = decode_json(read_bounded(index, MAX_INDEX), _WeightIndex, index).weight_map.values()
        if missing := min(set(indexed) - names, default=""):
            raise _bad(path, f"{quote_beginning(missing)}, which {INDEX} names, is missing")
    loaded = {name for name in names if name.startswith("model")}
    return tuple(path / name for name in sorted(loaded or names))


def read_weights(path: Path) -> tuple[dict[str, Weight], int]:
    """Read and check a safetensors header: its tensors by name, and the file's size in bytes. Raises
    :class:`ModelNotFound` for a file that is not there, :class:`ModelInvalid` for one that cannot be read,
    is not a safetensors file, is truncated, or whose lengths and offsets do not fit its size."""
    with open_plain(path) as (file, size):
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise _refuse_weights(path, "its header is longer than the file")
        if length > MAX_WEIGHTS_HEADER:
            raise _refuse_weights(path, f"its header is longer than {MAX_WEIGHTS_HEADER} bytes")
        data = file.read(length)
    entries = decode_json(data, dict[str, msgspec.Raw], path)
    entries.pop("__metadata__", None)
    return {name: _weight(path, name, raw, size - 8 - length) for name, raw in entries.items()}, size


def _weight(path: Path, name: str, raw: msgspec.Raw, room: int) -> Weight:
    """One entry of the header, which lies in the ``room`` bytes after it."""
    entry = decode_json(bytes(raw), _TensorEntry, path)
    name, (begin, end) = quote_beginning(name), entry.data_offsets
    if entry.dtype not in BITS:
        raise _refuse_weights(path, f"tensor {name} has the unknown type {entry.dtype[:16]!r}")
    elements = math.prod(entry.shape)
    if elements * BITS[entry.dtype] != (end - begin) * 8:
        raise _refuse_weights(path, f"tensor {name} of shape {entry.shape[:8]} has {end - begin} bytes")
    if end > room:
        raise _refuse_weights(path, f"it is truncated: tensor {name} ends {end - room} bytes past its end")
    return Weight(entry.dtype, elements)


def _bits(settings: object) -> int | None:
    """The bits of a weight by the ``quantization`` of a configuration; None without any."""
    bits = settings.get("bits") if isinstance(settings, dict) else None
    return bits if type(bits) is int and 0 < bits <= 32 else None


def _bad(path: Path, what: str) -> ModelInvalid:
    return ModelInvalid(f"{path} is not a usable model directory: {what}", REMEDY)


def _refuse_weights(path: Path, what: str) -> ModelInvalid:
    return ModelInvalid(f"{path} is not a usable safetensors file: {what}", REMEDY)


TOKENIZER = "tokenizer.json"
SETTINGS = "tokenizer_config.json"
TEMPLATE, TEMPLATE_IN_JSON = "chat_template.jinja", "chat_template.json"
MAX_TOKENIZER = 256 * 1024 * 1024
"""bytes of a file of tokens, also of settings for those: old ones hold all added tokens"""
MAX_SETTINGS = 64 * 1024 * 1024
"""bytes of other settings, of which each may become twenty in memory"""

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=MAX_ARRAY)]
Pieces = Annotated[list[tuple[str, float]], msgspec.Meta(max_length=MAX_ARRAY)]


class TokenTexts(NamedTuple):
    """Tokens by id: the model's own, encoded, and the added ones, literal; ``size`` is the first id that the
    model cannot produce, None where its configuration has none."""

    own: dict[int, str]
    added: dict[int, str]
    byte_level: bool
    size: int | None


class _Added(msgspec.Struct):
    content: str


class _Numbered(_Added):
    id: TokenId


class _Model(msgspec.Struct):
    """A vocabulary: a table of ids for BPE, a list of pieces and their scores for Unigram."""

    vocab: dict[str, TokenId] | Pieces


class _Tokenizer(msgspec.Struct):
    model: _Model
    added_tokens: list[_Numbered] | None = None
    normalizer: msgspec.Raw = msgspec.Raw(b"")
    pre_tokenizer: msgspec.Raw = msgspec.Raw(b"")
    decoder: msgspec.Raw = msgspec.Raw(b"")


class _Settings(msgspec.Struct):
    added_tokens_decoder: dict[TokenId, _Added] | None = None


def read_tokenizer(path: Path) -> TokenTexts:
    """The tokens of the model directory ``path``. Raises :class:`ModelInvalid` where ``tokenizer.json`` is
    missing or invalid."""
    try:
        data = read_bounded(path / TOKENIZER, MAX_TOKENIZER)
    except ModelNotFound:
        raise _bad(path, f"it has no {TOKENIZER}") from None
    tokenizer = decode_json(data, _Tokenizer, path / TOKENIZER)
    vocab, parts = tokenizer.model.vocab, (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder)
    if isinstance(vocab, dict):
        own = {token: text for text, token in vocab.items()}
    else:
        own = {token: text for token, (text, _) in enumerate(vocab)}
    return TokenTexts(
        own=own,
        added=_added_tokens(path) | {token.id: token.content for token in tokenizer.added_tokens or ()},
        byte_level=any(b'"ByteLevel"' in bytes(part) for part in parts),
        size=number_of(read_config(path), "vocab_size"),
    )


def read_settings(path: Path, name: str = SETTINGS) -> dict[str, Any]:
    """Return a directory's optional file of settings; one that cannot be read says nothing."""
    try:
        found = json.loads(read_bounded(path / name, MAX_SETTINGS))
    except (ModelError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def text_of_token(token: Any) -> str | None:
    """The text of a token, which files give plainly or with its properties."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def chat_template(path: Path, settings: Mapping[str, Any]) -> str | None:
    """The chat template of a model directory with these ``settings``; None if it has none."""
    try:
        return read_bounded(path / TEMPLATE, MAX_SETTINGS).decode()
    except (ModelError, UnicodeDecodeError):
        in_json = read_settings(path, TEMPLATE_IN_JSON)
        found = in_json.get("chat_template") or settings.get("chat_template")
    if isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _added_tokens(path: Path) -> dict[int, str]:
    """The added tokens of ``tokenizer_config.json``, which may be more than ``tokenizer.json`` has."""
    try:
        data = read_bounded(path / SETTINGS, MAX_TOKENIZER)
    except ModelNotFound:
        return {}
    added = decode_json(data, _Settings, path / SETTINGS).added_tokens_decoder or {}
    return {token: text.content for token, text in added.items()}
