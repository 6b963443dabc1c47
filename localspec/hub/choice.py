"""A repository as the hub lists it, and the choice of its files that make up the wanted model."""

from __future__ import annotations

import re
from collections import defaultdict
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Annotated, NamedTuple

import msgspec
from msgspec.structs import replace

from localspec.errors import INSTALL_MLX, InvalidOptions, ModelInvalid, ModelNotFound, ModelTooLarge
from localspec.hub.download import append
from localspec.hub.faults import connect, endpoint, translate_errors
from localspec.hub.records import HubFile, Pulled
from localspec.models.catalogue import CATALOGUE, DEFAULT, Entry, Wheels
from localspec.models.descriptions import has_mlx
from localspec.models.names import PREFERRED, label_of
from localspec.models.needs import PROCESS
from localspec.wording import GB, MB, size

MAX_FILE = 1 << 40
MAX_LISTING = 32 * MB
GitId = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{40}\Z")]
OTHER = "Choose another repository."

BYTES_PER_CORE = 600 * MB
"""bytes of weights for each core that are read fast enough: 1.1 GB give 28 tokens a second on 2 old cores"""
BYTES_PER_S = 15 * GB
"""bytes of weights that a core reads in a second, as measured on these"""
MOST_PER_S = 40 * GB
"""what the memory of a laptop gives all its cores"""
DEVICE = 3
"""times as many with a GPU that shares the memory"""
MLX_FILES = (
    *("*.json", "model*.safetensors", "weights*.safetensors", "tokenizer.model", "*.tiktoken"),
    *("*.txt", "*.jinja"),
)
"""the files that mlx-lm reads of a directory, without code"""
NO_MODELS = re.compile(r"mmproj|imatrix|ggml-vocab|^mtp-", re.IGNORECASE)
"""names of GGUF files that are not models; ``mtp-`` has a head beside its model"""

_NAME = re.compile(r"(?!.*(?:--|\.\.))(\w[\w.-]{0,95}/\w[\w.-]{0,95})(?::(.+))?", re.ASCII)
_UNSAFE = re.compile(r'(^|/)(\.{0,2}|[^/]{256,})(/|$)|[\\:*?"<>|]')
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})$")


class Listing(NamedTuple):
    """A repository at one commit."""

    repo: str
    commit: str
    files: tuple[HubFile, ...]


class Wanted(NamedTuple):
    """A request for a model: a repository, and the quantisation or file if given; ``mlx``: its directory,
    also if there are GGUF files or MLX is not installed."""

    repo: str
    quantisation: str | None = None
    file: str | None = None
    mlx: bool = False


class DownloadChoice(NamedTuple):
    """A model of a repository at its place in the cache, the reason for it (``why``), and the packages of
    the index where it comes from these instead of the hub."""

    model: Pulled
    quantisation: str | None
    why: str = ""
    wheels: Wheels | None = None

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def size(self) -> int:
        return sum(file.size for file in self.model.files)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(file.name for file in self.model.files)

    @property
    def label(self) -> str:
        return self.quantisation or self.names[0]

    @property
    def so_far(self) -> int:
        """Bytes of it that are in the cache."""
        return sum(map(self.model.so_far, self.model.files))

    @property
    def path(self) -> Path:
        """The path for `-m`: the file, the first of its parts, or the directory."""
        return self.model.paths[0]

    def rename(self, name: str, why: str) -> DownloadChoice:
        """The same choice by another name, and for this reason."""
        return self._replace(model=replace(self.model, name=name), why=why)


class _Lfs(msgspec.Struct):
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class _File(msgspec.Struct, rename="camel"):
    rfilename: Annotated[str, msgspec.Meta(max_length=1024)]
    size: Annotated[int, msgspec.Meta(ge=0, le=MAX_FILE)]
    blob_id: GitId
    lfs: _Lfs | None = None

    def __post_init__(self) -> None:
        if _UNSAFE.search(self.rfilename) or not self.rfilename.isprintable():
            raise ValueError(f"{self.rfilename[:200]!r} is an unsafe path")


class _RepositoryListing(msgspec.Struct):
    sha: GitId
    siblings: tuple[_File, ...] = ()


def read_listing(repo: str) -> Listing:
    """Request the hub's listing of ``repo`` at its newest commit; raises what
    ``faults.translate_errors`` does, also for an unsafe name, size or checksum."""
    answer = BytesIO()
    with translate_errors(repo), connect() as client:
        append(client, f"{endpoint()}/api/models/{repo}?blobs=true", answer, MAX_LISTING)
        return parse_listing(repo, answer.getvalue())


def parse_listing(repo: str, answer: bytes) -> Listing:
    """A listing as the hub sends it; raises ValueError and RecursionError."""
    found = msgspec.json.decode(answer, type=_RepositoryListing)
    files = ((each, each.lfs.sha256 if each.lfs else each.blob_id) for each in found.siblings)
    return Listing(
        repo, found.sha, tuple(HubFile(each.rfilename, each.size, digest) for each, digest in files)
    )


def parse_name(text: str) -> Wanted:
    """ORG/NAME or ORG/NAME:QUANTISATION; raises :class:`ModelNotFound` for any other text."""
    if (found := _NAME.fullmatch(text)) is None:
        raise ModelNotFound(
            f"{text!r} is neither a name of the catalogue nor that of a repository",
            f"Write one of {', '.join(CATALOGUE)}; or ORG/NAME or ORG/NAME:QUANTISATION, as the hub has it.",
        )
    return Wanted(found[1], found[2])


def choose(listing: Listing, wanted: Wanted, free: int) -> DownloadChoice:
    """The wanted model, or of several the one that suits this machine's ``free`` bytes of memory.
    Raises :class:`ModelNotFound` for a model that the repository does not have,
    :class:`ModelInvalid` for a repository without a model, or with parts missing, :class:`ModelTooLarge`
    where no model fits and none was named, and :class:`InvalidOptions` where a name means several."""
    repo, models, name = listing.repo, _models(listing), wanted.file or wanted.quantisation
    if wanted.mlx or (wanted.file is None and not models):
        return _directory(listing, wanted, free)
    if not models:
        raise ModelInvalid(f"{repo} has no GGUF file with a model", OTHER)
    if wanted.file is not None:
        found, why = [model for model in models if wanted.file in model.names], "the requested file"
    elif name is not None:
        found, why = [model for model in models if _alike(model.label, name)], "the requested quantisation"
    else:
        found, why = _fitting(models, free)
    if not found:
        known = ", ".join(sorted(model.names[0] if wanted.file else model.label for model in models))
        raise ModelNotFound(f"{repo} has no {name}; it has {known}", "Name one of these.")
    chosen = found[0]
    if len(found) > 1:
        names = ", ".join(model.names[0] for model in found)
        raise InvalidOptions(f"{repo} has several files of {chosen.label}: {names}", "Name one with --file.")
    _check_parts(chosen)
    return chosen.rename(f"{repo}/{wanted.file}" if wanted.file else chosen.name, why)


def needs(size: int) -> int:
    """Estimated bytes of memory for files of this size: no header is here yet that tells the KV cache."""
    return size + size // 8 + PROCESS


def propose_model(free: int, cores: float, *, on_device: bool) -> Entry:
    """The model of the catalogue to propose for ``free`` bytes of memory, and so many cores, any number for a
    GPU's own memory: the largest one for code that fits beside its draft model and is read fast enough."""
    readable = (DEVICE if on_device else 1) * cores * BYTES_PER_CORE

    def fits(entry: Entry) -> bool:
        return entry.size <= readable and estimate_pair_memory(entry) <= free

    good = [each for each in CATALOGUE.values() if each.fim and fits(each)]
    return max(good, key=lambda entry: entry.size, default=CATALOGUE[DEFAULT])


def estimate_pair_memory(entry: Entry) -> int:
    """Estimated bytes of memory for a model of the catalogue and its draft model."""
    return needs(entry.size) + (0 if entry.draft is None else needs(CATALOGUE[entry.draft].size))


def expected_speed(entry: Entry, cores: int) -> float:
    """Estimated tokens a second without a GPU: each token reads all the weights."""
    return min(cores * BYTES_PER_S, MOST_PER_S) / entry.size


def _directory(listing: Listing, wanted: Wanted, free: int) -> DownloadChoice:
    """The model for MLX: the whole directory."""
    repo = listing.repo
    files = tuple(
        file
        for file in listing.files
        if "/" not in file.name and any(fnmatch(file.name, form) for form in MLX_FILES)
    )
    choice = DownloadChoice(
        Pulled(repo, repo, listing.commit, "mlx", files), None, "the whole directory, for MLX"
    )
    if "config.json" not in choice.names or not any(fnmatch(name, "*.safetensors") for name in choice.names):
        raise ModelInvalid(f"{repo} has neither GGUF files nor a config.json with safetensors", OTHER)
    if not wanted.mlx and not has_mlx():
        raise ModelInvalid(
            f"{repo} has only safetensors files; MLX, which reads them, is not installed",
            f"Look for a repository with GGUF files, or add --mlx to download it all the same. {INSTALL_MLX}",
        )
    named = wanted.quantisation
    if named is not None and named.lower() not in repo.lower():
        raise ModelNotFound(
            f"{repo} has no quantisation {named}: it is an MLX directory, which has only one",
            "Leave the quantisation out; each has a repository of its own.",
        )
    if needs(choice.size) > free and not wanted.mlx and named is None:
        raise _too_large(choice, free, "add --mlx")
    return choice


def _models(listing: Listing) -> list[DownloadChoice]:
    """The GGUF models of a repository, the parts of each in order."""
    parts: dict[str, list[HubFile]] = defaultdict(list)
    for file in listing.files:
        path = PurePosixPath(file.name)
        if path.suffix == ".gguf" and not NO_MODELS.search(path.name):
            parts[_SPLIT.sub("", str(path.with_suffix("")))].append(file)
    models = []
    for stem, files in parts.items():
        label = label_of(PurePosixPath(stem))
        name = f"{listing.repo}:{label}" if label else listing.repo
        models.append(
            DownloadChoice(Pulled(name, listing.repo, listing.commit, "gguf", tuple(sorted(files))), label)
        )
    return models


def _alike(label: str, other: str) -> bool:
    return label.upper().replace("-", "_") == other.upper().replace("-", "_")


def _fitting(models: list[DownloadChoice], free: int) -> tuple[list[DownloadChoice], str]:
    """The preferred model, or where memory is short, the largest of the smaller ones that fit; and why."""
    best = min(models, key=lambda model: ((*PREFERRED, model.label).index(model.label), -model.size))
    chosen, why = best, f"{best.label} takes {size(needs(best.size))} of memory, {size(free)} are free"
    if needs(best.size) > free:
        least = min(models, key=lambda model: model.size)
        models = [model for model in models if model.size < best.size and needs(model.size) <= free]
        if not models:
            raise _too_large(least, free, f"name it: {least.name}")
        chosen = max(models, key=lambda model: model.size)
        why = f"{chosen.label}, as {why.replace(' takes ', ' would take ')}"
    return [model for model in models if model.quantisation == chosen.quantisation], why


def _check_parts(model: DownloadChoice) -> None:
    """Raise :class:`ModelInvalid` where the repository has not all parts of a split model."""
    parts = [part.groups() for name in model.names if (part := _SPLIT.search(name.removesuffix(".gguf")))]
    total = parts[-1][1] if parts else ""
    if parts != [(f"{number:05}", total) for number in range(1, int(total or 0) + 1)]:
        raise ModelInvalid(f"{model.name} is split into {int(total)} parts, and the hub has not all", OTHER)


def _too_large(choice: DownloadChoice, free: int, anyway: str) -> ModelTooLarge:
    return ModelTooLarge(
        f"{choice.name} would take {size(needs(choice.size))} of memory, and {size(free)} are free",
        f"Choose a smaller model; to download it all the same, {anyway}.",
    )
