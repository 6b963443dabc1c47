"""The state that completions keep for each client: the speed of its typing, and the newest of each path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from localspec.daemon.inline.pace import Pace
from localspec.daemon.inline.prefetch import Cancellable


class Newest:
    """The newest completion of each path: a newer one cancels the older at once."""

    def __init__(self) -> None:
        self._by_path: dict[str, Cancellable] = {}

    @contextmanager
    def hold(self, path: str | None, request: Cancellable) -> Iterator[None]:
        """Register ``request`` as the completion of ``path`` while the context is open."""
        if path is None:
            yield
            return
        if (older := self._by_path.get(path)) is not None:
            older.cancel()
        self._by_path[path] = request
        try:
            yield
        finally:
            if self._by_path.get(path) is request:
                del self._by_path[path]


class Editor:
    """One client's completions."""

    def __init__(self) -> None:
        self.newest = Newest()
        self.pace = Pace()


class Editors:
    """An :class:`Editor` for each client that has requested a completion."""

    def __init__(self) -> None:
        self._of: dict[object, Editor] = {}

    def of(self, client: object) -> Editor:
        """The state of ``client``, new for a client without one."""
        return self._of.setdefault(client, Editor())

    def forget(self, client: object) -> None:
        """Drop the state of a disconnected client."""
        self._of.pop(client, None)
