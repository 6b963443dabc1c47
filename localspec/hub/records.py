"""The list of models that localspec downloaded, a file in its data directory: no other model is removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import filelock
import msgspec

from localspec import home
from localspec.errors import StorageError
from localspec.hub.cache import Place
from localspec.hub.listing import HubFile
from localspec.models.description import Format


class Pulled(msgspec.Struct, frozen=True):
    """A model that was or is being downloaded, with those files that were not in the cache before."""

    name: str
    repo: str
    commit: str
    cache: str
    format: Format
    files: tuple[HubFile, ...]

    @property
    def place(self) -> Place:
        return Place(Path(self.cache), self.repo, self.commit)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.cache, self.name, self.commit


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


def remember(pulled: Pulled) -> None:
    """Add files that are about to be downloaded, to those that an earlier run recorded of the same model."""

    def add(records: tuple[Pulled, ...]) -> tuple[Pulled, ...]:
        earlier = [file for each in records if each.key == pulled.key for file in each.files]
        files = tuple(dict.fromkeys((*earlier, *pulled.files)))
        others = tuple(each for each in records if each.key != pulled.key)
        return (*others, msgspec.structs.replace(pulled, files=files)) if files else others

    _change(add)


def forget(gone: tuple[Pulled, ...]) -> None:
    _change(lambda records: tuple(each for each in records if each not in gone))


def _change(change: Callable[[tuple[Pulled, ...]], tuple[Pulled, ...]]) -> None:
    with filelock.FileLock(f"{path()}.lock"):
        before = read()
        after = change(before)
        if after != before:
            home.write_private(path(), msgspec.json.format(msgspec.json.encode(after)).decode())
