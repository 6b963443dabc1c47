"""The comparison of the daemon's settings with the current ``config.toml``."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from localspec.config import Config, config_path, load_config
from localspec.errors import InvalidOptions
from localspec.protocol.messages import SettingsState


class Settings:
    """The settings as the daemon has read them at its start.

    The daemon compares them with the file that it has read: a client with another environment may have
    another ``config.toml``.
    """

    def __init__(self, config: Config) -> None:
        self._path = config_path()
        self._read = _encoded(config)
        self._seen: object = None
        self._state: SettingsState | None = None

    def state(self) -> SettingsState:
        """The file's state compared with these settings; it is read again only if it was changed."""
        seen = _seen(self._path)
        if self._state is None or seen != self._seen:
            self._seen = seen
            try:
                self._state = "current" if _encoded(load_config(self._path)) == self._read else "changed"
            except InvalidOptions:
                self._state = "broken"
        return self._state


def _encoded(config: Config) -> bytes:
    """An encoding that is equal for files with the same settings, but for ``auto_pull``, which clients read
    themselves; the order of sections matters."""
    return msgspec.json.encode(msgspec.structs.replace(config, auto_pull="ask"))


def _seen(path: Path) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
