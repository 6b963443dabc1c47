"""Answers of an editor's daemon to another client with the same request."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from localspec.client import Client
from localspec.lsp.completions import VARIANTS
from localspec.protocol.messages import Completions, Discovery, Trigger
from tests.daemon.harness import client_of
from tests.waiting import run

T = TypeVar("T")
MAX_MS = 60_000


class Asking:
    """A client of a home's daemon that connects each time anew: the daemon may be another one."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def found(self) -> Discovery:
        return msgspec.json.decode((self._home / "runtime" / "daemon.json").read_bytes(), type=Discovery)

    def completion(self, file: Path, prefix: str, trigger: Trigger = "automatic") -> Completions:
        """Return the answer that an editor should get at the end of a Python file: the daemon keeps it."""

        async def ask(client: Client) -> Completions:
            n = VARIANTS if trigger == "invoked" else 1
            where: dict[str, Any] = {"path": str(file), "language": "python", "trigger": trigger, "n": n}
            return await client.complete(prefix, "", max_ms=MAX_MS, **where).result()

        return self._with_client(ask)

    def text(self, file: Path, prefix: str, trigger: Trigger = "automatic") -> str:
        return self.completion(file, prefix, trigger).items[0].text

    def suggestions(self, event: str) -> float:
        return self._totals().get(f'localspec_suggestions_total{{event="{event}"}}', 0.0)

    def completions(self) -> float:
        """Return the number of answered completions, those of this client too."""
        totals = self._totals()
        return sum(totals[name] for name in totals if name.startswith("localspec_completions_total"))

    def warmed(self) -> float:
        totals = self._totals()
        return sum(totals[name] for name in totals if "completion/warm" in name)

    def _totals(self) -> Mapping[str, float]:
        return self._with_client(lambda client: client.metrics()).totals

    def _with_client(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """In a thread of its own: the browser's driver has an event loop in this one."""

        async def ask() -> T:
            async with await client_of(self._home) as client:
                return await work(client)

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: run(ask())).result()
