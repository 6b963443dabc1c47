"""The text files of a directory that are worth learning: what git would track, small and readable."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from localspec.errors import InvalidOptions
from localspec.memory.workspace import workspace_of

MAX_BYTES = 1024 * 1024
IGNORES = (".git/info/exclude", ".gitignore")
"""where git reads what it ignores, the last word last"""
SECRET = GitIgnoreSpec.from_lines(
    (".env", ".env.*", ".envrc", ".git-credentials", ".vault-token", "kubeconfig", "*.tfvars", "*.tfstate")
    + (
        "credentials.json",
        "secrets.json",
        "secrets.toml",
        "secrets.yaml",
        "secrets.yml",
        ".netrc",
        ".npmrc",
        ".pypirc",
        ".pgpass",
        ".htpasswd",
        "shadow",
        "credentials",
        "id_rsa*",
        "id_dsa*",
        "id_ecdsa*",
        "id_ed25519*",
    )
    + ("*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "*.keystore", "*.jks", "*.gpg", "*.asc", "*.ovpn")
    + ("!*.pub", "!*.py", "!.env.example", "!.env.sample", "!.env.template")
)
"""names of files that hold secrets and little else, in small letters"""


class Ignore(NamedTuple):
    """One .gitignore: it speaks of what is below ``base``."""

    base: Path
    spec: GitIgnoreSpec


def text_files(path: Path) -> Iterator[Path]:
    """The real paths of the files at and below ``path``, but for what git ignores, ``.git``, symlinks, and
    what by its name holds secrets.

    A symlink's target is found under its own name if it is in the tree. ``path`` itself is taken
    whatever git says. What cannot be read is left out. Raises :class:`InvalidOptions` where ``path``
    itself is a file of secrets.
    """
    real = path.resolve()
    if real.is_file() and is_secret(real.name):
        raise InvalidOptions(f"{path} looks like a file of secrets", "Such files are never learnt.")
    if real.is_file():
        yield real
    elif real.is_dir():
        yield from _below(real, _rules_above(real))


def near_files(path: Path, is_late: Callable[[], bool] = lambda: False) -> Iterator[Path]:
    """As :func:`text_files` of a directory, the nearest first; none any more once it ``is_late``, which is
    asked at every entry: a directory may have a million."""
    real = path.resolve()
    waiting = deque([(real, _rules_above(real))])
    while waiting:
        folder, above = waiting.popleft()
        ignores = above + _ignores(folder)
        for entry in _entries(folder, ignores, is_late):
            if entry.is_dir():
                waiting.append((Path(entry.path), ignores))
            else:
                yield Path(entry.path)


def may_learn(path: Path) -> bool:
    """Whether a file, which need not be there yet, may be learnt from without being named by a person: not
    what git ignores, nor what by its name holds secrets."""
    real = path.resolve()
    if is_secret(path.name) or is_secret(real.name) or ".git" in real.parts:
        return False
    top = workspace_of(real.parent) or real.parent
    below = real.relative_to(top).parts
    ignores: list[Ignore] = []
    for depth, name in enumerate(below):
        folder = top.joinpath(*below[:depth])
        ignores += _ignores(folder)
        if _is_ignored(folder / name, ignores, "/" if depth < len(below) - 1 else ""):
            return False
    return True


def read_text(path: Path) -> str | None:
    """A file's text; None if it is binary, no UTF-8, empty, larger than 1 MiB, or cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if not content or len(content) > MAX_BYTES or b"\0" in content:
            return None
        return content.decode()
    except (OSError, UnicodeDecodeError):
        return None


def _below(folder: Path, above: list[Ignore]) -> Iterator[Path]:
    ignores = above + _ignores(folder)
    for entry in _entries(folder, ignores):
        if entry.is_dir():
            yield from _below(Path(entry.path), ignores)
        else:
            yield Path(entry.path)


def _entries(
    folder: Path, ignores: list[Ignore], is_late: Callable[[], bool] = lambda: False
) -> Iterator[os.DirEntry[str]]:
    """The files and directories in a directory that are worth a look, by name."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(takewhile(lambda _: not is_late(), found), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in takewhile(lambda _: not is_late(), entries):
        if entry.is_symlink() or entry.name == ".git":
            continue
        if entry.is_dir():
            if not _is_ignored(Path(entry.path), ignores, "/"):
                yield entry
        elif entry.is_file() and not (is_secret(entry.name) or _is_ignored(Path(entry.path), ignores, "")):
            yield entry


def _rules_above(folder: Path) -> list[Ignore]:
    """What is ignored by the directories above, up to the repository's root."""
    top = workspace_of(folder) or folder
    above = [place for place in folder.parents if place.is_relative_to(top)]
    return [_sparing(ignore, folder) for place in reversed(above) for ignore in _ignores(place)]


def is_secret(name: str) -> bool:
    """Whether a file of this name holds secrets and little else."""
    return SECRET.match_file(name.lower())


def _ignores(folder: Path) -> list[Ignore]:
    texts = (read_text(folder / name) for name in IGNORES)
    return [Ignore(folder, GitIgnoreSpec.from_lines(text.splitlines())) for text in texts if text is not None]


def _sparing(ignore: Ignore, folder: Path) -> Ignore:
    """The rules without those that leave out ``folder`` itself: who names it wants what is in it."""
    name = folder.relative_to(ignore.base).as_posix() + "/"
    return Ignore(ignore.base, GitIgnoreSpec([p for p in ignore.spec.patterns if p.match_file(name) is None]))


def _is_ignored(path: Path, ignores: list[Ignore], ending: str) -> bool:
    """What the deepest .gitignore says that says anything of ``path``; ``ending`` is / for a directory."""
    for base, spec in reversed(ignores):
        said = spec.check_file(path.relative_to(base).as_posix() + ending).include
        if said is not None:
            return said
    return False
