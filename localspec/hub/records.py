"""The models that localspec downloaded: their list, a file in its data directory, and their place on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import filelock
import msgspec

from localspec import home
from localspec.errors import HubBusy, StorageError
from localspec.models.description import Format


class HubFile(NamedTuple):
    """A file of a repository: its size in bytes, and its checksum, which is its name among the blobs.

    64 digits: SHA-256 of the content; 40: git's own, SHA-1 of a header and the content.
    """

    name: str
    size: int
    checksum: str


class Pulled(msgspec.Struct, frozen=True):
    """A model in huggingface_hub's cache: blobs by checksum, and for each commit a snapshot of links to them.

    In the list, ``files`` are those that were not in the cache before.
    """

    name: str
    repo: str
    commit: str
    cache: str
    format: Format
    files: tuple[HubFile, ...]

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

    def so_far(self, file: HubFile) -> int:
        """Bytes of a file that are in the cache, complete or not, if only for another commit."""
        return min(file.size, max(0, *map(size_of, (self.entry(file), self.blob(file), self.partial(file)))))

    @contextmanager
    def holding(self, file: HubFile) -> Iterator[None]:
        """Hold the library's lock of a blob; raises :class:`HubBusy` while another program has it."""
        lock = Path(self.cache, ".locks", self.folder.name, f"{file.checksum}.lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            with filelock.FileLock(lock, timeout=1.0):  # the other program may be about to finish
                yield
        except filelock.Timeout:
            raise HubBusy(
                f"another program is downloading {file.name}", "Wait until it has finished."
            ) from None


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


def forget(gone: tuple[Pulled, ...]) -> None:
    _change(lambda records: tuple(each for each in records if each not in gone))


def _change(change: Callable[[tuple[Pulled, ...]], tuple[Pulled, ...]]) -> None:
    with filelock.FileLock(f"{path()}.lock"):
        home.write_private(path(), msgspec.json.format(msgspec.json.encode(change(read()))).decode())
