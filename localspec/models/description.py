"""The description of one model from its headers alone, with the reason if it cannot be used."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from localspec.errors import ModelError, ModelInvalid
from localspec.models.bounded import REMEDY
from localspec.models.directory import ModelDirectory, is_directory_model
from localspec.models.gguf import GgufHeader, read_header, split_of
from localspec.models.names import pulled_name
from localspec.models.stores import REPOSITORY, repository_of
from localspec.models.tokenizer_json import chat_template, read_settings
from localspec.models.vocabulary import directory_tokens, gguf_tokens, vocab_fp
from localspec.protocol.messages import ModelDescription

Format = Literal["gguf", "mlx"]
Header = GgufHeader | ModelDirectory
"""the header of a GGUF file, or of a model directory"""

FORMATS: tuple[Format, ...] = ("gguf", "mlx")
BACKENDS: dict[Format, str] = {"gguf": "llama_cpp", "mlx": "mlx"}
KINDS = {"gguf": "a GGUF file", "mlx": "an MLX directory"}
NEEDS_MLX = "needs MLX"

FIM_PREFIXES = (
    *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>"),
    *("<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"),
)
"""texts of the FIM prefix token in families of models (llama.cpp's src/llama-vocab.cpp)"""
CODESTRALS = b"[PREFIX]"
"""the FIM prefix of Codestral; other Mistral models have the token, too, untrained"""
MAX_TITLE = 200
"""characters of the title in a file's header, which has room for millions"""
HALVES = re.compile("[\ud800-\udfff]")
"""surrogates, which stand for a byte each, or come alone out of JSON"""

# Files and directories that have a model's form and cannot generate text.

MODULES = "modules.json"
"""a file that sentence-transformers puts beside a model that it made of another"""
EMBED = "it is an embedding model"
PROJECTOR = "it is a multimodal projector: the part of another model that reads images or audio"
OTHER_TYPES = {
    "adapter": "it is an adapter (LoRA), which goes on top of a model",
    "mmproj": PROJECTOR,
    "imatrix": "it is an importance matrix, made for quantising a model",
    "vocab": "it has a vocabulary, but no weights",
}
"""``general.type`` of files that are not a model"""
EMBEDDERS = {
    *("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3"),
    *("eurobert", "gemma-embedding", "t5encoder", "llama-embed"),
}
"""``general.architecture`` of encoders (llama.cpp's src/llama-arch.cpp)"""
GENERATES = ("CausalLM", "ConditionalGeneration", "LMHead", "VL")
"""parts of the names of transformers' classes that generate text"""
HEADS = ("eagle3", "dflash", "gemma4-assistant")
"""``general.architecture`` of drafters that read their target's hidden states (llama.cpp's src/models)"""
HEAD = "it is a head for another model, and drafts for that model alone"
NAME_THE_TARGET = (
    "Choose the model that it drafts for, in a GGUF file of its own. Heads are not used yet; a smaller model "
    "of the same vocabulary, prompt lookup and the n-gram memory draft instead."
)


class Vocabulary(NamedTuple):
    """A vocabulary's fingerprint, and the texts of FIM prefix tokens that it has."""

    fp: str | None = None
    prefixes: frozenset[bytes] = frozenset()


_vocabularies: dict[str, Vocabulary] = {}
"""by the header's ``tokenizer_fp``: of a family's many files the first alone has its vocabulary read"""


def name_of(model: ModelDescription) -> str:
    """The name to type for a model."""
    return model.names[0] if model.names else model.id


def needs_mlx(model: ModelDescription) -> bool:
    """True if a sound model needs MLX, and that is not installed."""
    return model.format == "mlx" and model.problem is None and not has_mlx()


def count(parameters: int | None) -> str:
    """A number of parameters in billions or millions, such as 7.6 B; - if unknown."""
    if not parameters:
        return "-"
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"


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


def describe(name: str, path: Path, format: Format, read: Callable[[], Header]) -> ModelDescription:
    """Describe the model whose header ``read`` returns; a problem is in the description, never raised."""
    found = ModelDescription(
        id=text_of(name), path=text_of(path), format=format, backend=BACKENDS[format], size=weights_size(path)
    )
    problem: ModelError | None
    try:
        found, problem = _described(found, read(), path)
    except ModelError as error:
        problem = error
    if problem is None:
        return found
    remedy = text_of(_remedy(problem, path))
    return msgspec.structs.replace(found, problem=text_of(problem.message), remedy=remedy)


def _remedy(problem: ModelError, path: Path) -> str:
    """The remedy for a problem; of a damaged model of the hub it is to download it again."""
    repository = repository_of(path)
    if repository is None or problem.remedy not in (REMEDY, ModelInvalid.default_remedy):
        return problem.remedy
    folder = next(each for each in path.parents if each.name.startswith(REPOSITORY))
    # A file of full size counts as downloaded, also where its link was removed.
    damaged = folder if path.is_dir() else os.path.realpath(path)
    again = shlex.quote(pulled_name(repository, path))
    return f"Remove {damaged}, then run `localspec models pull {again}`."


def _described(
    found: ModelDescription, header: Header, path: Path
) -> tuple[ModelDescription, ModelInvalid | None]:
    """The description with the facts of its header, and the error if it cannot generate text; raises
    :class:`ModelError`."""
    title: str | None = None
    marked, split = False, split_of(path)
    if isinstance(header, ModelDirectory):
        vocabulary, parts = _vocabulary(directory_tokens(path)), len(header.weights)
        template = bool(chat_template(path, read_settings(path)))
        problem = _problem_of_directory(header)
    else:
        vocabulary = Vocabulary()
        if (fp := header.tokenizer_fp) is not None:
            vocabulary = _vocabularies.get(fp) or _vocabulary(gguf_tokens(read_header(path)))
            _vocabularies[fp] = vocabulary
        marked = "tokenizer.ggml.fim_pre_token_id" in header.metadata
        title, parts = _title(header), 1 if split is None else split.total
        template = "tokenizer.chat_template" in header.metadata
        problem = problem_of_file(header, has_vocabulary=vocabulary.fp is not None)
    described = msgspec.structs.replace(
        found,
        architecture=header.architecture[:MAX_TITLE],
        parameters=header.parameters,
        quantisation=header.quantisation,
        size=header.size,
        context=header.context,
        vocab_fp=vocabulary.fp,
        fim=marked or _fills_gaps(vocabulary, found.id),
        template=template,
        parts=parts,
        title=title,
    )
    return described, problem


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


def _vocabulary(tokens: dict[int, bytes]) -> Vocabulary:
    return Vocabulary(vocab_fp(tokens) if tokens else None, _PREFIXES.intersection(tokens.values()))


_PREFIXES = frozenset(each.encode() for text in FIM_PREFIXES for each in (text, text.replace("▁", " ")))
_PREFIXES |= {CODESTRALS}


def _fills_gaps(vocabulary: Vocabulary, name: str) -> bool:
    """True if a model of this name was trained to fill gaps, as far as its vocabulary shows."""
    of_codestral = CODESTRALS in vocabulary.prefixes and "codestral" in name.lower()
    return of_codestral or bool(vocabulary.prefixes - {CODESTRALS})


def _title(header: GgufHeader) -> str | None:
    """The title of the model in a file's header; None without one."""
    base, size = header.metadata.get("general.basename"), header.metadata.get("general.size_label")
    name = f"{base}-{size}" if base and size else header.metadata.get("general.name")
    return name[:MAX_TITLE] if isinstance(name, str) and name else None


def problem_of_file(header: GgufHeader, *, has_vocabulary: bool) -> ModelInvalid | None:
    """The error for a GGUF file that cannot generate text; None for one that can."""
    names = [tensor.name for tensor in header.tensors]
    kind = header.metadata.get("general.type")
    # A complete model may carry its MTP layers behind its own.
    is_mtp = any(".nextn." in name for name in names) and not any(name.startswith("blk.0.") for name in names)
    if isinstance(kind, str) and kind in OTHER_TYPES:
        return _cannot_generate(OTHER_TYPES[kind])
    if header.architecture == "clip":
        return _cannot_generate(PROJECTOR)
    if not names:
        return _cannot_generate(OTHER_TYPES["vocab"])
    if is_mtp or header.architecture in HEADS:
        return _cannot_generate(HEAD, NAME_THE_TARGET)
    if header.architecture in EMBEDDERS or header.of_architecture("pooling_type"):
        return _cannot_generate(EMBED)
    return None if has_vocabulary else _cannot_generate("it has no vocabulary")


def _problem_of_directory(model: ModelDirectory) -> ModelInvalid | None:
    """The error for a directory that MLX cannot generate text with; None for one that it can."""
    named = model.config.get("architectures")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    if (model.path / MODULES).exists():
        return _cannot_generate(EMBED)
    if names and not any(mark in name for name in names for mark in GENERATES):
        return _cannot_generate(f"its architecture is {names[0][:64]}")
    return None


def _cannot_generate(what: str, remedy: str = "Choose another model.") -> ModelInvalid:
    """The error for what is no model, by a clause with the subject "it"."""
    return ModelInvalid(f"the model cannot generate text: {what}", remedy)
