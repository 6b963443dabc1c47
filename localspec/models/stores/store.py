"""The stores of models that a user may have, by environment and home directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec.errors import ModelError
from localspec.models.bounded import RIGHT, decode_json, read_bounded
from localspec.models.stores.folder import scan_folder
from localspec.models.stores.found import Found
from localspec.models.stores.hub import scan_hub
from localspec.models.stores.jan import scan_jan
from localspec.models.stores.ollama import scan_ollama

CONFIGURED = "model_dirs"
TITLES = {
    "bundled": "Bundled with localspec",
    CONFIGURED: "Your model_dirs",
    "huggingface": "Hugging Face",
    "lmstudio": "LM Studio",
    "ollama": "Ollama",
    "jan": "Jan",
}
"""titles of the stores, for those whose name is not the title"""
SERVICE = Path("/usr/share/ollama/.ollama/models")
"""Ollama's models on Linux where it runs as a system service"""
OLLAMAS_GROUP = "Run `sudo usermod -aG ollama $USER`, then log in again."
MAX_SETTINGS = 1024 * 1024


class Store(NamedTuple):
    """A directory of models, which may be missing, and the function that reads it."""

    name: str
    root: Path
    scan: Callable[[Path], Iterator[Found]]
    remedy: str = RIGHT


class User(NamedTuple):
    """The user whose stores are read."""

    environ: Mapping[str, str]
    home: Path
    system: str

    @classmethod
    def here(cls) -> User:
        """The user of this process."""
        return cls(os.environ, Path(os.path.expanduser("~")), sys.platform)

    def path(self, variable: str) -> Path | None:
        """The path in an environment variable, ``~`` and variables expanded; None if it is not set."""
        value = self.environ.get(variable)
        return Path(os.path.expanduser(os.path.expandvars(value))) if value else None


def stores_of(user: User, model_dirs: Iterable[str] = ()) -> Iterator[Store]:
    """Every store that may exist, the configured directories first."""
    for directory in model_dirs:
        yield Store(CONFIGURED, Path(os.path.expanduser(directory)), scan_folder)
    yield Store("huggingface", hub_cache(user), scan_hub)
    yield Store("llama.cpp", _llama_cpp(user), _scan_llama_cpp)
    yield Store("lmstudio", _lm_studio(user), scan_folder)
    for root in _ollama(user):
        yield Store("ollama", root, scan_ollama, OLLAMAS_GROUP if root == SERVICE else RIGHT)
    yield Store("jan", _jan(user), scan_jan)


def hub_cache(user: User) -> Path:
    """The directory of the hub's files.

    https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    """
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if named := user.path(variable):
            return named
    cache = user.path("XDG_CACHE_HOME") or user.home / ".cache"
    return (user.path("HF_HOME") or cache / "huggingface") / "hub"


def _llama_cpp(user: User) -> Path:
    """llama.cpp's cache, as its common/common.cpp finds it (fs_get_cache_directory)."""
    if named := user.path("LLAMA_CACHE"):
        return named
    if user.system == "darwin":
        return user.home / "Library" / "Caches" / "llama.cpp"
    return (user.path("XDG_CACHE_HOME") or user.home / ".cache") / "llama.cpp"


def _scan_llama_cpp(root: Path) -> Iterator[Found]:
    """Flat files of older versions, the hub's layout of newer ones."""
    hub = list(scan_hub(root))
    inside = {found.path for found in hub}
    yield from hub
    yield from (found for found in scan_folder(root) if found.path not in inside)


def _lm_studio(user: User) -> Path:
    home = _pointer(user.home / ".lmstudio-home-pointer") or user.home / ".cache" / "lm-studio"
    if not os.path.isdir(home):  # Path.is_dir raises where a directory above cannot be read
        home = user.home / ".lmstudio"
    return _downloads(home / "settings.json") or home / "models"


class _Settings(msgspec.Struct):
    downloads: str | None = msgspec.field(name="downloadsFolder", default=None)


def _downloads(settings: Path) -> Path | None:
    try:
        named = decode_json(read_bounded(settings, MAX_SETTINGS), _Settings, settings).downloads
    except ModelError:
        return None
    return Path(named) if named else None


def _pointer(path: Path) -> Path | None:
    try:
        named = read_bounded(path, MAX_SETTINGS).decode().strip()
    except (ModelError, ValueError):
        return None
    return Path(named) if named and "\0" not in named else None


def _ollama(user: User) -> tuple[Path, ...]:
    if named := user.path("OLLAMA_MODELS"):
        return (named,)
    own = user.home / ".ollama" / "models"
    return (own, SERVICE) if user.system == "linux" else (own,)


def _jan(user: User) -> Path:
    if user.system == "darwin":
        data = user.home / "Library" / "Application Support"
    else:
        data = user.path("XDG_DATA_HOME") or user.home / ".local" / "share"
    return data / "Jan" / "data"
