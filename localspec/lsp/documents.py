"""The texts that are open in the editor, kept as it changes them.

Not in pygls' own documents: those end lines where Python does, also at a form feed or U+2028, so that every
position behind one is wrong, and they copy and split the whole text at each change (22 ms for a megabyte; a
change here costs what the lines around it do, 15 µs).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import PurePath
from typing import Literal, NamedTuple

from lsprotocol import types
from pygls.uris import to_fs_path, uri_scheme

from localspec.completion.context import AFTER, BEFORE, SNAP, lines_after, lines_before
from localspec.protocol.messages import Trigger
from localspec.protocol.requests import File

BLOCKS = 16
"""blocks of other files that are sent; of each at most ``PER_FILE``, and so many characters of a block"""
PER_FILE = 2
BLOCK_CHARS = 1 << 14
SCHEMES = ("file", "untitled", "vscode-notebook-cell", "vscode-remote", "vscode-vfs")
"""of documents that the user writes in; others show text of elsewhere, as one side of a diff does"""

Encoding = Literal["utf-8", "utf-16", "utf-32"]
CODECS: dict[Encoding, str] = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}


class Place(NamedTuple):
    """A line, and code points before it there; both from 0."""

    line: int
    column: int


class Document:
    """One text. ``revision`` counts its changes: an answer to an older one is stale."""

    def __init__(self, uri: str, language: str, text: str) -> None:
        self.uri = uri
        self.language = language
        self.lines = lines_of(text)
        self.revision = 0
        self.edited = 0

    @property
    def path(self) -> str:
        """The path sent to the daemon; ``untitled:NAME`` for a text without a file."""
        return to_fs_path(self.uri) or f"untitled:{self.uri.partition(':')[2].lstrip('/')}"

    @property
    def is_private(self) -> bool:
        """True if its name is that of a file with secrets, or it is no text that the user writes."""
        # Imported late: the editor waits for the server's start, and this takes longer than the rest of it.
        from localspec.memory.secrets import is_secret

        return uri_scheme(self.uri) not in SCHEMES or is_secret(PurePath(self.path).name)

    def change(self, change: types.TextDocumentContentChangeEvent, encoding: Encoding) -> None:
        self.revision += 1
        if isinstance(change, types.TextDocumentContentChangePartial):
            start = self.place(change.range.start, encoding)
            end = self.place(change.range.end, encoding)
            self._replace(min(start, end), max(start, end), change.text)
        else:
            self.lines = lines_of(change.text)
            self.edited = min(self.edited, len(self.lines) - 1)

    def _replace(self, start: Place, end: Place, text: str) -> None:
        # With a line on either side: CR and LF may come together there, or apart.
        first, last = max(0, start.line - 1), min(len(self.lines), end.line + 2)
        before = "".join(self.lines[first : start.line]) + self.lines[start.line][: start.column]
        after = self.lines[end.line][end.column :] + "".join(self.lines[end.line + 1 : last])
        lines = lines_of(before + text + after)
        if last < len(self.lines):
            lines.pop()  # the next line begins there
        self.lines[first:last] = lines
        self.edited = min(start.line + text.count("\n"), len(self.lines) - 1)

    def place(self, position: types.Position, encoding: Encoding) -> Place:
        """The place of an editor's position; a position outside is moved to the nearest end."""
        if position.line >= len(self.lines):
            return Place(len(self.lines) - 1, len(self.lines[-1]))
        line = self.lines[position.line]
        return Place(position.line, column(line, position.character, encoding))

    def position(self, place: Place, encoding: Encoding) -> types.Position:
        return types.Position(place.line, units(self.lines[place.line][: place.column], encoding))

    def between(self, start: Place, end: Place) -> str:
        if start.line == end.line:
            return self.lines[start.line][start.column : end.column]
        whole = "".join(self.lines[start.line + 1 : end.line])
        return self.lines[start.line][start.column :] + whole + self.lines[end.line][: end.column]

    def before(self, place: Place) -> str:
        """The text before ``place``, as much as is sent with a completion."""
        first = max(0, place.line - BEFORE) // SNAP * SNAP
        return lines_before(self.between(Place(first, 0), place))

    def after(self, place: Place) -> str:
        """The text from ``place`` on, as much as is sent with a completion."""
        rest = self.lines[place.line + 1 : place.line + AFTER]
        return lines_after(self.lines[place.line][place.column :] + "".join(rest))


class CompletionGap(NamedTuple):
    """``lead``, which the editor's menu offers, and an answer replace the text from ``start`` to ``end``."""

    document: Document
    revision: int
    start: Place
    end: Place
    lead: str
    trigger: Trigger

    @property
    def is_stale(self) -> bool:
        return self.document.revision != self.revision


class Ring:
    """The blocks of lines that the user visited or edited, the newest first: context for the model."""

    def __init__(self) -> None:
        self._visited: list[tuple[str, int]] = []

    def touch(self, uri: str, line: int) -> None:
        here = uri, line // SNAP
        others = [place for place in self._visited if place != here]
        own = [place for place in others if place[0] == uri]
        for place in own[PER_FILE - 1 :]:
            others.remove(place)
        self._visited = [here, *others]
        if len(self._visited) > BLOCKS:
            # Many at once: the oldest begins the prompt, and all is read again when it goes.
            del self._visited[BLOCKS // 2 :]

    def forget(self, uri: str) -> None:
        self._visited = [place for place in self._visited if place[0] != uri]

    def blocks(
        self, documents: Mapping[str, Document], but: str, allowed: Callable[[Document], bool]
    ) -> tuple[File, ...]:
        """The texts of the blocks, but those of the file ``but`` and of files that are not ``allowed``."""
        found: list[File] = []
        for uri, number in self._visited:
            document = documents.get(uri)
            if uri == but or document is None or not allowed(document):
                continue
            lines = document.lines[number * SNAP : (number + 1) * SNAP]
            if (text := "".join(lines)[:BLOCK_CHARS]).strip():
                found.append(File(document.path, text))
        return tuple(found)


def lines_of(text: str) -> list[str]:
    """The lines with their ends, the last one without; unlike Python, only LF, CRLF and CR end a line."""
    lines = StringIO(text, newline="").readlines()
    return lines if lines and lines[-1][-1] not in "\r\n" else [*lines, ""]


def column(line: str, at: int, encoding: Encoding) -> int:
    """The code points before ``at`` units; moved before a character that it is in, or to the text's end."""
    text = line.rstrip("\r\n")
    if text.isascii():
        return min(at, len(text))
    return bisect_right(range(len(text) + 1), at, key=lambda end: units(text[:end], encoding)) - 1


def units(text: str, encoding: Encoding) -> int:
    codec = CODECS[encoding]
    return len(text.encode(codec, "surrogatepass")) // len("a".encode(codec))
