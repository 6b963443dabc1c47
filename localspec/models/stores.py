"""The directories in which programs keep models on this disk, and the models in them; they are only read."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec.errors import ModelError
from localspec.models.directory import CONFIG
from localspec.models.gguf import RIGHT, decode_json, first_part, read_bounded, split_of
from localspec.models.names import pulled_name

CONFIGURED = "model_dirs"
TITLES = {
    "bundled": "Bundled with localspec",
    CONFIGURED: "Your model_dirs",
    "huggingface": "Hugging Face",
    "lmstudio": "LM Studio",
    "ollama": "Ollama",
}
SERVICE = Path("/usr/share/ollama/.ollama/models")
"""Ollama's models on Linux where it runs as a system service"""
OLLAMAS_GROUP = "Run `sudo usermod -aG ollama $USER`, then log in again."
MAX_SETTINGS = 4 * 1024 * 1024
MAX_ENTRIES = 200_000
REPOSITORY = "models--"
"""beginning of a repository's directory in the hub's cache"""
SHA256 = re.compile(r"(?:sha256[:-])?([0-9a-fA-F]{64})")
OLLAMAS_MODEL = "application/vnd.ollama.image.model"
OLLAMAS_LIBRARY = re.compile(r"registry\.ollama\.ai/(library/)?")
WITHOUT_FILE = "Ollama has no GGUF file of it: it runs on Ollama's servers, or is stored as single tensors"


class StoredModel(NamedTuple):
    """A model in a store, before its files are read. ``id`` is its name there, ``hint`` more words of it,
    such as its repository's name, ``digest`` its content's sha256 where the store has it. A problem without
    a remedy gets a general one."""

    path: Path
    id: str
    hint: str = ""
    digest: str | None = None
    problem: str | None = None
    remedy: str | None = None


class ModelStore(NamedTuple):
    """A directory of models, which may be missing, and the function that reads it: it raises OSError where
    the directory cannot be read."""

    name: str
    root: Path
    scan: Callable[[Path], Iterator[StoredModel]]
    remedy: str = RIGHT


def stores_of(model_dirs: Iterable[str] = ()) -> Iterator[ModelStore]:
    """Every store that the user may have, by environment and home directory; the configured ones first."""
    for directory in model_dirs:
        yield ModelStore(CONFIGURED, Path(os.path.expanduser(directory)), scan_folder)
    yield ModelStore("huggingface", hub_cache(), scan_hub)
    caches = Path(os.path.expanduser("~")) / "Library" / "Caches" if sys.platform == "darwin" else _cache()
    yield ModelStore("llama.cpp", _read_path_variable("LLAMA_CACHE") or caches / "llama.cpp", scan_llama_cpp)
    yield ModelStore("lmstudio", _lm_studio(), scan_folder)
    ollama = _read_path_variable("OLLAMA_MODELS")
    yield ModelStore("ollama", ollama or Path(os.path.expanduser("~")) / ".ollama" / "models", scan_ollama)
    if ollama is None and sys.platform == "linux":
        yield ModelStore("ollama", SERVICE, scan_ollama, OLLAMAS_GROUP)


def hub_cache() -> Path:
    """The directory of the hub's files.
    https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"""
    named = _read_path_variable("HF_HUB_CACHE") or _read_path_variable("HUGGINGFACE_HUB_CACHE")
    return named or (_read_path_variable("HF_HOME") or _cache() / "huggingface") / "hub"


def _read_path_variable(variable: str) -> Path | None:
    """The path in an environment variable, ``~`` and variables expanded; None if it is not set."""
    value = os.environ.get(variable)
    return Path(os.path.expanduser(os.path.expandvars(value))) if value else None


def _cache() -> Path:
    return _read_path_variable("XDG_CACHE_HOME") or Path(os.path.expanduser("~")) / ".cache"


class _LmStudio(msgspec.Struct):
    downloads: str | None = msgspec.field(name="downloadsFolder", default=None)


def _lm_studio() -> Path:
    """LM Studio's models: where its settings say, or in its own directory."""
    home = Path(os.path.expanduser("~")) / ".cache" / "lm-studio"
    if not os.path.isdir(home):  # Path.is_dir raises where a directory above cannot be read
        home = Path(os.path.expanduser("~")) / ".lmstudio"
    try:
        settings = home / "settings.json"
        named = decode_json(read_bounded(settings, MAX_SETTINGS), _LmStudio, settings).downloads
    except ModelError:
        named = None
    return Path(named) if named else home / "models"


# Any directory.


def scan_folder(root: Path) -> Iterator[StoredModel]:
    """Every GGUF file and model directory under ``root`` at any depth, files first. Links are followed,
    each directory is read once. Of a split model the first part stands for all."""
    files: dict[Path, StoredModel] = {}
    folders: list[StoredModel] = []
    left = MAX_ENTRIES
    for folder, names in _walk(root):
        left -= len(names)
        if left < 0:
            problem = f"{root} has more than {MAX_ENTRIES} files: not all were searched"
            remedy = "Set model_dirs to directories that contain models and few other files."
            folders.append(StoredModel(root, root.name, problem=problem, remedy=remedy))
            break
        if CONFIG in names and any(name.endswith(".safetensors") for name in names):
            folders.append(StoredModel(folder, folder.name))
        for name in names:
            path = folder / name
            if name.lower().endswith(".gguf") and not os.path.isfile(path / CONFIG):
                first, split = first_part(path), split_of(path)
                files[first] = StoredModel(first, path.stem if split is None else split.stem)
    yield from sorted(files.values())
    yield from sorted(folders)


def _walk(root: Path) -> Iterator[tuple[Path, set[str]]]:
    """``root`` and each directory under it that can be read, with the names in it."""
    os.listdir(root)  # raises where it cannot be read
    seen: set[tuple[int, int]] = set()
    for place, below, names in os.walk(root, followlinks=True):
        folder = Path(place)
        with contextlib.suppress(OSError):
            status = folder.stat()
            if (key := (status.st_dev, status.st_ino)) not in seen:
                seen.add(key)
                yield folder, {*below, *names}
                below.sort()
                continue
        below.clear()


# The Hugging Face hub's cache, which llama.cpp uses as well: ``models--org--name/snapshots/<revision>/…``.
# huggingface_hub's own scan_cache_dir takes as long to import (0.1 s) as a whole listing may take, and
# measures every file of every repository.


def scan_hub(root: Path) -> Iterator[StoredModel]:
    for name in sorted(os.listdir(root)):
        if name.startswith(REPOSITORY) and os.path.isdir(root / name):
            yield from _repository(root / name)


def scan_llama_cpp(root: Path) -> Iterator[StoredModel]:
    """The hub's layout of newer versions, flat files of older ones."""
    yield from scan_hub(root)
    yield from (found for found in scan_folder(root) if repository_of(found.path) is None)


def repository_of(path: Path) -> str | None:
    """The ``org/name`` that a path in a hub cache belongs to; None for one anywhere else."""
    folder = next((part for part in reversed(path.parts) if part.startswith(REPOSITORY)), None)
    return None if folder is None else folder.removeprefix(REPOSITORY).replace("--", "/")


def _repository(folder: Path) -> Iterator[StoredModel]:
    name = repository_of(folder) or folder.name
    seen = set[Path]()
    for snapshot in _snapshots(folder):
        try:
            for found in (_in_snapshot(each, snapshot, name) for each in scan_folder(snapshot)):
                # A file is taken from the first revision that has it; others may have more files.
                place = found.path.relative_to(snapshot)
                if place not in seen:
                    yield found
                if found.problem is None:
                    seen.add(place)
        except OSError as error:
            yield StoredModel(snapshot, _short(name), problem=f"{snapshot} cannot be read: {error.strerror}")


def _in_snapshot(found: StoredModel, snapshot: Path, name: str) -> StoredModel:
    """A model of a snapshot, named by its repository where the path has only a revision."""
    id = _short(name) if found.path == snapshot else found.id
    if os.path.islink(found.path) and not os.path.exists(found.path):
        problem = f"its download was not completed: {found.path.name}"
        again = f"Download it again: `localspec models pull {shlex.quote(pulled_name(name, found.path))}`."
        return StoredModel(found.path, id, name, problem=problem, remedy=again)
    blob = SHA256.fullmatch(os.path.basename(os.path.realpath(found.path)))
    return found._replace(id=id, hint=name, digest=blob and blob[1])


def _snapshots(folder: Path) -> list[Path]:
    """The snapshots, that of ``main`` first."""
    try:
        main = read_bounded(folder / "refs" / "main", MAX_SETTINGS).decode(errors="replace").strip()
    except ModelError:
        main = ""
    found = filter(os.path.isdir, glob.glob(f"{glob.escape(str(folder))}/snapshots/*"))
    return sorted(map(Path, found), key=lambda path: (path.name != main, path.name))


def _short(name: str) -> str:
    return name.rpartition("/")[2]


# Ollama: ``manifests/<host>/<namespace>/<model>/<tag>``, each of which names blobs by digest.


class _Layer(msgspec.Struct):
    digest: str
    media_type: str = msgspec.field(name="mediaType", default="")


class _Manifest(msgspec.Struct):
    layers: list[_Layer] | None = None


def scan_ollama(root: Path) -> Iterator[StoredModel]:
    manifests = root / "manifests"  # which Ollama makes with the first model
    os.listdir(manifests if os.path.lexists(manifests) else root)  # raises where it cannot be read
    for name in sorted(glob.glob("*/*/*/*", root_dir=manifests)):
        if os.path.isfile(manifest := manifests / name):
            yield _of_manifest(root, manifest, OLLAMAS_LIBRARY.sub("", name))


def _of_manifest(root: Path, manifest: Path, name: str) -> StoredModel:
    id = ":".join(name.rsplit("/", 1))

    def bad(problem: str, remedy: str = f"Pull it again: `ollama pull {shlex.quote(id)}`.") -> StoredModel:
        return StoredModel(manifest, id, problem=problem, remedy=remedy)

    try:
        content = decode_json(read_bounded(manifest, MAX_SETTINGS), _Manifest, manifest)
    except ModelError as error:
        return bad(error.message)
    named = next((each.digest for each in content.layers or () if each.media_type == OLLAMAS_MODEL), "")
    digest = SHA256.fullmatch(named)
    if digest is None:
        return bad(WITHOUT_FILE, "Choose another model.")
    blob = root / "blobs" / f"sha256-{digest[1].lower()}"
    if not os.path.exists(blob):
        return bad(f"its download is incomplete: {blob} is missing")
    return StoredModel(blob, id, digest=digest[1].lower())
