"""The files that are learnt: of a directory, the text files that git would track, small and readable."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

from localspec.errors import InvalidOptions
from localspec.home import is_gits_own, read_regular, repository_of
from localspec.memory import sources
from localspec.memory.secrets import is_secret

MAX_BYTES = 1024 * 1024
NEAR_S = 0.5
"""seconds that git has to list the files near a directory, before all are listed without it"""


def text_files(path: Path) -> list[Path]:
    """The real paths of the files at and below ``path``, sorted, except those that git ignores, ``.git``,
    symlinks, files whose names stand for secrets, and git's own. A file that is named itself is included even
    if git ignores it. Raises :class:`InvalidOptions` if it is a file of secrets or of git, and for a
    directory whose files git does not list."""
    real = path.resolve()
    if real.is_file() and is_secret(real.name):
        raise InvalidOptions(
            f"{path} is, by its name, a file of secrets", "Leave it out: such files are never learnt."
        )
    if real.is_file() and any(map(is_gits_own, real.parents)):
        raise InvalidOptions(f"{path} is a file of git's own", "Name files of a checkout instead.")
    if not real.is_dir():
        return [real] if real.is_file() else []
    if repository_of(real) is None:
        raise InvalidOptions(
            f"{path} is in no git repository, which would say what to leave out",
            "Name the files to learn instead, or run `git init` there.",
        )
    return sorted(_real_files(real, sources.list_files(real)))


def near_files(path: Path, is_late: Callable[[], bool] = lambda: False) -> Iterator[Path]:
    """The files of a directory without those of secrets, the nearest first: those of :func:`text_files`, or
    all if git does not list them. Ends once ``is_late`` returns True, which is called at every entry: a
    directory may have a million."""
    real = path.resolve()
    try:
        found = sources.list_files(real, NEAR_S)
    except InvalidOptions:
        return _walk(real, is_late)
    found.sort(key=lambda name: (name.count("/"), name))
    return _real_files(real, takewhile(lambda _: not is_late(), found))


def may_learn(path: Path) -> bool:
    """Return True if a file, which need not exist yet, may be learnt without being named by the user: git
    does not ignore it, and its name does not stand for secrets."""
    real = path.resolve()
    if is_secret(path.name) or is_secret(real.name) or ".git" in real.parts:
        return False
    if any(map(is_gits_own, real.parents)):
        return False
    top = repository_of(real.parent)
    return top is None or not sources.ignores(top, real)


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


def _real_files(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Of the relative paths that git lists, those of files that may be learnt."""
    is_git_directory = cache(is_gits_own)
    for name in dict.fromkeys(names):
        file = os.path.join(folder, name)
        try:
            # A hostile index has names that lead out of the repository.
            is_own = os.path.realpath(file) == file and not os.path.isabs(name)
            is_own = is_own and stat.S_ISREG(os.lstat(file).st_mode)
        except (OSError, ValueError):
            continue
        is_gits = ".git" in name.lower().split("/") or any(map(is_git_directory, Path(file).parents))
        if is_own and not is_gits and not is_secret(os.path.basename(file)):
            yield Path(file)


def _walk(folder: Path, is_late: Callable[[], bool]) -> Iterator[Path]:
    """The files below a directory, ignored ones too, the nearest first."""
    waiting = deque([folder])
    while waiting:
        try:
            with os.scandir(waiting.popleft()) as found:
                entries = sorted(takewhile(lambda _: not is_late(), found), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in takewhile(lambda _: not is_late(), entries):
            if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                waiting.append(Path(entry.path))
            elif entry.is_file(follow_symlinks=False) and not is_secret(entry.name):
                yield Path(entry.path)
