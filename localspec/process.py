"""The processes that localspec starts: their commands, directories and environments; and delayed Ctrl-C.

Each process runs in the root directory, and Python does not import from its working directory (``-P``):
neither a hostile directory's ``json.py`` nor its ``libggml-cpu.so`` is loaded. Ctrl-C is delayed during work
that must not end half-way: a step of the engine, or the loading of a model.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, MappingProxyType
from typing import NoReturn, TypedDict


@contextmanager
def delay_interrupts() -> Iterator[Callable[[], bool]]:
    """Keep a SIGINT until the block has ended; then the program's own handler gets it. Yields a function that
    returns True once one has come. A second one ends the process at once if the program leaves SIGINT to
    Python; those that come during one native call count as one. Only the main thread runs handlers: in
    another one, and where SIGINT is ignored, this does nothing."""
    handler = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT)
    if not callable(handler):
        yield lambda: False
        return
    came: list[FrameType | None] = []

    def keep(_: int, frame: FrameType | None) -> None:
        if handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        came.append(frame)

    signal.signal(signal.SIGINT, keep)
    try:
        yield lambda: bool(came)
    finally:
        if signal.getsignal(signal.SIGINT) in (keep, signal.SIG_DFL):  # else the block has set another one
            signal.signal(signal.SIGINT, handler)
        if came:
            handler(signal.SIGINT, came[0])


DIRECTORY = os.path.abspath(os.sep)
PLACES = (
    *("HOME", "LOCALSPEC_HOME", "XDG_RUNTIME_DIR"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"),
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS"),
    "LLAMA_CPP_LIB_PATH",
)
"""variables that hold a path"""
LISTS = ("PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""variables that hold several"""


class Surroundings(TypedDict):
    """Keyword arguments of :class:`subprocess.Popen` and :func:`asyncio.create_subprocess_exec`."""

    cwd: str
    env: dict[str, str]


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module of localspec by this Python."""
    return (sys.executable, "-P", "-m", module, *arguments)


NOTHING_ADDED: Mapping[str, str] = MappingProxyType({})


def surroundings(*, without: Collection[str] = (), added: Mapping[str, str] = NOTHING_ADDED) -> Surroundings:
    """The directory and environment of a process, ``without`` some variables and with those ``added``;
    relative paths in the environment are made absolute from the current directory."""
    environment = {name: absolute(name, value) for name, value in os.environ.items() if name not in without}
    return Surroundings(cwd=DIRECTORY, env={**environment, **added})


def become(command: tuple[str, ...]) -> NoReturn:
    """Replace this program by another one in these surroundings."""
    around = surroundings()
    os.chdir(around["cwd"])
    os.execve(command[0], command, around["env"])


def absolute(name: str, value: str) -> str:
    """A variable's value with absolute paths, where it is one of PLACES or LISTS. A list's empty items, which
    would mean the current directory, are left out."""
    if name in LISTS:
        return os.pathsep.join(os.path.abspath(part) for part in value.split(os.pathsep) if part)
    return os.path.abspath(os.path.expanduser(value)) if name in PLACES and value else value
