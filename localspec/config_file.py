"""Edits of ``config.toml`` that change one value and keep comments and order."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from localspec import home
from localspec.config import EDIT, Config, config_path, parse_config, parse_text, parse_toml, read_toml
from localspec.errors import FULL, DiskFull, InvalidOptions, StorageError
from localspec.renamed import RENAMED, Place

LOCK_S = 10.0
"""seconds to wait for another writer"""


class ConfigFile:
    """The configuration file; no edit leaves it with content that is refused when it is read."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = config_path() if path is None else path

    def set(self, place: Place, value: Any) -> Config:
        """Write a value. After :class:`InvalidOptions` and :class:`StorageError` the file is as it was."""
        value = msgspec.json.decode(msgspec.json.encode(value))  # lists, not tuples, at any depth

        def change(tables: Tables, new: NewTable) -> None:
            for old in _earlier(place):
                _drop(tables, old)
            _put(tables, place, value, new)

        return self._change(change)

    def unset(self, place: Place) -> Config:
        """Remove a key, known or not, and its earlier names, which would hold then. Raises as :meth:`set`."""

        def change(tables: Tables, _: NewTable) -> None:
            if not any([_drop(tables, each) for each in (place, *_earlier(place))]):
                key = ".".join(place)
                raise InvalidOptions(f"{key} is not set in config.toml", "See `localspec config show`.")

        return self._change(change)

    def replace(self, text: str, *, was: str) -> Config:
        """Replace the text it ``was`` by ``text``; raises as :meth:`set`, also if the file has changed."""
        config = parse_text(text, where=EDIT)
        with self._locked():
            if read_toml(self.path) != was:
                raise StorageError(
                    f"another program has changed {self.path} during the edit",
                    "Run `localspec config edit` again.",
                )
            self._write(text)
        return config

    def _change(self, change: Callable[[Tables, NewTable], None]) -> Config:
        with self._locked():
            before = read_toml(self.path)
            wanted = parse_toml(before, where=str(self.path))
            change(wanted, lambda _: {})
            config = parse_config(wanted, where=str(self.path))
            text = _changed(before, change)
            if text is None or parse_toml(text, where=str(self.path)) != wanted:
                raise InvalidOptions(
                    f"{self.path} has a form that `localspec config set` cannot change",
                    "Run `localspec config edit`.",
                )
            if text != before:
                self._write(text)
        return config

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file: no other command writes it."""
        from filelock import FileLock, Timeout

        try:
            with FileLock(home.state_dir() / "config.lock", timeout=LOCK_S):
                yield
        except Timeout:
            raise StorageError(
                f"another command has been writing {self.path} for {LOCK_S:.0f} s",
                "Wait until that `localspec config` has ended, or end it; then run this command again.",
            ) from None

    def _write(self, text: str) -> None:
        """Write the file atomically; a link is followed, and the mode is kept."""
        target = Path(os.path.realpath(self.path))
        scratch = scratch_beside(target, text)
        try:
            with contextlib.suppress(FileNotFoundError):
                shutil.copymode(target, scratch)
            os.replace(scratch, target)
        except OSError as error:
            raise _not_written(target, error) from None
        finally:
            scratch.unlink(missing_ok=True)


def scratch_beside(target: Path, text: str) -> Path:
    """A new file with the text, in the directory of ``target``. Raises :class:`StorageError`."""
    scratch = ""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fd, scratch = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}-", suffix=".toml")
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(fd)  # a full disk may show only now
    except OSError as error:
        if scratch:
            os.unlink(scratch)
        raise _not_written(target, error) from None
    return Path(scratch)


def _not_written(target: Path, error: OSError) -> StorageError:
    message = f"{target} cannot be written: {error.strerror}"
    if error.errno in FULL:
        return DiskFull(message)
    return StorageError(message, f"Make {target.parent} a directory you can write to.")


Tables = MutableMapping[str, Any]
NewTable = Callable[[bool], Tables]
"""makes a table; True: one that holds other tables only"""


def _changed(text: str, change: Callable[[Tables, NewTable], None]) -> str | None:
    """The text with a change made; None if the result is not valid TOML."""
    import tomlkit  # slow to load, and needed only to change the file
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text if text.endswith("\n") or not text else text + "\n")
        change(document, tomlkit.table)
        changed = tomlkit.dumps(document)
        tomllib.loads(changed)
    except (ValueError, TOMLKitError, RecursionError):
        return None
    is_dos = "\r\n" in text and text.count("\r\n") == text.count("\n")
    return changed.replace("\r\n", "\n").replace("\n", "\r\n") if is_dos else changed


def _put(tables: Tables, place: Place, value: Any, new: NewTable) -> None:
    *above, key = place
    for depth, name in enumerate(above):
        if name not in tables:
            tables[name] = new(depth + 1 < len(above))
        tables = _inner(tables, name)
    with _before_its_end(tables):
        tables[key] = value


@contextmanager
def _before_its_end(tables: Tables) -> Iterator[None]:
    """Add keys before the comments at the end of a table: these are about the next table."""
    body: list[Any] = getattr(getattr(tables, "value", None), "body", [])
    end = next((n for n in range(len(body), 0, -1) if body[n - 1][0] is not None), 0)
    tail = body[end:]
    del body[end:]
    yield
    body += tail


def _earlier(place: Place) -> list[Place]:
    return [old for old, new in RENAMED.items() if new == place]


def _drop(tables: Tables, place: Place) -> bool:
    """Remove a key; return False if it is not there."""
    for name in place[:-1]:
        tables = _inner(tables, name) if name in tables else {}
    return place[-1] in tables and tables.pop(place[-1]) is not None


def _inner(tables: Tables, name: str) -> Tables:
    found = tables[name]
    if not isinstance(found, MutableMapping):
        raise InvalidOptions(
            f"{name} in config.toml is not a table", "Correct it with `localspec config edit`."
        )
    return found
