"""The text files of a directory that are worth learning: what git would track, small and readable."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from localspec.errors import InvalidOptions
from localspec.memory.ignore import MAX_BYTES as MAX_RULES
from localspec.memory.ignore import MAX_GLOBS, Rules, TooLarge, rules_of
from localspec.memory.regular import read_regular
from localspec.memory.secret_names import is_secret
from localspec.memory.workspace import repository_of

MAX_BYTES = 1024 * 1024
IGNORES = ((".git/info/exclude", True), (".gitignore", False))
"""git's files of rules, by rising precedence; True if git follows a symbolic link in place of the file"""


class Ignore(NamedTuple):
    """One file of rules for the paths below ``base``. ``rules`` is None if it cannot be read or exceeds the
    limits: then all of these paths are ignored."""

    base: Path
    rules: Rules | None
    size: int
    spared: frozenset[int] = frozenset()
    """the numbers of rules to disregard"""


def text_files(path: Path) -> Iterator[Path]:
    """The real paths of the files at and below ``path``, except those that git ignores, ``.git``, symlinks,
    and files whose names stand for secrets.

    A symlink's target is found under its own name if it is in the tree. ``path`` itself is included even if
    git ignores it. Unreadable directories are left out. Raises :class:`InvalidOptions` if ``path`` itself is
    a file of secrets.
    """
    real = path.resolve()
    if real.is_file() and is_secret(real.name):
        raise InvalidOptions(
            f"{path} is, by its name, a file of secrets", "Leave it out: such files are never learned."
        )
    if real.is_file():
        yield real
    elif real.is_dir():
        yield from _below(real, _rules_above(real))


def near_files(path: Path, is_late: Callable[[], bool] = lambda: False) -> Iterator[Path]:
    """As :func:`text_files` of a directory, the nearest first; ends once ``is_late`` returns True, which is
    called at every entry: a directory may have a million."""
    real = path.resolve()
    outer = above = _rules_above(real)
    waiting, parent = deque([real]), None
    while waiting:
        folder = waiting.popleft()
        if folder != real and folder.parent != parent:
            parent = folder.parent
            # Read again: keeping the rules of all waiting directories would keep those of the whole tree.
            above = outer + [ignore for place in _between(real, parent) for ignore in _ignores(place)]
        for entry in _entries(folder, above + _ignores(folder), is_late):
            if entry.is_dir():
                waiting.append(Path(entry.path))
            else:
                yield Path(entry.path)


def may_learn(path: Path) -> bool:
    """Return True if a file, which need not exist yet, may be learned without being named by the user: git
    does not ignore it, and its name does not stand for secrets."""
    real = path.resolve()
    if is_secret(path.name) or is_secret(real.name) or ".git" in real.parts:
        return False
    top = repository_of(real.parent) or real.parent
    below = real.relative_to(top).parts
    ignores: list[Ignore] = []
    for depth, name in enumerate(below):
        folder = top.joinpath(*below[:depth])
        ignores += _ignores(folder)
        if _is_ignored(folder / name, ignores, is_directory=depth < len(below) - 1):
            return False
    return True


def read_text(path: Path) -> str | None:
    """A file's text; None if it is not a regular file, binary, not UTF-8, empty, larger than 1 MiB, or
    unreadable."""
    try:
        content = read_regular(path, MAX_BYTES)
        if not content or len(content) > MAX_BYTES or b"\0" in content:
            return None
        return content.decode()
    except (OSError, UnicodeDecodeError):
        return None


def _below(folder: Path, above: list[Ignore]) -> Iterator[Path]:
    ignores = above + _ignores(folder)
    open_folders = [(_entries(folder, ignores), ignores)]
    while open_folders:
        entries, ignores = open_folders[-1]
        entry = next(entries, None)
        if entry is None:
            open_folders.pop()
        elif entry.is_dir():
            inner = Path(entry.path)
            rules = ignores + _ignores(inner)
            open_folders.append((_entries(inner, rules), rules))
        else:
            yield Path(entry.path)


def _entries(
    folder: Path, ignores: list[Ignore], is_late: Callable[[], bool] = lambda: False
) -> Iterator[os.DirEntry[str]]:
    """The files and directories in a directory that may be learned, sorted by name."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(takewhile(lambda _: not is_late(), found), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in takewhile(lambda _: not is_late(), entries):
        if entry.is_symlink() or entry.name == ".git":
            continue
        is_directory = entry.is_dir()
        is_candidate = is_directory or (entry.is_file() and not is_secret(entry.name))
        if is_candidate and not _is_ignored(Path(entry.path), ignores, is_directory=is_directory):
            yield entry


def _between(top: Path, folder: Path) -> list[Path]:
    """The directories from ``top`` down to ``folder``, both included."""
    return [folder, *folder.parents][len(folder.parts) - len(top.parts) :: -1]


def _rules_above(folder: Path) -> list[Ignore]:
    """The rules of the directories above, up to the repository's root, except those that exclude ``folder``
    itself: a user who names it wants its content."""
    top = repository_of(folder) or folder
    above = [place for place in folder.parents if place.is_relative_to(top)]
    return [_sparing(ignore, folder) for place in reversed(above) for ignore in _ignores(place)]


def _ignores(folder: Path) -> list[Ignore]:
    """A directory's own rules. As in git, only regular files have some."""
    found = []
    for name, follow in IGNORES:
        try:
            content = read_regular(folder / name, MAX_RULES, follow=follow)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            content = None
            found.append(Ignore(folder, None, 0))
        if content is not None:
            found.append(Ignore(folder, rules_of(content), len(content)))
    return found


def _sparing(ignore: Ignore, folder: Path) -> Ignore:
    if ignore.rules is None:
        return ignore
    try:
        return ignore._replace(spared=frozenset(ignore.rules.matching(_relative(folder, ignore.base))))
    except TooLarge:
        return ignore._replace(rules=None)


def _is_ignored(path: Path, ignores: Sequence[Ignore], *, is_directory: bool) -> bool:
    """Return True if the deepest file of rules with a match for ``path`` excludes it.

    Also True if a file of rules cannot be read or matched, or the files are too large together.
    """
    known = [ignore.rules for ignore in ignores if ignore.rules is not None]
    size, globs = sum(ignore.size for ignore in ignores), sum(rules.globs for rules in known)
    if len(known) < len(ignores) or size > MAX_RULES or globs > MAX_GLOBS:
        return True
    try:
        verdicts = (
            rules.excludes(_relative(path, ignore.base), is_directory=is_directory, but=ignore.spared)
            for rules, ignore in zip(reversed(known), reversed(ignores), strict=True)
        )
        return next((excluded for excluded in verdicts if excluded is not None), False)
    except TooLarge:
        return True


def _relative(path: Path, base: Path) -> bytes:
    """A path in the form of git's rules: bytes, relative to ``base``, with slashes."""
    return os.fsencode(path.relative_to(base).as_posix())
