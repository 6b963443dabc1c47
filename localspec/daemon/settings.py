"""The settings that the daemon runs with, beside what their file says by now."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from localspec.config import Config, config_path, load_config
from localspec.errors import InvalidOptions
from localspec.protocol.messages import SettingsState


class Settings:
    """What was read when the daemon started.

    It compares them itself, with the file that it read: for a client of another environment ``config.toml``
    may be another one, and would never be that of the daemon.
    """

    def __init__(self, config: Config) -> None:
        self._path = config_path()
        self._read = _told(config)
        self._seen: object = None
        self._state: SettingsState | None = None

    def state(self) -> SettingsState:
        """Whether the file still says the same; it is read where it was touched since it was last."""
        seen = _seen(self._path)
        if self._state is None or seen != self._seen:
            self._seen, self._state = seen, self._compared()
        return self._state

    def _compared(self) -> SettingsState:
        try:
            return "current" if _told(load_config(self._path)) == self._read else "changed"
        except InvalidOptions:
            return "broken"


def _told(config: Config) -> bytes:
    """Alike for two files that say the same; the order of sections matters."""
    return msgspec.json.encode(config)


def _seen(path: Path) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
