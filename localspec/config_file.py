"""``config.toml`` as its owner wrote it: a value changes, comments and order stay."""

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
from localspec.config import Config, config_path, parse_config, parse_text, parse_toml, read_toml
from localspec.errors import FULL, DiskFull, InvalidOptions, StorageError
from localspec.origin import Place

LOCK_S = 10.0
"""how long another writer may take"""


class ConfigFile:
    """The file, whatever it is now; it is never left with what would be refused when it is read."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = config_path() if path is None else path

    def set(self, place: Place, value: Any) -> Config:
        """Write a value. After :class:`InvalidOptions` and :class:`StorageError` the file is as it was."""
        value = msgspec.json.decode(msgspec.json.encode(value))  # lists, not tuples, at any depth
        return self._change(lambda tables, new: _put(tables, place, value, new))

    def unset(self, place: Place) -> Config:
        """Take a key out, known or not; raises as :meth:`set`."""
        return self._change(lambda tables, _: _drop(tables, place))

    def replace(self, text: str, *, was: str) -> Config:
        """Take ``text`` instead of what it ``was``; raises as :meth:`set`, also if it is no longer that."""
        config = parse_text(text, where="your edit")
        with self._locked():
            if read_toml(self.path) != was:
                raise StorageError(f"another program has changed {self.path} meanwhile", "Edit it again.")
            self._write(text)
        return config

    def _change(self, change: Callable[[Tables, NewTable], None]) -> Config:
        with self._locked():
            before = read_toml(self.path)
            wanted = parse_toml(before, where=str(self.path))
            change(wanted, lambda _: {})
            config = parse_config(wanted, where=str(self.path), text=before)
            text = _changed(before, change)
            if text is None or parse_toml(text, where=str(self.path)) != wanted:
                raise InvalidOptions(
                    f"{self.path} is written in a way that this cannot change", "Run `localspec config edit`."
                )
            if text != before:
                self._write(text)
        return config

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Inside, no other command writes it."""
        from filelock import FileLock, Timeout

        try:
            with FileLock(home.state_dir() / "config.lock", timeout=LOCK_S):
                yield
        except Timeout:
            raise StorageError(f"another command is writing {self.path}", "Try again.") from None

    def _write(self, text: str) -> None:
        """Write all of it or nothing; what a link leads to is written, and keeps its mode."""
        target = Path(os.path.realpath(self.path))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            fd, scratch = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(text.encode())
                    file.flush()
                    os.fsync(fd)  # a full disk may show only now
                with contextlib.suppress(FileNotFoundError):
                    shutil.copymode(target, scratch)
                os.replace(scratch, target)
            except BaseException:
                os.unlink(scratch)
                raise
        except OSError as error:
            kind = DiskFull if error.errno in FULL else StorageError
            remedy = None if kind is DiskFull else f"Make {target.parent} a directory you can write to."
            raise kind(f"{self.path} cannot be written: {error.strerror}", remedy) from None


Tables = MutableMapping[str, Any]
NewTable = Callable[[bool], Tables]
"""makes one that holds (True) other tables only"""


def _changed(text: str, change: Callable[[Tables, NewTable], None]) -> str | None:
    """The text with a change in it; None where that came out wrong."""
    import tomlkit  # slow to load, and needed by those alone who change something
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
    """Inside, what is added goes before the comments at the end of a table: they are about what follows."""
    body: list[Any] = getattr(getattr(tables, "value", None), "body", [])
    end = next((n for n in range(len(body), 0, -1) if body[n - 1][0] is not None), 0)
    tail = body[end:]
    del body[end:]
    yield
    body += tail


def _drop(tables: Tables, place: Place) -> None:
    *above, key = place
    for name in above:
        tables = _inner(tables, name) if name in tables else {}
    if key not in tables:
        raise InvalidOptions(f"{'.'.join(place)} is not set in the file", "See `localspec config show`.")
    del tables[key]


def _inner(tables: Tables, name: str) -> Tables:
    found = tables[name]
    if not isinstance(found, MutableMapping):
        raise InvalidOptions(f"{name} is no table", "Run `localspec config edit`.")
    return found
