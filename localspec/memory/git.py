"""Questions to git about a repository that may be hostile: git runs no program that the repository names."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from threading import Timer

from localspec.errors import InvalidOptions
from localspec.process import surroundings

LIST_S = 60.0
"""seconds that listing a repository may take"""
CHECK_S = 2.0
"""seconds that the check of one file may take"""
MOST_BYTES = 64 << 20
"""bytes of output"""
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


def listed(folder: Path, limit_s: float = LIST_S) -> list[str]:
    """The paths below ``folder`` of what git tracks or would add. Raises :class:`InvalidOptions`.

    They are of the repository's making: some may not exist, or lead elsewhere.
    """
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
    the limits."""
    # Not from a relative entry of PATH, which could be the repository itself.
    places = [place for place in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(place)]
    git = shutil.which("git", path=os.pathsep.join(places))
    if git is None:
        raise InvalidOptions("git is not on the PATH", WITHOUT)
    given_to_git = [name for name in os.environ if name.startswith("GIT_")]
    settings = [part for setting in SETTINGS for part in ("-c", setting)]
    try:
        process = subprocess.Popen(
            [git, "--no-pager", "-C", str(folder), *settings, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **surroundings(without=given_to_git, added=ENVIRONMENT),
        )
    except OSError as error:
        raise InvalidOptions(f"git cannot be run: {error.strerror}", WITHOUT) from None
    timer = Timer(limit_s, _end, (process,))
    timer.start()
    try:
        assert process.stdin is not None and process.stdout is not None
        with process.stdout as source:
            with contextlib.suppress(BrokenPipeError), process.stdin as target:
                target.write(given)
            output = source.read(MOST_BYTES + 1)
        if len(output) > MOST_BYTES:
            raise InvalidOptions(f"git lists more than {MOST_BYTES >> 20} MiB of names in {folder}", SMALLER)
        code = process.wait()
        if code == -signal.SIGKILL:
            raise InvalidOptions(f"git did not answer within {limit_s:g} s in {folder}", SMALLER)
        return code, output
    finally:
        timer.cancel()
        _end(process)
        process.wait()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill git and what it started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
