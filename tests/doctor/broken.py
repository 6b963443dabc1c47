"""Homes with many problems, and the lines that the doctor must print.

``python -m tests.doctor.broken DIR`` writes the first one into an empty directory;
``HOME=DIR LOCALSPEC_HOME=DIR/home localspec doctor`` prints them.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import msgspec

from localspec.protocol.messages import Discovery
from tests.models import ggufs

NOBODY = 2**22 + 1
"""no process has this number"""
CONFIG = """\
model_dirs = ["~/gone"]
[engine]
threads = 1
[daemon]
port = 0
allowed_origins = []
[models."budnled"]
k = 1
"""

Told = tuple[str, str, str, str]
"""a line's name and level, and what its sentence and its remedy hold"""

BROKEN: list[Told] = [
    ("config", "warning", "daemon.allowed_origins in line 6 of", "`localspec config edit`"),
    ("config", "warning", "did you mean 'bundled'?", "`localspec config edit`"),
    ("models", "warning", "2 cannot be used: half-7b-q4_0 (", "`localspec models list`"),
    ("models", "warning", ".ollama/models cannot be read: Too many levels", "right to read"),
    ("model_dirs", "warning", "does not exist", "mkdir -p"),
    ("ngrams", "warning", "the file is not an n-gram table", "rm /"),
    ("history", "warning", "/data/history.sqlite.damaged-1; a new", "rm /"),
    ("permissions", "warning", "token", "chmod -R go="),
    ("sockets", "warning", "daemon.sock and", "`localspec daemon start`"),
]
"""all that is not well in the first home"""


def write_broken(home: Path, user: Path) -> None:
    """A home that still works, of a ``user`` whose own home is that directory."""
    _write(home / "config" / "config.toml", CONFIG.encode())
    # A store that nobody can read, not even root: a link that leads to itself.
    store = user / ".ollama" / "models"
    store.parent.mkdir()
    store.symlink_to(store)
    _write(user / ".lmstudio" / "models" / "ada" / "half" / "half-7b-q4_0.gguf", ggufs.small()[:100])
    _write(user / ".lmstudio" / "models" / "ada" / "none" / "none-7b-q4_0.gguf", b"no model")
    _write(home / "data" / "token", b"secret")
    for path, mode in ((home / "data" / "token", 0o644), (home / "data", 0o755)):
        path.chmod(mode)
    _write(home / "data" / "memory" / "0123456789abcdef" / "user.1.ngm", bytes(8192))
    for suffix in ("", "-wal"):
        aside = home / "data" / f"history.sqlite.damaged-1{suffix}"
        _write(aside, b"no database")
        aside.chmod(0o600)
    _write_dead_daemon(home / "runtime")


def _write_dead_daemon(runtime: Path) -> None:
    path = runtime / "daemon.sock"
    runtime.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o600)
    said = Discovery(NOBODY, "0.1.0", 1, str(path), "ws://127.0.0.1:1", str(runtime / "token"))
    _write(runtime / "daemon.json", msgspec.json.encode(said))
    (runtime / "daemon.json").chmod(0o600)


WORSE: list[Told] = [
    ("config", "problem", "did you mean 'options.model'", "config.toml"),
    ("ngrams", "problem", "memory is not a directory", "rm /"),
    ("home", "problem", "cache cannot be used", "LOCALSPEC_HOME"),
    ("sockets", "problem", "daemon.sock is a directory", "rm -r /"),
]
"""all that is not well in the second home"""


def write_worse(home: Path, user: Path) -> None:
    """A home that nothing works in."""
    _write(home / "config" / "config.toml", b'[options]\nmodle = "x"\n')
    _write(home / "cache", b"no directory")
    _write(home / "data" / "memory", b"no directory")
    (home / "runtime" / "daemon.sock").mkdir(parents=True)
    for path in (home / "cache", home / "data" / "memory"):
        path.chmod(0o600)
    for path in (home / "data", home / "runtime", home / "runtime" / "daemon.sock"):
        path.chmod(0o700)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


if __name__ == "__main__":
    write_broken(Path(sys.argv[1], "home"), Path(sys.argv[1]))
