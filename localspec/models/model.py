"""One model on this disk, as a value made once by :mod:`localspec.models.index`, and its description.

The description of a model is made from the headers alone, with the reason if the model cannot be used.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from localspec.errors import ModelError, ModelInvalid
from localspec.home import stamp_of
from localspec.models.directory import (
    CONFIG,
    SETTINGS,
    TEMPLATE,
    TEMPLATE_IN_JSON,
    TOKENIZER,
    ModelDirectory,
    chat_template,
    is_directory_model,
    read_directory,
    read_settings,
)
from localspec.models.gguf import REMEDY, GgufHeader, read_header, split_of
from localspec.models.names import NameParts, pulled_name
from localspec.models.stores import REPOSITORY, repository_of
from localspec.models.vocabulary import (
    VocabularySummary,
    directory_tokens,
    fills_gaps,
    gguf_tokens,
    summarise_vocabulary,
)
from localspec.protocol.frames import ModelFile, Signature
from localspec.protocol.messages import ModelDescription

Format = Literal["gguf", "mlx"]
Header = GgufHeader | ModelDirectory

FORMATS: tuple[Format, ...] = ("gguf", "mlx")
BACKENDS: dict[Format, str] = {"gguf": "llama_cpp", "mlx": "mlx"}
KINDS = {"gguf": "a GGUF file", "mlx": "an MLX directory"}
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

_vocabularies: dict[str, VocabularySummary] = {}
"""by the header's ``tokenizer_fp``: of a family's many files the first alone has its vocabulary read"""


def format_of(path: Path) -> Format:
    return "mlx" if is_directory_model(path) else "gguf"


def text_of(name: str | Path) -> str:
    """A name to show: what no UTF-8 can hold is replaced, such as bytes of a file's name that are no text, or
    half a character in a configuration; JSON cannot hold them either."""
    return HALVES.sub("\N{REPLACEMENT CHARACTER}", str(name))


def describe(name: str, model: Model, problem: ModelError | None = None) -> ModelDescription:
    """Describe a model by its header, which is not read where its store has a ``problem``; that, or one of
    reading it, is in the description, never raised."""
    path, format, size = model.path, model.format, model.weight_bytes
    found = ModelDescription(
        id=text_of(name), path=text_of(path), format=format, backend=BACKENDS[format], size=size
    )
    try:
        if problem is None:
            found, problem = _describe_header(found, model.header, path)
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


def _describe_header(
    found: ModelDescription, header: Header, path: Path
) -> tuple[ModelDescription, ModelInvalid | None]:
    """The description with the facts of its header, and the error if it cannot generate text; raises
    :class:`ModelError`."""
    title: str | None = None
    marked, split = False, split_of(path)
    if isinstance(header, ModelDirectory):
        vocabulary, parts = summarise_vocabulary(directory_tokens(path)), len(header.weights)
        template = bool(chat_template(path, read_settings(path)))
        problem = _problem_of_directory(header)
    else:
        vocabulary = VocabularySummary()
        if (fp := header.tokenizer_fp) is not None:
            vocabulary = _vocabularies.get(fp) or summarise_vocabulary(gguf_tokens(read_header(path)))
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
        fim=marked or fills_gaps(vocabulary, found.id),
        template=template,
        parts=parts,
        title=title,
    )
    return described, problem


def weight_files(path: Path) -> Iterable[Path]:
    """The files that hold a model's weights, there or not."""
    if os.path.isdir(path):
        return path.glob("*.safetensors")
    split = split_of(path)
    if split is None or split.number != 1:
        return (path,)
    return path.parent.glob(f"{glob.escape(split.stem)}-?????-of-{split.total:05}.gguf")


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


@dataclass(frozen=True)
class Model:
    """A model's file or directory; equal to another one at the same path. ``path`` is absolute and
    unresolved: links in a store have names, their targets have digests. ``known`` is the description of a
    model that is in a store, ``parts`` its name taken apart (None: bundled, or not usable). ``stamp`` is
    the state of its files when ``known`` was read. Place, header, description and signature are read once,
    at their first use."""

    path: Path
    format: Format = field(compare=False)
    known: ModelDescription | None = field(default=None, compare=False, repr=False)
    parts: NameParts | None = field(default=None, compare=False, repr=False)
    stamp: Signature | None = field(default=None, compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """All names that mean this model, the one to type first."""
        return (self.known.names if self.known is not None else ()) or (self.own_name,)

    @property
    def name(self) -> str:
        """The name to show and to type: that of the list, or else that of the file."""
        return self.names[0]

    @cached_property
    def own_name(self) -> str:
        """The name in its store, or else of the file or directory."""
        if self.known is not None:
            return self.known.id
        split = split_of(self.path)
        return split.stem if split else self.path.name if self.format == "mlx" else self.path.stem

    @cached_property
    def place(self) -> str:
        """The resolved path as text, alike for all ways to name it."""
        return place_of(self.path)

    @cached_property
    def places(self) -> frozenset[str]:
        """The places in all stores that have it."""
        also = () if self.known is None else self.known.also
        return frozenset((self.place, *(place_of(Path(path)) for path in also)))

    @cached_property
    def signature(self) -> Signature:
        """The state of its files when it was found."""
        return self.stamp if self.stamp is not None else signature_of(self.path)

    @cached_property
    def header(self) -> Header:
        """The header without long arrays, read and checked; raises :class:`ModelError`."""
        _ = self.signature  # before the header: a change in between shows
        return read_directory(self.path) if self.format == "mlx" else read_header(self.path, texts=False)

    @cached_property
    def description(self) -> ModelDescription:
        """The description from the headers; a problem is in it, never raised."""
        return self.known or describe(self.own_name, self)

    @property
    def problem(self) -> str | None:
        """The reason why it cannot be used; None if it can."""
        return self.description.problem

    @cached_property
    def weight_bytes(self) -> int:
        """The bytes of its file, broken or not, of its parts, or of its directory's weight files."""
        return sum(os.path.getsize(file) for file in weight_files(self.path) if os.path.isfile(file))

    @property
    def is_current(self) -> bool:
        """True if its files are as they were when it was found."""
        return self.signature == signature_of(self.path)

    def as_listed(self, listed: Model) -> Model:
        """The model with the description and the names that the list has for it, or for a copy of it."""
        stamp = listed.stamp if self.place == listed.place else None
        return replace(self, known=listed.known, parts=listed.parts, stamp=stamp)

    def as_frame(self) -> ModelFile:
        return ModelFile(os.fsencode(self.path), self.signature, self.description)


def model_at(path: Path) -> Model:
    """The model at a path, which must be a model's file or directory."""
    return Model(path, format_of(path))


def model_from(frame: ModelFile) -> Model:
    """The model that another process found, in its state at that time; no file is read."""
    known = frame.description
    return Model(Path(os.fsdecode(frame.path)), known.format, known=known, stamp=frame.signature)


def place_of(path: Path) -> str:
    """The resolved path as text that JSON can hold, alike for all ways to name a file. A part of a split
    model keeps its name: the others are beside it."""
    # realpath, as Path.resolve() fails where links lead in a circle.
    if split_of(path) is None:
        return text_of(os.path.realpath(path))
    return text_of(os.path.join(os.path.realpath(path.parent), path.name))


def signature_of(path: Path) -> Signature:
    """Size, times of change (ns) and inode of each of a model's files; empty for one that is not there."""
    files: Iterable[Path] = sorted(weight_files(path))
    if os.path.isdir(path):
        described = (CONFIG, MODULES, TOKENIZER, SETTINGS, TEMPLATE, TEMPLATE_IN_JSON)
        files = (*files, *(path / name for name in described))
    return tuple(stamp for file in files if (stamp := stamp_of(file)) is not None)
