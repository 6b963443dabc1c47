"""The choice of a repository's files that make up the wanted model."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import NamedTuple

from localspec.errors import INSTALL_MLX, InvalidOptions, ModelInvalid, ModelNotFound, ModelTooLarge
from localspec.hub.listing import OTHER, HubFile, Listing, check_repo
from localspec.models.description import Format, has_mlx
from localspec.models.fit import PROCESS
from localspec.models.names import PREFERRED, label_of
from localspec.units import size

FOR_DRAFTS = ("Q8_0", *PREFERRED)
"""quantisations for draft models, best first: small models lose more by few bits, and save little memory"""

MLX_FILES = (
    *("*.json", "model*.safetensors", "weights*.safetensors", "tokenizer.model", "*.tiktoken"),
    *("*.txt", "*.jinja"),
)
"""the files that mlx-lm reads of a directory, without code"""
NO_MODELS = ("mmproj", "imatrix", "ggml-vocab")
"""parts of the names of GGUF files that are not models"""
HEAD = "mtp-"
"""prefix that llama.cpp's converter gives to the names of heads beside their models"""

_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})$")


class Wanted(NamedTuple):
    """A request for a model: a repository, and the quantisation, file or format if given."""

    repo: str
    quantisation: str | None = None
    file: str | None = None
    format: Format | None = None


class Choice(NamedTuple):
    """A model of a repository: its files, the one to name first, the reason for it (``why``), and the other
    quantisations where none was requested."""

    name: str
    format: Format
    files: tuple[HubFile, ...]
    quantisation: str | None
    why: str
    others: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class _Variant(NamedTuple):
    """A GGUF model of a repository, in one file or in parts."""

    stem: str
    label: str | None
    files: tuple[HubFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def parse_name(text: str) -> Wanted:
    """ORG/NAME or ORG/NAME:QUANTISATION; raises :class:`InvalidOptions`."""
    if "://" in text:
        name = "/".join(text.rpartition("://")[2].split("/")[1:3])
        raise InvalidOptions(
            f"{text!r} is an address, not the name of a repository", f"Write {name or 'ORG/NAME'}."
        )
    repo, colon, quantisation = text.partition(":")
    check_repo(repo)
    if colon and not quantisation:
        raise InvalidOptions(
            f"{text!r} has no quantisation after the colon", "Write ORG/NAME or ORG/NAME:QUANTISATION."
        )
    return Wanted(repo, quantisation or None)


def choose(
    listing: Listing,
    wanted: Wanted,
    free: int,
    *,
    preferred: Sequence[str] = PREFERRED,
    mlx: bool | None = None,
) -> Choice:
    """The wanted model, or of several the one that suits this machine's ``free`` bytes of memory.

    ``mlx``: True if MLX is installed. Raises :class:`ModelNotFound` for a model that the repository does not
    have, :class:`ModelInvalid` for a repository without a model, or with parts missing,
    :class:`ModelTooLarge` where no model fits and none was named, and :class:`InvalidOptions` where a name
    means several.
    """
    format = wanted.format or _format(listing, wanted, has_mlx() if mlx is None else mlx)
    if format == "mlx":
        return _directory(listing, wanted, free)
    variants = _variants(listing)
    if not variants:
        raise ModelInvalid(f"{listing.repo} has no GGUF file with a model", OTHER)
    if wanted.file is not None:
        return _of_file(listing, wanted.file, variants)
    if wanted.quantisation is not None:
        return _of_label(listing, wanted.quantisation, variants)
    chosen = _fitting(listing, variants, free, preferred)
    labels = {variant.label for variant in variants if variant.label} - {chosen.quantisation}
    return chosen._replace(others=tuple(sorted(labels)))


def needs(size: int) -> int:
    """Estimated bytes of memory for files of this size: KV cache and buffers count as an eighth, as the
    headers are not here yet."""
    return size + size // 8 + PROCESS


def _format(listing: Listing, wanted: Wanted, mlx: bool) -> Format:
    """The format to download: GGUF where there is any, as it comes in many sizes, else MLX."""
    names = [file.name for file in listing.files]
    if wanted.file is not None or any(name.endswith(".gguf") for name in names):
        return "gguf"
    if not any(fnmatch(name, "*.safetensors") for name in names):
        raise ModelInvalid(f"{listing.repo} has neither GGUF files nor safetensors", OTHER)
    if not mlx:
        raise ModelInvalid(
            f"{listing.repo} has only safetensors files; MLX, which reads them, is not installed",
            f"Look for a repository with GGUF files, or add --mlx to download it all the same. {INSTALL_MLX}",
        )
    return "mlx"


def _directory(listing: Listing, wanted: Wanted, free: int) -> Choice:
    files = tuple(file for file in listing.files if any(fnmatch(file.name, form) for form in MLX_FILES))
    files = tuple(file for file in files if "/" not in file.name)
    names = {file.name for file in files}
    if "config.json" not in names or not any(name.endswith(".safetensors") for name in names):
        raise ModelInvalid(f"{listing.repo} has no config.json with safetensors, which MLX needs", OTHER)
    quantisation = wanted.quantisation
    if quantisation is not None and quantisation.lower() not in listing.repo.lower():
        raise ModelNotFound(
            f"{listing.repo} has no quantisation {quantisation}: it is an MLX directory, which has only one",
            "Leave the quantisation out; each has a repository of its own.",
        )
    choice = Choice(listing.repo, "mlx", files, None, "the whole directory, for MLX")
    if needs(choice.size) > free and wanted.format is None and quantisation is None:
        raise _too_large(choice, free, "add --mlx")
    return choice


def _variants(listing: Listing) -> list[_Variant]:
    """The GGUF models of a repository, the parts of each in order."""
    parts: dict[str, list[HubFile]] = defaultdict(list)
    for file in listing.files:
        path = PurePosixPath(file.name)
        name = path.name.lower()
        is_part = name.startswith(HEAD) or any(word in name for word in NO_MODELS)
        if path.suffix == ".gguf" and not is_part:
            parts[_SPLIT.sub("", str(path.with_suffix("")))].append(file)
    return [
        _Variant(stem, label_of(PurePosixPath(stem)), tuple(sorted(files))) for stem, files in parts.items()
    ]


def _of_file(listing: Listing, name: str, variants: Sequence[_Variant]) -> Choice:
    for variant in variants:
        if any(file.name == name for file in variant.files):
            return _chosen(listing, variant, "the requested file", name=f"{listing.repo}/{name}")
    known = [file.name for variant in variants for file in variant.files]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ModelNotFound(
        f"{listing.repo} has no model file {name!r}{hint}", "Give a file's name as the hub lists it."
    )


def _of_label(listing: Listing, label: str, variants: Sequence[_Variant]) -> Choice:
    def plain(text: str | None) -> str:
        return (text or "").upper().replace("-", "_")

    matching = [variant for variant in variants if plain(variant.label) == plain(label)]
    if not matching:
        labels = sorted({variant.label for variant in variants if variant.label})
        has = f"it has {', '.join(labels)}" if labels else "no quantisation is in its files' names"
        raise ModelNotFound(
            f"{listing.repo} has no quantisation {label}; {has}", "Name one of these, or a file with --file."
        )
    return _only(listing, matching, "the requested quantisation")


def _only(listing: Listing, matching: Sequence[_Variant], why: str) -> Choice:
    if len(matching) > 1:
        files = ", ".join(variant.files[0].name for variant in matching)
        label = matching[0].label or "GGUF model"
        raise InvalidOptions(f"{listing.repo} has several files of {label}: {files}", "Name one with --file.")
    return _chosen(listing, matching[0], why)


def _fitting(listing: Listing, variants: Sequence[_Variant], free: int, preferred: Sequence[str]) -> Choice:
    """The preferred one; where memory is short, the largest of the smaller ones that fit."""

    def rank(variant: _Variant) -> tuple[int, int]:
        known = variant.label in preferred
        return (preferred.index(variant.label or "") if known else len(preferred), -variant.size)

    best = min(variants, key=rank)
    if needs(best.size) <= free:
        alike = [variant for variant in variants if variant.label == best.label]
        return _only(
            listing,
            alike,
            f"{_shown_name(best)} takes {size(needs(best.size))} of memory, {size(free)} are free",
        )
    smaller = [variant for variant in variants if variant.size < best.size and needs(variant.size) <= free]
    if not smaller:
        least = min(variants, key=lambda variant: variant.size)
        raise _too_large(_chosen(listing, least, ""), free, f"name it: {listing.repo}:{least.label}")
    found = max(smaller, key=lambda variant: variant.size)
    short = f"would take {size(needs(best.size))} of memory, {size(free)} are free"
    why = f"{_shown_name(found)}, as {_shown_name(best)} {short}"
    return _only(listing, [variant for variant in smaller if variant.label == found.label], why)


def _shown_name(variant: _Variant) -> str:
    return variant.label or variant.files[0].name


def _chosen(listing: Listing, variant: _Variant, why: str, *, name: str | None = None) -> Choice:
    _check_parts(listing, variant)
    label = variant.label
    named = name or (f"{listing.repo}:{label}" if label else listing.repo)
    return Choice(named, "gguf", variant.files, label, why)


def _check_parts(listing: Listing, variant: _Variant) -> None:
    """Raises :class:`ModelInvalid` where the repository has not all parts of a split model."""
    found = [_SPLIT.search(PurePosixPath(file.name).stem) for file in variant.files]
    numbers = [int(part[1]) for part in found if part]
    expected = {int(part[2]) for part in found if part} or {0}
    if len(expected) > 1 or numbers != list(range(1, max(expected) + 1)):
        raise ModelInvalid(
            f"{listing.repo} has parts {numbers} of {variant.stem}, which is split into {max(expected)}",
            OTHER,
        )


def _too_large(choice: Choice, free: int, anyway: str) -> ModelTooLarge:
    return ModelTooLarge(
        f"{choice.name} would take {size(needs(choice.size))} of memory, and {size(free)} are free",
        f"Choose a smaller model; to download it all the same, {anyway}.",
    )
