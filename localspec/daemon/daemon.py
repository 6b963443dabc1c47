"""The state that all connections share."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec

from localspec import home
from localspec.config import Config, config_path, load_config
from localspec.daemon.chats import ChatHistory, Session
from localspec.daemon.editors import Editors
from localspec.daemon.metrics import MetricsRegistry
from localspec.daemon.relay import Outbox, Streams
from localspec.daemon.suggestions import SuggestionCache
from localspec.daemon.workers.pool import COMMAND, Pool, Program
from localspec.errors import InvalidOptions, LocalspecError
from localspec.protocol import jsonrpc
from localspec.protocol.messages import SettingsState
from localspec.protocol.requests import SessionChange, SessionEvent


class SettingsFile:
    """The settings as the daemon has read them at its start, compared with the file that it has read: a
    client with another environment may have another ``config.toml``."""

    def __init__(self, config: Config) -> None:
        self._path = config_path()
        self._read = _encode_config(config)

    def state(self) -> SettingsState:
        """The file's state compared with these settings."""
        try:
            return "current" if _encode_config(load_config(self._path)) == self._read else "changed"
        except InvalidOptions:
            return "broken"


def _encode_config(config: Config) -> bytes:
    """An encoding that is equal for files with the same settings, but for ``auto_pull``, which clients read
    themselves; the order of sections matters."""
    return msgspec.json.encode(msgspec.structs.replace(config, auto_pull="ask"))


class ConnectedClient(Protocol):
    """The methods by which the daemon ends a connection."""

    async def end_requests(self) -> None: ...

    async def close(self, code: int, reason: str) -> None: ...


class Daemon:
    """Configuration, workers, history, metrics and connections; setting ``stopping`` ends it."""

    def __init__(self, config: Config, worker: Program = COMMAND) -> None:
        self.config = config
        self.settings = SettingsFile(config)
        self.metrics = MetricsRegistry()
        self.clients: set[Outbox] = set()
        """those that may subscribe to changes of chats"""
        self.pool = Pool(config, self.metrics, worker)
        self.history = ChatHistory(home.history_path())
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """the lock of each session, while it is held or awaited"""
        self.busy: set[object] = set()
        """requests and streams that need a model, running or waiting"""
        self.streams = Streams(config.daemon.grace_s, self.busy)
        self.suggestions = SuggestionCache()
        self.editors = Editors()
        self.connections: set[ConnectedClient] = set()
        self.merging = asyncio.Lock()
        """held while options are merged, which keeps the order of requests"""
        self.memory_turn = asyncio.Lock()
        """held while the n-gram memory's files are changed"""
        self.http: str | None = None
        """the address of the HTTP server while it listens"""
        self.http_problem: LocalspecError | None = None
        """the reason why it does not, though it should"""
        self.http_flag = False
        """True if ``--http`` was given, which overrides the settings"""
        self.stopping = asyncio.Event()
        self.started = time.monotonic()
        self.socket = ""

    def turn_of(self, session: Session) -> asyncio.Lock:
        """The lock of a session, which answers one message at a time."""
        return self._turns.setdefault(session.id, asyncio.Lock())

    def publish(self, session: Session, change: SessionChange) -> None:
        """Send all subscribers a change of a session, unless it is private."""
        if not session.private:
            frame = jsonrpc.notification("event", SessionEvent(session.id, change)).encode()
            for client in self.clients:
                if client.subscribed:
                    client.put(frame)
