"""What every connection shares: the rooms of the house."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

from localspec import home
from localspec.config import Config
from localspec.daemon.ahead import Ahead
from localspec.daemon.events import Events
from localspec.daemon.history import History
from localspec.daemon.metrics import Metrics
from localspec.daemon.pool import COMMAND, Pool
from localspec.daemon.settings import Settings
from localspec.daemon.streams import Streams
from localspec.daemon.suggestions import Suggestions
from localspec.daemon.turns import Turns


class Client(Protocol):
    """A connection, as the daemon's end sees it."""

    async def end_requests(self) -> None:
        """Cancel every request, and wait until they are answered."""

    async def close(self, code: int, reason: str) -> None:
        """Send what waits, then close."""


class Daemon:
    """Configuration, workers, history, metrics and connections; setting ``stopping`` ends it."""

    def __init__(self, config: Config, worker_command: tuple[str, ...] = COMMAND) -> None:
        self.config = config
        self.settings = Settings(config)
        self.metrics = Metrics()
        self.events = Events()
        self.pool = Pool(config, self.metrics, self.events, worker_command)
        self.history = History(home.history_path())
        self.turns = Turns()
        self.streams: Streams[Any] = Streams(config.daemon.grace_s)
        self.suggestions = Suggestions()
        self.ahead = Ahead()
        self.connections: set[Client] = set()
        self.memory_turn = asyncio.Lock()
        """held by who works on the n-gram memory's files"""
        self.busy: set[object] = set()
        """requests and streams that need a model, running or waiting"""
        self.stopping = asyncio.Event()
        self.started = time.monotonic()
        self.socket: str | None = None
        self.url: str | None = None
        self.http_flag = False
        """whether it was told to open the HTTP door, whatever the settings say"""
        self.http: str | None = None
        """the address of the HTTP door, while it is open"""
        self.http_problem: str | None = None
        """why it is not, where it was tried"""
