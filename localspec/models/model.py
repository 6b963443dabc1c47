"""One model on this disk, as a value made once by :mod:`localspec.models.library`, and its vocabulary.

The description of a model is made from the headers alone, with the reason if the model cannot be used. The
vocabulary is read from the model's files: for its fingerprint, and to find whether another model can draft
for it.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from localspec.errors import ModelError, ModelInvalid, TokenizerMismatch
from localspec.home import stamp_of
from localspec.models.directory import (
    CONFIG,
    SETTINGS,
    TEMPLATE,
    TEMPLATE_IN_JSON,
    TOKENIZER,
    ModelDirectory,
    TokenTexts,
    chat_template,
    is_directory_model,
    read_directory,
    read_settings,
    read_tokenizer,
    text_of_token,
)
from localspec.models.gguf import REMEDY, GgufHeader, read_header, shown, split_of
from localspec.models.names import Parts, pulled_name
from localspec.models.stores import REPOSITORY, repository_of
from localspec.protocol.frames import ModelFile, Signature
from localspec.protocol.messages import ModelDescription

Decoder = Callable[[str], bytes]
Fit = Literal["exact", "compatible"]

FITS: dict[Fit, str] = {"exact": "same vocabulary", "compatible": "compatible vocabularies"}
"""the results of a comparison, for messages"""
MAX_SIZE_DIFFERENCE = 128
FIRST_COMPARED = 5
BOS_BY_KIND = ("llama", "bert")
BOS_BY_PRETOKENIZER = (
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    *("jina-v5-nano", "tekken", "chameleon"),
)
"""pre-tokenizers for which llama.cpp adds BOS though the file does not say so (src/llama-vocab.cpp)"""

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def _gpt2_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes, as byte-level BPE files write them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


ALPHABET = _gpt2_alphabet()
_NO_LATIN_1 = 0xFFFF
_AS_LATIN_1 = dict.fromkeys(range(256), _NO_LATIN_1) | {ord(char): byte for char, byte in ALPHABET.items()}
"""a stand-in's byte as the character of that number; other characters map to one that fails to encode"""
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level(text: str) -> bytes:
    """The bytes of a byte-level BPE token as its file writes it."""
    try:
        return text.translate(_AS_LATIN_1).encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def sentencepiece(text: str) -> bytes:
    """The bytes of a SentencePiece token as its file writes it."""
    byte = BYTE_TOKEN.fullmatch(text)
    if byte:
        return bytes.fromhex(byte[1])
    return text.replace("▁", " ").encode()


class Tokens(NamedTuple):
    """A vocabulary as it is compared: the bytes of all real tokens by id, the number of tokens in a row of
    logits, the tokenizer's kind, BOS if it is added, EOS."""

    texts: Mapping[int, bytes]
    size: int
    kind: str = ""
    bos: int | None = None
    eos: int | None = None


def read_tokens(path: Path) -> Tokens:
    """Read a model's vocabulary for comparison; raises :class:`ModelError`, also where it has none."""
    tokens = _of_directory(path) if is_directory_model(path) else _of_file(path)
    if not tokens.texts:
        raise ModelInvalid(f"{path} has no vocabulary")
    return tokens


def _of_file(path: Path) -> Tokens:
    header = read_header(path)
    found = header.metadata
    kind = str(found.get("tokenizer.ggml.model", ""))
    by_default = kind in BOS_BY_KIND or found.get("tokenizer.ggml.pre") in BOS_BY_PRETOKENIZER
    bos = found.get("tokenizer.ggml.bos_token_id")
    return Tokens(
        texts=gguf_tokens(header),
        size=header.n_tokens,
        kind=kind,
        bos=bos if found.get("tokenizer.ggml.add_bos_token", by_default) else None,
        eos=found.get("tokenizer.ggml.eos_token_id"),
    )


def _of_directory(path: Path) -> Tokens:
    read = read_tokenizer(path)
    texts = _tokens(read)
    ids = {text: token for token, text in texts.items()}
    settings = read_settings(path)

    def id_of(name: str) -> int | None:
        text = text_of_token(settings.get(name))
        return None if text is None else ids.get(text.encode("utf-8", "replace"))

    return Tokens(
        texts=texts,
        size=read.size or len(texts),
        kind="byte-level" if read.byte_level else "SentencePiece",
        bos=None if settings.get("add_bos_token") is False else id_of("bos_token"),
        eos=id_of("eos_token"),
    )


def vocab_fp(tokens: Mapping[int, bytes]) -> str:
    """The fingerprint of a vocabulary: sha256 over (id, bytes) of its real tokens, 16 hex digits.

    It is equal for GGUF and tokenizer.json.
    """
    digest = hashlib.sha256()
    for token, text in tokens.items():
        digest.update(b"%d:%d:" % (token, len(text)))
        digest.update(text)
    return digest.hexdigest()[:16]


def gguf_tokens(header: GgufHeader) -> dict[int, bytes]:
    """The real tokens of a GGUF file by id, without padding and unused ids."""
    texts = header.metadata.get("tokenizer.ggml.tokens") or ()
    types = header.metadata.get("tokenizer.ggml.token_type") or (NORMAL,) * len(texts)
    own, added = _decoders(of_bytes=header.metadata.get("tokenizer.ggml.model") == "gpt2")
    return {
        token: added(text) if kind in (CONTROL, USER_DEFINED) else own(text)
        for token, (text, kind) in enumerate(zip(texts, types, strict=False))
        if kind != UNUSED and not _is_padding(token, text)
    }


def directory_tokens(path: Path) -> dict[int, bytes]:
    """The real tokens of a model directory by id, in order, without padding and ids that the model cannot
    produce.

    Raises :class:`ModelInvalid` where its ``tokenizer.json`` is missing or invalid.
    """
    return _tokens(read_tokenizer(path))


def _tokens(texts: TokenTexts) -> dict[int, bytes]:
    own, added = _decoders(of_bytes=texts.byte_level)
    tokens = {token: (text, own) for token, text in texts.own.items()}
    tokens |= {token: (text, added) for token, text in texts.added.items()}
    return {
        token: decode(text)
        for token, (text, decode) in sorted(tokens.items())
        if (texts.size is None or token < texts.size) and not _is_padding(token, text)
    }


def _decoders(*, of_bytes: bool) -> tuple[Decoder, Decoder]:
    """The functions that give the bytes of a model's own tokens, and of those added to it as literal text.

    With SentencePiece the spaces of the latter, too, may be written as ▁: converters differ.
    """
    return (byte_level, str.encode) if of_bytes else (sentencepiece, sentencepiece)


def _is_padding(token: int, text: str) -> bool:
    """True if this only fills an id that no token has, as llama.cpp's converter writes it."""
    return text.startswith("[PAD") and text == f"[PAD{token}]"


def check_pair(target: Tokens, draft: Tokens) -> Fit:
    """Compare two vocabularies; raise :class:`TokenizerMismatch` naming the first difference.

    The rule for those that differ is llama.cpp's (common/speculative.cpp): the same kind, the same BOS and
    EOS, a size difference of at most 128, equal text for every id from 5 on.
    """
    if target.texts == draft.texts:
        return "exact"
    check_sizes(target.size, draft.size)
    for name in ("kind", "bos", "eos"):
        own, targets = getattr(draft, name), getattr(target, name)
        if own != targets:
            label = "kind of tokenizer" if name == "kind" else name.upper()
            raise TokenizerMismatch(f"the draft model's {label} is {own}, the target's is {targets}")
    wanted, found = target.texts.get, draft.texts.get
    for token in range(FIRST_COMPARED, min(target.size, draft.size)):
        if wanted(token) != found(token):
            differs = f"token {token} is {_shown(found(token))}, the target's is {_shown(wanted(token))}"
            raise TokenizerMismatch(f"the draft model's {differs}")
    return "compatible"


def check_sizes(target: int, draft: int) -> None:
    """Raise :class:`TokenizerMismatch` where the numbers of tokens alone rule a pair out."""
    if abs(target - draft) > MAX_SIZE_DIFFERENCE:
        raise TokenizerMismatch(f"the draft model's vocabulary has {draft} tokens, the target's {target}")


def _shown(text: bytes | None) -> str:
    return "unused" if text is None else shown(text)


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


@dataclass(frozen=True)
class Model:
    """A model's file or directory; equal to another one at the same path.

    ``path`` is absolute and unresolved: links in a store have names, their targets have digests. ``known`` is
    the description of a model that is in a store, ``parts`` its name taken apart (None: bundled, or not
    usable). ``stamp`` is the state of its files when ``known`` was read. Place, header, description
    and signature are read once, at their first use.
    """

    path: Path
    format: Format = field(compare=False)
    known: ModelDescription | None = field(default=None, compare=False, repr=False)
    parts: Parts | None = field(default=None, compare=False, repr=False)
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
        return self.known or describe(self.own_name, self.path, self.format, lambda: self.header)

    @property
    def problem(self) -> str | None:
        """The reason why it cannot be used; None if it can."""
        return self.description.problem

    @cached_property
    def weight_bytes(self) -> int:
        """The bytes of its weight files."""
        return weights_size(self.path)

    @property
    def is_current(self) -> bool:
        """True if its files are as they were when it was found."""
        return self.signature == signature_of(self.path)

    def as_listed(self, listed: Model) -> Model:
        """The model with the description and the names that the list has for it, or for a copy of it."""
        stamp = listed.stamp if self.place == listed.place else None
        return replace(self, known=listed.known, parts=listed.parts, stamp=stamp)

    def as_frame(self) -> ModelFile:
        """The frame that sends the model to another process."""
        return ModelFile(os.fsencode(self.path), self.signature, self.description)


def model_at(path: Path) -> Model:
    """The model at a path, which must be a model's file or directory."""
    return Model(path, format_of(path))


def model_from(frame: ModelFile) -> Model:
    """The model that another process found, in its state at that time; no file is read."""
    known = frame.description
    return Model(Path(os.fsdecode(frame.path)), known.format, known=known, stamp=frame.signature)


def place_of(path: Path) -> str:
    """The resolved path as text that JSON can hold, alike for all ways to name a file.

    A part of a split model keeps its name: the others are beside it.
    """
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
