"""Pieces of other files that the user visited last: context for the model."""

from __future__ import annotations

from collections.abc import Callable

from localspec.lsp.documents import BLOCK, Document, Documents
from localspec.protocol.requests import File

BLOCKS = 16
PER_FILE = 2
CHARS = 1 << 14
"""of a block: lines may be long"""


class Ring:
    """The blocks of lines that were visited or edited, the newest first."""

    def __init__(self) -> None:
        self._visited: list[tuple[str, int]] = []

    def touch(self, uri: str, line: int) -> None:
        """Put the block of this line first."""
        here = uri, line // BLOCK
        others = [place for place in self._visited if place != here]
        own = [place for place in others if place[0] == uri]
        for place in own[PER_FILE - 1 :]:
            others.remove(place)
        self._visited = [here, *others]
        if len(self._visited) > BLOCKS:
            # Many at once: the oldest begins the prompt, and all is read again when it goes.
            del self._visited[BLOCKS // 2 :]

    def forget(self, uri: str) -> None:
        """Remove the blocks of a closed file."""
        self._visited = [place for place in self._visited if place[0] != uri]

    def blocks(self, documents: Documents, but: str, allowed: Callable[[Document], bool]) -> tuple[File, ...]:
        """The texts of the blocks, but those of the file ``but`` and of files that are not ``allowed``."""
        found: list[File] = []
        for uri, number in self._visited:
            document = documents.get(uri)
            if uri == but or document is None or not allowed(document):
                continue
            if (text := document.block(number)[:CHARS]).strip():
                found.append(File(document.path, text))
        return tuple(found)
