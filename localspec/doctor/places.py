"""The directories that localspec writes to: usable, private, with free space."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from localspec import home
from localspec.doctor.finding import Finding, problem_of, some
from localspec.errors import LocalspecError
from localspec.units import GB, MB, size

LITTLE = GB
NOTHING = 16 * MB
"""free bytes of a disk that may be too few for the first table of n-grams, or a chat's cache"""
MOST = 5000
"""files whose permissions are checked"""
OTHERS = 0o077
WRITE_OF_OTHERS = 0o022


def homes() -> Iterator[Finding]:
    """Check that each directory can be created and written."""
    kinds = {
        "data": home.data_dir,
        "cache": home.cache_dir,
        "state": home.state_dir,
        "runtime": home.runtime_dir,
    }
    usable: dict[str, Path] = {}
    for kind, place in kinds.items():
        try:
            usable[kind] = _writable(place())
        except LocalspecError as error:
            yield problem_of("home", error)
    if usable:
        yield Finding("home", "ok", f"Writable and private: {_named(usable)}.")


def _named(places: Mapping[str, Path]) -> str:
    parents = {path.parent for path in places.values()}
    if len(parents) == 1:
        return f"{', '.join(places)} in {parents.pop()}"
    return ", ".join(f"{kind} in {path}" for kind, path in places.items())


def _writable(path: Path) -> Path:
    """Create a file in ``path`` and return ``path``; raises :class:`LocalspecError`."""
    try:
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        remedy = f"Run `chmod 700 '{path}'`, or set LOCALSPEC_HOME to a directory you can write to."
        raise LocalspecError(f"{path} cannot be written: {error.strerror}", remedy) from None


def disk(places: Mapping[str, Path]) -> Iterator[Finding]:
    """Check the free space of each disk with some of the places, existing or not."""
    disks: dict[int, tuple[Path, list[str]]] = {}
    for kind, path in places.items():
        there = next(each for each in (path, *path.parents) if os.path.exists(each))
        disks.setdefault(os.stat(there).st_dev, (there, []))[1].append(kind)
    for there, kinds in disks.values():
        yield _room(shutil.disk_usage(there).free, f"{', '.join(kinds)} ({there})")


def _room(free: int, place: str) -> Finding:
    sentence = f"{size(free)} are free for {place}."
    if free >= LITTLE:
        return Finding("disk", "ok", sentence)
    step = (
        "Free disk space: `localspec models rm NAME` removes a downloaded model, `localspec config set "
        "chat_cache_mb 0` keeps no caches of chats."
    )
    return Finding("disk", "warning" if free >= NOTHING else "problem", sentence, step)


# Permissions.


def permissions(places: Mapping[str, Path], environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Check that others can neither read nor change the files; run before any use removes permissions."""
    if os.name != "posix":
        yield Finding("permissions", "ok", "They are this system's defaults for a user's directories.")
        return
    findings = [*_exposed(places.values()), *_changeable(places.values()), *_runtime(environ)]
    yield from findings
    if not findings:
        yield Finding("permissions", "ok", "Only you can read or change localspec's files.")


def _exposed(places: Iterable[Path]) -> Iterator[Finding]:
    for place in places:
        opened, foreign = [], []
        for path, found in islice(_entries(place), MOST):
            if found.st_uid != os.geteuid():
                foreign.append(path)
            elif found.st_mode & OTHERS and not _is_empty(found):
                opened.append(path)
        quoted = shlex.quote(str(place))
        if opened:
            sentence = f"Other users had permissions for {some(opened)}."
            yield Finding("permissions", "warning", sentence, f"Remove them: `chmod -R go= {quoted}`")
        if foreign:
            sentence, step = f"Another user owns {some(foreign)}.", f"Run sudo chown -R $(id -u) {quoted}"
            yield Finding("permissions", "warning", sentence, step)


def _entries(place: Path) -> Iterator[tuple[str, os.stat_result]]:
    """A directory and everything in it, except links."""
    inside = ((folder, names + files) for folder, names, files in os.walk(place))
    for path in (str(place), *(os.path.join(folder, name) for folder, names in inside for name in names)):
        try:
            found = os.lstat(path)
        except OSError:  # it does not exist, or no longer
            continue
        if not stat.S_ISLNK(found.st_mode):
            yield path, found


def _is_empty(found: os.stat_result) -> bool:
    """True for an empty file, such as a lock: it has nothing to read."""
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


def _changeable(places: Iterable[Path]) -> Iterator[Finding]:
    """Report parent directories that others can write to: they can replace any file there."""
    for parent in dict.fromkeys(place.parent for place in places):
        try:
            mode = os.stat(parent).st_mode
        except OSError:
            continue
        if mode & WRITE_OF_OTHERS and not mode & stat.S_ISVTX:
            step = f"Run `chmod go-w {shlex.quote(str(parent))}`"
            yield Finding("permissions", "warning", f"Other users can replace files in {parent}.", step)


def _runtime(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check XDG_RUNTIME_DIR, if the sockets go there."""
    named = environ.get("XDG_RUNTIME_DIR")
    if not named or environ.get("LOCALSPEC_HOME"):
        return
    try:
        found = os.stat(named)
        wrong = found.st_uid != os.geteuid() or found.st_mode & OTHERS
        why = "is not private" if wrong else ""
    except OSError as error:
        why = f"cannot be used: {error.strerror}"
    if why:
        step = "Log in as this user (su and sudo keep what was set), or unset XDG_RUNTIME_DIR."
        yield Finding("permissions", "warning", f"XDG_RUNTIME_DIR ({named}) {why}.", step)
