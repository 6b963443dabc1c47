"""Files attached to a message: ``@path`` in its text, their content below it."""

from __future__ import annotations

import asyncio
import heapq
import os
import re
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from localspec.errors import InvalidOptions
from localspec.home import read_regular
from localspec.wording import KB, one_line, size

MAX_BYTES = 256 * KB
MOST_FILES = 10_000
"""for suggestions, the nearest first"""
GATHER_S = 1.0
"""longest search for them"""
FRESH_S = 15.0
"""age until which a search's result is used"""
SHOWN = 8
AFTER = ".,;:!?)]}'`"
"""punctuation that may follow a path without belonging to it"""
SUFFIXES = re.compile(
    "c|cc|cfg|conf|cpp|cs|css|csv|go|h|hpp|html|ini|ipynb|java|js|json|jsx|kt|lua|md|mjs|php|pl|py|pyi|rb|rs|"
    "rst|scala|sh|sql|svg|swift|tex|toml|ts|tsx|txt|vue|xml|yaml|yml|zig",
    re.IGNORECASE,
)
"""suffixes that only files have; ``fixture`` in ``@pytest.fixture`` is none"""
SHORT = 4
"""longest other suffix of a path, in letters; ``@types/lodash.debounce`` is no file"""
_MENTION = re.compile(r'(?<![\w@])@(?:"((?:\\"|[^"\n])+)"|([^\s"]+))')
_UNQUOTED = re.compile(rf'[^\s"]*[^\s"{re.escape(AFTER)}]')
_FILE = re.compile(r"[\w./~-]*[\w-]\.([A-Za-z]\w*)")
_FENCED = re.compile(r"^ {0,3}(`{3,}(?=[^`\n]*$)|~{3,}).*?(?:^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
_RUN = re.compile("`+")
_LANGUAGE = re.compile(r"\.(\w+)")


class Mention(NamedTuple):
    """A name after an ``@``; in quotes it always means a file."""

    name: str
    quoted: bool


def mentions(text: str) -> Iterator[Mention]:
    """The mentions in ``text``; an ``@`` after a letter, as in e-mail addresses, is none."""
    for found in _MENTION.finditer(text):
        quoted = found[1] is not None
        yield Mention(found[1].replace('\\"', '"') if quoted else found[2], quoted)


def mention_of(path: str) -> str:
    """The mention of a path, quoted if necessary."""
    if _UNQUOTED.fullmatch(path):
        return f"@{path}"
    escaped = path.replace('"', '\\"')
    return f'@"{escaped}"'


def attached(text: str, directory: Path) -> str:
    """``text`` with the content of the files that it mentions appended; other names stay as they are.

    Raises :class:`InvalidOptions` for a path that exists but cannot be attached, and for a missing file.
    Mentions inside a fence are ignored: code has an ``@`` of its own.
    """
    names = (_file_of(mention, directory) for mention in mentions(_FENCED.sub("", text)))
    blocks = (_block(name, _read(name, directory)) for name in dict.fromkeys(names) if name is not None)
    return "\n\n".join([text, *blocks])


def detached(text: str) -> str:
    """The typed text of a message, without the files that :func:`attached` appended."""
    names = {name for mention in mentions(text) for name in _spellings(mention)}
    while (begin := _last_block(text, names)) is not None:
        text = text[:begin]
    return text


def _last_block(text: str, names: set[str]) -> int | None:
    """The offset of the appended file at the end of ``text``; None if there is none of these ``names``."""
    fence = text[text.rfind("\n") + 1 :]
    if len(fence) < 3 or set(fence) != {"`"}:
        return None
    opening = text.rfind(f"\n{fence}", 0, len(text) - len(fence) - 1)
    begin = text.rfind("\n\n", 0, max(opening, 0))
    is_file = opening > begin >= 0 and text[begin + 2 : opening].removesuffix(":") in names
    return begin if is_file else None


def _spellings(mention: Mention) -> tuple[str, ...]:
    """The names that a mention may mean: with and without the punctuation at its end."""
    return (mention.name,) if mention.quoted else (mention.name, mention.name.rstrip(AFTER))


def _file_of(mention: Mention, directory: Path) -> str | None:
    """The name of the mentioned file; None if the mention means none."""
    names = [name for name in _spellings(mention) if name]
    for name in names:
        path = _path(name, directory)
        if os.path.isfile(path):
            return name
        if os.path.isdir(path):
            if mention.quoted:
                raise InvalidOptions(f"{name} is a directory", "Attach files in it, one by one.")
            return None
        if os.path.exists(path):
            raise InvalidOptions(f"{name} is not a regular file", "Attach text files only.")
    if names and (mention.quoted or _is_meant(names[-1], directory)):
        remedy = f"Write a path relative to {directory}; an @ between lines of ``` attaches nothing."
        raise InvalidOptions(f"there is no file {names[-1]}", remedy)
    return None


def _is_meant(name: str, directory: Path) -> bool:
    """True if a name without quotes looks like a file's, in a directory that exists. Decorators, packages and
    user names do not."""
    looks = _FILE.fullmatch(name)
    folder = os.path.dirname(name)
    if looks is None or not os.path.isdir(_path(folder, directory)):
        return False
    return SUFFIXES.fullmatch(looks[1]) is not None or (folder != "" and len(looks[1]) <= SHORT)


def _is_mentionable(path: str) -> bool:
    """True if a mention of a path is read back as that path, and has no control characters."""
    names = [mention.name for mention in mentions(mention_of(path))]
    return one_line(path) == path and names == [path] and not path.startswith("~")


def _path(name: str, directory: Path) -> str:
    return os.path.join(directory, os.path.expanduser(name))


def _read(name: str, directory: Path) -> str:
    try:
        content = read_regular(_path(name, directory), MAX_BYTES)
    except OSError as error:
        raise InvalidOptions(f"{name} cannot be read: {error.strerror}", "Attach another file.") from None
    if content is None:
        raise InvalidOptions(f"{name} is not a regular file", "Attach text files only.")
    if len(content) > MAX_BYTES:
        raise InvalidOptions(f"{name} is larger than {size(MAX_BYTES)}", "Paste the part that matters.")
    try:
        if b"\0" not in content:
            return content.decode()
    except UnicodeDecodeError:
        pass
    raise InvalidOptions(f"{name} is not UTF-8 text", "Attach text files only.")


def _block(name: str, content: str) -> str:
    """A file in a fence that is longer than any run of backticks in it."""
    longest = max((len(run) for run in _RUN.findall(content)), default=0)
    fence = "`" * max(3, longest + 1)
    language = _LANGUAGE.fullmatch(os.path.splitext(name)[1])
    ending = "" if content.endswith("\n") or not content else "\n"
    return f"{name}:\n{fence}{language[1] if language else ''}\n{content}{ending}{fence}"


class Files:
    """The files below a directory, for suggestions: gathered on a thread, and kept for ``FRESH_S``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._search: asyncio.Future[list[str]] | None = None
        self._begun = 0.0

    async def like(self, typed: str) -> list[str]:
        """The files that match ``typed``, the best first; the nearest files if it is empty."""
        now = time.monotonic()
        if self._search is None or (self._search.done() and now - self._begun > FRESH_S):
            search = asyncio.to_thread(gathered, self.directory)
            self._search, self._begun = asyncio.ensure_future(search), now
        known = await asyncio.shield(self._search)  # the next key waits for the same search
        return await asyncio.to_thread(ranked, typed.removeprefix("./"), known)


def gathered(directory: Path) -> list[str]:
    """The files below a directory that git would track, as relative paths: at most ``MOST_FILES``, near ones
    first. The search is bounded in time, since the program's end waits for its threads."""
    from localspec.memory.texts import near_files

    real, deadline = directory.resolve(), time.monotonic() + GATHER_S
    files = near_files(real, lambda: time.monotonic() > deadline)
    paths = (file.relative_to(real).as_posix() for file in files)
    return [*islice(filter(_is_mentionable, paths), MOST_FILES)]


def ranked(typed: str, files: Sequence[str]) -> list[str]:
    """The files whose paths contain ``typed``, first those whose name begins so, then the shortest."""

    def rank(file: str) -> tuple[bool, int, str]:
        name = file[file.rfind("/") + 1 :]
        return not name.lower().startswith(typed.lower()), len(file), file

    found = (file for file in files if typed.lower() in file.lower())
    return heapq.nsmallest(SHOWN, found, key=rank) if typed else list(files[:SHOWN])
