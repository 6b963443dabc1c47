"""The models that localspec downloaded: their list, a file in its data directory, their place on disk, and
their removal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import filelock
import msgspec

from localspec import home
from localspec.errors import HubBusy, ModelNotFound, NotPulled, StorageError
from localspec.models import library
from localspec.models.model import Format, place_of
from localspec.models.stores import TITLES, hub_cache


class HubFile(NamedTuple):
    """A file of a repository: its size in bytes, and its checksum, which is its name among the blobs.

    64 digits: SHA-256 of the content; 40: git's own, SHA-1 of a header and the content.
    """

    name: str
    size: int
    checksum: str


class Pulled(msgspec.Struct, frozen=True):
    """A model in huggingface_hub's cache: blobs by checksum, and for each commit a snapshot of links to
    them. In the list, ``files`` are those that were not in the cache before."""

    name: str
    repo: str
    commit: str
    format: Format
    files: tuple[HubFile, ...]
    cache: str = msgspec.field(default_factory=lambda: str(hub_cache().absolute()))

    @property
    def folder(self) -> Path:
        return Path(self.cache, f"models--{self.repo.replace('/', '--')}")

    @property
    def snapshot(self) -> Path:
        return self.folder / "snapshots" / self.commit

    @property
    def ref(self) -> Path:
        """The file that names the commit of the main branch."""
        return self.folder / "refs" / "main"

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths that can be given as a model: the directory for MLX, or each GGUF file."""
        return (self.snapshot,) if self.format == "mlx" else tuple(map(self.entry, self.files))

    def entry(self, file: HubFile) -> Path:
        return self.snapshot / file.name

    def blob(self, file: HubFile) -> Path:
        return self.folder / "blobs" / file.checksum

    def partial(self, file: HubFile) -> Path:
        return self.folder / "blobs" / f"{file.checksum}.incomplete"

    def has(self, file: HubFile) -> bool:
        """Return True if the snapshot has a file: a link to its blob, or the file itself."""
        entry, blob = self.entry(file), self.blob(file)
        return size_of(entry) == file.size and (not entry.is_symlink() or entry.resolve() == blob.resolve())

    def so_far(self, file: HubFile) -> int:
        """Bytes of a file that are in the cache, complete or not, if only for another commit."""
        part = max(0, size_of(self.blob(file)), size_of(self.partial(file)))
        return file.size if self.has(file) else min(file.size, part)

    @contextlib.contextmanager
    def holding(self, file: HubFile) -> Iterator[None]:
        """Hold the library's lock of a blob; raises :class:`HubBusy` while another program has it."""
        lock = Path(self.cache, ".locks", self.folder.name, f"{file.checksum}.lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            with filelock.FileLock(lock, timeout=1.0):  # the other program may be about to finish
                yield
        except filelock.Timeout:
            what = f"another program is downloading {file.name}"
            raise HubBusy(what, "Wait until it has finished.") from None


def size_of(path: Path) -> int:
    """Bytes of a file; -1 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def path() -> Path:
    return home.data_dir() / "pulled.json"


def read() -> tuple[Pulled, ...]:
    """Read the list; raises :class:`StorageError` if it cannot be read, as its content must not be lost."""
    try:
        return msgspec.json.decode(path().read_bytes(), type=tuple[Pulled, ...])
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError) as error:
        raise StorageError(
            f"{path()} cannot be read: {error}",
            "It lists the models that localspec downloaded. To begin a new list, move the file away.",
        ) from None


def remember(model: Pulled, file: HubFile) -> None:
    """Add a file that is about to be downloaded to the record of its model."""

    def add(records: tuple[Pulled, ...]) -> tuple[Pulled, ...]:
        same = [each for each in records if msgspec.structs.replace(each, files=model.files) == model]
        files = dict.fromkeys((*(file for each in same for file in each.files), file))
        others = (each for each in records if each not in same)
        return (*others, msgspec.structs.replace(model, files=tuple(files)))

    _change(add)


def _change(change: Callable[[tuple[Pulled, ...]], tuple[Pulled, ...]]) -> None:
    with filelock.FileLock(f"{path()}.lock"):
        home.write_private(path(), msgspec.json.format(msgspec.json.encode(change(read()))).decode())


def find(name: str, model_dirs: tuple[str, ...] = ()) -> tuple[Pulled, ...]:
    """The downloads of this name: as it was pulled, of its repository or a file, or a path; else what the
    name stands for in the library. Raises :class:`NotPulled` for a model that localspec did not download,
    and what the library does."""
    pulled, wanted, place = read(), name.lower(), place_of(Path(name))
    if found := tuple(each for each in pulled if wanted in _names(each) or place in _places(each)):
        return found
    try:
        model = library.find(name, model_dirs)
    except ModelNotFound as error:
        names = ", ".join(sorted({each.name for each in pulled})) or "none so far"
        raise ModelNotFound(error.message, f"Downloaded by localspec: {names}.") from None
    if found := tuple(each for each in pulled if model.place in _places(each)):
        return found
    store = model.description.store
    where = f"it is in {TITLES.get(store, store)}: {model.path}" if store else f"it is {model.path}"
    raise NotPulled(f"{model.name} was not downloaded by localspec; {where}")


def _names(pulled: Pulled) -> set[str]:
    files = (name for path in pulled.paths for name in (path.name, path.stem))
    return {name.lower() for name in (pulled.name, pulled.repo, *files)}


def _places(pulled: Pulled) -> set[str]:
    return {place_of(path) for path in (*pulled.paths, *map(pulled.partial, pulled.files))}


def remove(pulled: Sequence[Pulled]) -> int:
    """Delete the files of these, except those that another model needs; returns the bytes freed. The
    library's ``scan_cache_dir`` is not used: a part of a download or a broken link hides a repository.
    Raises :class:`HubBusy` while one of them is being downloaded."""
    freed = 0
    needed = {each.entry(file) for each in read() if each not in pulled for file in each.files}
    for each in pulled:
        freed += sum(_delete(each, file) for file in each.files if each.entry(file) not in needed)
        _remove_empty_folders(each)
    _change(lambda records: tuple(each for each in records if each not in pulled))
    return freed


def _delete(model: Pulled, file: HubFile) -> int:
    """Delete a file from its snapshot, and its content unless another snapshot uses it."""
    entry, blob = model.entry(file), model.blob(file)
    with model.holding(file):
        freed = 0 if entry.is_symlink() else max(0, size_of(entry))
        entry.unlink(missing_ok=True)
        used = any(path.resolve() == blob.resolve() for path in (model.folder / "snapshots").rglob("*"))
        for path in (model.partial(file), *(() if used else (blob,))):
            freed += max(0, size_of(path))
            path.unlink(missing_ok=True)
        model.partial(file).with_suffix(".wheel").unlink(missing_ok=True)
    return freed


def _remove_empty_folders(model: Pulled) -> None:
    """Remove the name of a commit without files, and directories that are empty now, the innermost first."""
    has_files = any(files for _, _, files in os.walk(model.snapshot))
    with contextlib.suppress(OSError):
        if not has_files and model.ref.read_text() == model.commit:
            model.ref.unlink()
    for folder, _, _ in os.walk(model.folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
