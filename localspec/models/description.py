"""What is known of one model from its headers alone, and why it cannot be used if it cannot."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from localspec.errors import ModelError, ModelInvalid
from localspec.models.directory import ModelDirectory, is_directory_model
from localspec.models.fingerprint import directory_tokens, gguf_tokens, vocab_fp
from localspec.models.gguf import GgufHeader, read_header
from localspec.models.kind import Other, kind_of_directory, kind_of_file
from localspec.models.split import split_of
from localspec.models.tokenizer_json import has_template, tokenizer_fp
from localspec.protocol.messages import ModelDescription

Format = Literal["gguf", "mlx"]
Header = GgufHeader | ModelDirectory
"""of a GGUF file, or of a directory"""

FORMATS: tuple[Format, ...] = ("gguf", "mlx")
BACKENDS: dict[Format, str] = {"gguf": "llama_cpp", "mlx": "mlx"}

FIM_PREFIXES = (
    *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>"),
    *("<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"),
)
"""what families call the token before the text before a gap (llama.cpp's src/llama-vocab.cpp)"""
MOST_SAID = 200
"""characters of what a file calls itself; a header has room for millions"""
HALVES = re.compile("[\ud800-\udfff]")
"""surrogates, which stand for a byte each, or come alone out of JSON"""
CODESTRALS = b"[PREFIX]"
"""other models of its makers have it, too, untrained"""


class Vocabulary(msgspec.Struct, frozen=True, array_like=True):
    """What a description says of a vocabulary: its fingerprint, and which prefix of a gap it has."""

    fp: str | None = None
    fim: bool = False
    codestrals: bool = False

    def fills_gaps(self, name: str) -> bool:
        """Whether a model of this name was trained to fill gaps, as far as the vocabulary tells."""
        return self.fim or (self.codestrals and "codestral" in name.lower())


Vocabularies = dict[str, Vocabulary]
"""by ``tokenizer_fp``: of a family's many models the first alone has its vocabulary read"""


def format_of(path: Path) -> Format:
    """Which format a model's file or directory has."""
    return "mlx" if is_directory_model(path) else "gguf"


def has_mlx() -> bool:
    """Whether what runs MLX directories is installed; importing it would take a second."""
    return find_spec("mlx_lm") is not None


def text_of(name: str | Path) -> str:
    """A name to show: what no UTF-8 can hold is replaced, such as bytes of a file's name that are no text, or
    half a character in a configuration; JSON cannot hold them either."""
    return HALVES.sub("\N{REPLACEMENT CHARACTER}", str(name))


def describe(
    name: str,
    path: Path,
    format: Format,
    header: Callable[[], Header],
    vocabularies: Vocabularies | None = None,
) -> ModelDescription:
    """Describe the model of a header, which is read here; a problem is in the description, never raised."""
    found = ModelDescription(
        id=text_of(name), path=text_of(path), format=format, backend=BACKENDS[format], size=weights_size(path)
    )
    known = {} if vocabularies is None else vocabularies
    try:
        read = header()
        if isinstance(read, ModelDirectory):
            return _of_directory(found, read, known)
        return _of_file(found, read, path, known)
    except ModelError as error:
        return broken(found, error)


def broken(model: ModelDescription, error: ModelError) -> ModelDescription:
    """The model with what is wrong with it, and what to do."""
    return msgspec.structs.replace(model, problem=text_of(error.message), remedy=text_of(error.remedy))


def weights_size(path: Path) -> int:
    """The bytes of a model's file, broken or not, of its parts, or of its directory's weight files."""
    return sum(os.path.getsize(file) for file in weight_files(path) if os.path.isfile(file))


def weight_files(path: Path) -> Iterable[Path]:
    """The files that hold a model's weights, there or not."""
    if os.path.isdir(path):
        return path.glob("*.safetensors")
    split = split_of(path)
    if split is None or split.number != 1:
        return (path,)
    return path.parent.glob(f"{glob.escape(split.stem)}-?????-of-{split.total:05}.gguf")


def _of_file(
    found: ModelDescription, header: GgufHeader, path: Path, vocabularies: Vocabularies
) -> ModelDescription:
    """Raises :class:`ModelError`."""
    fp = header.tokenizer_fp
    vocabulary = _vocabulary(fp, vocabularies, lambda: gguf_tokens(read_header(path)))
    split = split_of(path)
    described = msgspec.structs.replace(
        found,
        architecture=header.architecture[:MOST_SAID],
        parameters=header.parameters,
        quantisation=header.quantisation,
        size=header.file_size,
        context=context_of(header),
        vocab_fp=vocabulary.fp,
        tokenizer_fp=fp,
        fim="tokenizer.ggml.fim_pre_token_id" in header.metadata or vocabulary.fills_gaps(found.id),
        template="tokenizer.chat_template" in header.metadata,
        parts=1 if split is None else split.total,
        title=_title(header),
    )
    return _used(described, kind_of_file(header, has_vocabulary=vocabulary.fp is not None))


def _of_directory(
    found: ModelDescription, model: ModelDirectory, vocabularies: Vocabularies
) -> ModelDescription:
    """Raises :class:`ModelError`."""
    fp = tokenizer_fp(model.path)
    vocabulary = _vocabulary(fp, vocabularies, lambda: directory_tokens(model.path))
    described = msgspec.structs.replace(
        found,
        architecture=model.architecture[:MOST_SAID] if model.architecture else None,
        parameters=model.parameters,
        quantisation=model.quantisation,
        size=model.size,
        context=model.context,
        vocab_fp=vocabulary.fp,
        tokenizer_fp=fp,
        fim=vocabulary.fim,
        template=has_template(model.path),
        parts=len(model.weights),
    )
    return _used(described, kind_of_directory(model))


def _used(model: ModelDescription, other: Other | None) -> ModelDescription:
    """The description, with the model's kind as its problem where it is none that answers."""
    if other is None:
        return model
    return broken(model, ModelInvalid(f"it does not answer: {other.what}", other.remedy))


def _vocabulary(
    fp: str | None, known: Vocabularies, read: Callable[[], list[tuple[int, bytes]]]
) -> Vocabulary:
    """What is known of a tokenizer, or else read and known from then on; raises :class:`ModelError`."""
    if fp is None:
        return Vocabulary()
    if fp not in known:
        tokens = read()
        prefixes = {text for _, text in tokens if text in _PREFIXES}
        fim = bool(prefixes - {CODESTRALS})
        known[fp] = Vocabulary(vocab_fp(tokens) if tokens else None, fim, CODESTRALS in prefixes)
    return known[fp]


_PREFIXES = {each.encode() for text in FIM_PREFIXES for each in (text, text.replace("▁", " "))} | {CODESTRALS}


def context_of(header: GgufHeader) -> int | None:
    """How many tokens a model was trained for, if it says so."""
    context = header.of_architecture("context_length")
    return context if type(context) is int else None


def _title(header: GgufHeader) -> str | None:
    """What a file calls its model."""
    base, size = header.metadata.get("general.basename"), header.metadata.get("general.size_label")
    name = f"{base}-{size}" if base and size else header.metadata.get("general.name")
    return name[:MOST_SAID] if isinstance(name, str) and name else None
