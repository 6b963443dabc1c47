"""A chat as a file: as Markdown to read, or as JSON for a program."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from localspec.errors import DiskFull, StorageError
from localspec.protocol.options import Options
from localspec.protocol.sessions import SessionContent, Status
from localspec.tui.conversation import Question, Said
from localspec.wording import one_line

LONGEST_NAME = 60
"""characters of a title in a file's name: names have at most 255 bytes"""
ENDINGS: dict[Status, str] = {
    "complete": "",
    "streaming": " (not yet ended)",
    "cancelled": " (stopped)",
    "failed": " (interrupted)",
}


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One message; ``created`` is in seconds since 1970, None if it comes from the screen only."""

    role: Literal["user", "assistant"]
    content: str
    status: Status
    created: float | None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An exported chat. ``session`` is None if it is not stored, ``model`` if it is unknown."""

    session: str | None
    title: str
    model: str | None
    system: str | None
    options: Options
    messages: tuple[Line, ...]

    @classmethod
    def stored(cls, content: SessionContent, model: str | None = None) -> Record:
        """The record of a stored session, unchanged."""
        return cls(
            session=content.session,
            title=content.title,
            model=model or content.options.model,
            system=content.system,
            options=content.options,
            messages=tuple(
                Line(role=m.role, content=m.content, status=m.status, created=m.created)
                for m in content.messages
            ),
        )

    def as_json(self) -> str:
        """All fields as indented JSON."""
        return msgspec.json.format(msgspec.json.encode(self)).decode() + "\n"

    def as_markdown(self) -> str:
        """The messages under headings."""
        return "\n\n".join(self._paragraphs()) + "\n"

    def _paragraphs(self) -> Iterator[str]:
        yield f"# {one_line(self.title) or 'Chat'}"
        begun = next((line.created for line in self.messages if line.created is not None), time.time())
        date = time.strftime("%Y-%m-%d %H:%M", time.localtime(begun))
        yield date if self.model is None else f"{date} · {one_line(self.model)}"
        if self.system:
            yield f"## System\n\n{self.system}"
        for line in self.messages:
            speaker = "Question" if line.role == "user" else f"Answer{ENDINGS[line.status]}"
            yield f"## {speaker}\n\n{line.content}"


def lines_of(said: list[Said]) -> tuple[Line, ...]:
    """The messages on the screen, of a chat that is not stored."""
    return tuple(
        Line(role="user", content=each.text, status="complete", created=None)
        if isinstance(each, Question)
        else Line(role="assistant", content=each.text, status=each.status, created=None)
        for each in said
    )


class Wish(NamedTuple):
    """Format and path of an export; ``place`` "" is a file named after the chat's title."""

    format: Literal["md", "json"]
    place: str

    @classmethod
    def read(cls, argument: str) -> Wish:
        """Parse ``[md|json] [PATH]``; without a format, a path's ending decides."""
        first, _, rest = argument.partition(" ")
        match first.lower():
            case "md":
                return cls("md", rest.strip())
            case "json":
                return cls("json", rest.strip())
        return cls("json" if argument.lower().endswith(".json") else "md", argument)

    def write(self, record: Record) -> Path:
        """Write a new file and return its path; if the name is taken, a number is added.

        Raises :class:`StorageError`, and :class:`DiskFull`.
        """
        path = self._path(record.title)
        text = record.as_json() if self.format == "json" else record.as_markdown()
        try:
            return _write_new(path, text.encode())
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise DiskFull(f"no space left for {one_line(str(path))}") from None
            why = error.strerror
        except ValueError:
            why = "a file cannot have such a name"
        raise StorageError(
            f"{one_line(str(path))} cannot be written: {why}",
            "Give another path: /export md PATH.",
        )

    def _path(self, title: str) -> Path:
        place = Path(os.path.abspath(os.path.expanduser(self.place)))
        if not self.place or self.place.endswith(os.sep) or os.path.isdir(place):
            return place / f"{file_name(title)}.{self.format}"
        return place


def file_name(title: str) -> str:
    """A file's name for ``title``, without its ending."""
    return re.sub(r"[^\w.]+", "-", title)[:LONGEST_NAME].strip("-.") or "chat"


def _write_new(path: Path, content: bytes) -> Path:
    """Write a new file, at ``path`` or the first of its numbered names that is free; returns its path."""
    for name in chain((path.name,), (f"{path.stem}-{number}{path.suffix}" for number in count(2))):
        new = path.with_name(name)
        try:
            file = new.open("xb")
        except FileExistsError:
            continue
        try:
            with file:
                file.write(content)
        except OSError:
            new.unlink(missing_ok=True)  # no incomplete file stays
            raise
        return new
    raise AssertionError("there is always another number")
