"""The description of one model from its headers alone, with the reason if it cannot be used."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from localspec.errors import ModelError, ModelInvalid
from localspec.models.directory import ModelDirectory, is_directory_model
from localspec.models.fingerprint import directory_tokens, gguf_tokens, vocab_fp
from localspec.models.gguf import GgufHeader, read_header
from localspec.models.kind import Other, kind_of_directory, kind_of_file
from localspec.models.split import split_of
from localspec.models.tokenizer_json import chat_template, read_settings, tokenizer_fp
from localspec.protocol.messages import ModelDescription

Format = Literal["gguf", "mlx"]
Header = GgufHeader | ModelDirectory
"""the header of a GGUF file, or of a model directory"""

FORMATS: tuple[Format, ...] = ("gguf", "mlx")
BACKENDS: dict[Format, str] = {"gguf": "llama_cpp", "mlx": "mlx"}

FIM_PREFIXES = (
    *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>"),
    *("<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"),
)
"""texts of the FIM prefix token in families of models (llama.cpp's src/llama-vocab.cpp)"""
MAX_TITLE = 200
"""characters of the title in a file's header, which has room for millions"""
HALVES = re.compile("[\ud800-\udfff]")
"""surrogates, which stand for a byte each, or come alone out of JSON"""
CODESTRALS = b"[PREFIX]"
"""the FIM prefix of Codestral; other Mistral models have the token, too, untrained"""


class Vocabulary(NamedTuple):
    """A vocabulary's fingerprint, and the FIM prefix tokens that it has."""

    fp: str | None = None
    fim: bool = False
    codestrals: bool = False

    def fills_gaps(self, name: str) -> bool:
        """True if a model of this name was trained to fill gaps, as far as the vocabulary shows."""
        return self.fim or (self.codestrals and "codestral" in name.lower())


Vocabularies = dict[str, Vocabulary]
"""by ``tokenizer_fp``: of a family's many models the first alone has its vocabulary read"""


def format_of(path: Path) -> Format:
    """The format of a model's file or directory."""
    return "mlx" if is_directory_model(path) else "gguf"


def has_mlx() -> bool:
    """True if mlx-lm is installed; it is not imported, which would take a second."""
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
    """The description with an error's message and remedy as its problem."""
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
        architecture=header.architecture[:MAX_TITLE],
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
        architecture=model.architecture[:MAX_TITLE] if model.architecture else None,
        parameters=model.parameters,
        quantisation=model.quantisation,
        size=model.size,
        context=model.context,
        vocab_fp=vocabulary.fp,
        tokenizer_fp=fp,
        fim=vocabulary.fim,
        template=bool(chat_template(model.path, read_settings(model.path))),
        parts=len(model.weights),
    )
    return _used(described, kind_of_directory(model))


def _used(model: ModelDescription, other: Other | None) -> ModelDescription:
    """The description, with the model's kind as its problem where it cannot generate text."""
    if other is None:
        return model
    return broken(model, ModelInvalid(f"the model cannot generate text: {other.what}", other.remedy))


def _vocabulary(
    fp: str | None, known: Vocabularies, read: Callable[[], list[tuple[int, bytes]]]
) -> Vocabulary:
    """The vocabulary of a tokenizer, read at first use and kept in ``known``; raises :class:`ModelError`."""
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
    """The context length in tokens that a model was trained for; None if its header has none."""
    context = header.of_architecture("context_length")
    return context if type(context) is int else None


def _title(header: GgufHeader) -> str | None:
    """The title of the model in a file's header; None without one."""
    base, size = header.metadata.get("general.basename"), header.metadata.get("general.size_label")
    name = f"{base}-{size}" if base and size else header.metadata.get("general.name")
    return name[:MAX_TITLE] if isinstance(name, str) and name else None
