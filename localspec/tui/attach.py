"""Files attached to a message: ``@path`` in its text, their content below it."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import re
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from localspec.errors import InvalidOptions
from localspec.home import read_regular
from localspec.wording import KB, one_line, size

MAX_BYTES = 256 * KB
MOST_FILES, GATHER_S, SHOWN = 10_000, 1.0, 8
"""files that are gathered for suggestions, the nearest first, the longest search, and files that are shown"""
AFTER = ".,;:!?)]}'`"
"""punctuation that may follow a path without belonging to it"""
_MENTION = re.compile(r'(?<![\w@])@(?:"((?:\\"|[^"\n])+)"|([^\s"]+))')
_UNQUOTED = re.compile(rf'[^\s"]*[^\s"{re.escape(AFTER)}]')


def mentions(text: str) -> Iterator[str]:
    """The names that ``text`` mentions; an ``@`` after a letter, as in e-mail addresses, mentions none."""
    for found in _MENTION.finditer(text):
        yield found[2] or found[1].replace('\\"', '"')


def mention_of(path: str) -> str:
    if _UNQUOTED.fullmatch(path):
        return f"@{path}"
    escaped = path.replace('"', '\\"')
    return f'@"{escaped}"'


def attach_files(text: str, directory: Path) -> str:
    """``text`` with the content of the files that it mentions appended; other names stay as they are. Raises
    :class:`InvalidOptions` for a file that cannot be attached."""
    names = (_file_of(name, directory) for name in mentions(text))
    blocks = (_block(name, _read(name, directory)) for name in dict.fromkeys(names) if name is not None)
    return "\n\n".join([text, *blocks])


def detach_files(text: str) -> str:
    """The typed text of a message, without the files that :func:`attach_files` appended."""
    names = {name for mention in mentions(text) for name in _spellings(mention)}
    begins = (text.find(f"\n\n{name}:\n```") for name in names)
    return text[: min((begin for begin in begins if begin >= 0), default=len(text))]


def _spellings(name: str) -> tuple[str, str]:
    """The names that a mention may mean: with and without the punctuation at its end."""
    return name, name.rstrip(AFTER)


def _file_of(name: str, directory: Path) -> str | None:
    """The name of the mentioned file; None if there is none, as in a decorator's or a user's name."""
    return next((each for each in _spellings(name) if os.path.isfile(_path(each, directory))), None)


def _is_mentionable(path: str) -> bool:
    """True if a mention of a path is read back as that path, and has no control characters."""
    return one_line(path) == path and [*mentions(mention_of(path))] == [path] and not path.startswith("~")


def _path(name: str, directory: Path) -> str:
    return os.path.join(directory, os.path.expanduser(name))


def _read(name: str, directory: Path) -> str:
    try:
        content = read_regular(_path(name, directory), MAX_BYTES) or b""
    except OSError as error:
        raise InvalidOptions(f"{name} cannot be read: {error.strerror}", "Attach another file.") from None
    if len(content) > MAX_BYTES:
        raise InvalidOptions(f"{name} is larger than {size(MAX_BYTES)}", "Paste the part that matters.")
    with contextlib.suppress(UnicodeDecodeError):
        if b"\0" not in content:
            return content.decode()
    raise InvalidOptions(f"{name} is not UTF-8 text", "Attach text files only.")


def _block(name: str, content: str) -> str:
    fence = fence_for(content)
    language = re.fullmatch(r"\.(\w+)", os.path.splitext(name)[1])
    ending = "" if content.endswith("\n") or not content else "\n"
    return f"{name}:\n{fence}{language[1] if language else ''}\n{content}{ending}{fence}"


def fence_for(content: str) -> str:
    """A fence that is longer than any run of backticks in ``content``."""
    return max(("```", *(f"{run}`" for run in re.findall("`+", content))), key=len)


class Files:
    """The files below a directory, for suggestions: gathered on a thread, anew at each ``@``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._search: asyncio.Future[list[str]] | None = None

    async def like(self, typed: str) -> list[str]:
        """The files that match ``typed``, the best first; the nearest files if it is empty."""
        if self._search is None or (self._search.done() and not typed):
            self._search = asyncio.ensure_future(asyncio.to_thread(gather_files, self.directory))
        known = await asyncio.shield(self._search)  # the next key waits for the same search
        return await asyncio.to_thread(rank_files, typed.removeprefix("./"), known)


def gather_files(directory: Path) -> list[str]:
    """The files below a directory that git would track, as relative paths, near ones first. The search is
    bounded in time, since the program's end waits for its threads."""
    from localspec.memory.text_files import near_files

    real, deadline = directory.resolve(), time.monotonic() + GATHER_S
    files = near_files(real, lambda: time.monotonic() > deadline)
    paths = (file.relative_to(real).as_posix() for file in files)
    return [*islice(filter(_is_mentionable, paths), MOST_FILES)]


def rank_files(typed: str, files: Sequence[str]) -> list[str]:
    """The files whose paths contain ``typed``, first those whose name begins so, then the shortest."""

    def rank(file: str) -> tuple[bool, int, str]:
        name = file[file.rfind("/") + 1 :]
        return not name.lower().startswith(typed.lower()), len(file), file

    found = (file for file in files if typed.lower() in file.lower())
    return heapq.nsmallest(SHOWN, found, key=rank) if typed else list(files[:SHOWN])
