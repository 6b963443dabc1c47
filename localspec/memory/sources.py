"""The names of the sources that a table learnt from, and the questions to git about their files.

The entries of a table hold only a 16-bit tag of a source's name. A repository may be hostile: git runs no
program that the repository names, and work that waits for the disk or reads untrusted files is done beside
the thread that serves requests.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

import msgspec

from localspec.errors import InvalidOptions
from localspec.home import plain, write_private
from localspec.process import surroundings

LIST_S = 60.0
"""seconds that listing a repository may take"""
CHECK_S = 2.0
"""seconds that the check of one file may take"""
SETTINGS = ("core.fsmonitor=false", f"core.hooksPath={os.devnull}", "safe.bareRepository=explicit")
"""what no configuration of a repository overrides"""
WITHOUT = "Install git, or name the files to learn instead of their directory."
SMALLER = "Name smaller directories in it, one at a time."
ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "",  # with the next: a missing object is not fetched, which would run programs
    "GIT_NO_LAZY_FETCH": "1",
}


def list_files(folder: Path, limit_s: float = LIST_S) -> list[str]:
    """The paths below ``folder`` of what git tracks or would add. Raises :class:`InvalidOptions`. They are of
    the repository's making: some may not exist, or lead elsewhere."""
    code, output = _run(folder, "ls-files", "-z", "-co", "--exclude-standard", limit_s=limit_s)
    if code == 0:
        return [os.fsdecode(name) for name in output.split(b"\0") if name]
    remedy = "Run `git ls-files` there to see what stops it."
    raise InvalidOptions(f"git does not list the files of {folder}", remedy)


def ignores(top: Path, path: Path) -> bool:
    """Return True if the repository of the root ``top`` ignores a file, which need not exist; also if git
    does not say so in time."""
    name = os.fsencode(path.relative_to(top).as_posix())
    try:
        return _run(top, "check-ignore", "-z", "--stdin", given=name + b"\0", limit_s=CHECK_S)[0] != 1
    except InvalidOptions:
        return True


def _run(folder: Path, *arguments: str, given: bytes = b"", limit_s: float) -> tuple[int, bytes]:
    """The exit code and the output of git in a folder; raises :class:`InvalidOptions` without git and beyond
    the limit."""
    # Not from a relative entry of PATH, which could be the repository itself.
    places = [place for place in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(place)]
    git = shutil.which("git", path=os.pathsep.join(places))
    if git is None:
        raise InvalidOptions("git is not on the PATH", WITHOUT)
    given_to_git = [name for name in os.environ if name.startswith("GIT_")]
    settings = [part for setting in SETTINGS for part in ("-c", setting)]
    try:
        done = subprocess.run(
            [git, "--no-pager", "-C", str(folder), *settings, *arguments],
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit_s,
            check=False,
            **surroundings(without=given_to_git, added=ENVIRONMENT),
        )
    except subprocess.TimeoutExpired:
        raise InvalidOptions(f"git did not answer within {limit_s:g} s in {folder}", SMALLER) from None
    except OSError as error:
        raise InvalidOptions(f"git cannot be run: {error.strerror}", WITHOUT) from None
    return done.returncode, done.stdout


WAIT_S = 0.0005

T = TypeVar("T")


def run_in_thread(work: Callable[[], T]) -> Generator[None, None, T]:
    """Do ``work`` in a thread of its own and return its result; a step waits for less than a millisecond."""
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(work)
        while wait([done], WAIT_S).not_done:
            yield
    return done.result()


TAGS = 0xFFFF


def tag_of(source: str) -> int:
    """The tag of a source, 1 … 65535. Two names may share a tag: forgetting one then forgets both."""
    digest = hashlib.sha256(plain(source).encode()).digest()
    return 1 + int.from_bytes(digest[:4], "big") % TAGS


class Sources:
    """A private file of one JSON string a line. Changing it needs the lock of the folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        """The names, oldest first, each once; malformed lines are left out."""
        try:
            names = map(_name, self._path.read_bytes().split(b"\n"))
        except OSError:
            return []
        return list(dict.fromkeys(name for name in names if name is not None))

    def __contains__(self, name: str) -> bool:
        return plain(name) in self.names()

    def add(self, name: str) -> None:
        """Append the name if it is not there yet. Raises :class:`OSError`."""
        if name not in self:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(fd, "wb") as file:
                # The newline in front ends a line that a killed process left half written.
                file.write(b"\n" + _line(name))

    def remove(self, name: str) -> None:
        """Remove a name. Raises :class:`OSError`."""
        if name in self:
            kept = (each for each in self.names() if each != plain(name))
            write_private(self._path, "".join(f"\n{_line(each).decode()}" for each in kept))


def _line(name: str) -> bytes:
    return msgspec.json.encode(plain(name))


def _name(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
