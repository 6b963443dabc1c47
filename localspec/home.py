"""The places of files: localspec's own directories and files, and the workspace that a directory belongs to.

localspec's directories are those of platformdirs, or one named by LOCALSPEC_HOME. Untrusted files are read
with a bound, and only if they are regular ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import platformdirs

from localspec.errors import FULL, LocalspecError


def workspace_of(directory: Path) -> Path | None:
    """The nearest git root of the user's that holds ``directory``, as a real path; None outside of any. A
    root whose ``.git`` belongs to another user does not count, as for git's own ``safe.directory``: in
    ``/tmp`` any user could turn all directories into their own workspace."""
    return next((root for root in _roots(directory) if _is_trusted(root)), None)


def workspace_of_file(path: str | None) -> str | None:
    """Return the git root that contains a file; None if there is none, or the path is invalid."""
    try:
        found = workspace_of(Path(path).parent) if path and os.path.isabs(path) else None
    except (OSError, ValueError, RuntimeError):
        return None
    return None if found is None else str(found)


def repository_of(directory: Path) -> Path | None:
    """The git root that holds ``directory``, of any owner."""
    return next(_roots(directory), None)


def is_gits_own(directory: Path) -> bool:
    """Return True for a directory of git's own files: a bare repository, or a ``.git``."""
    return all(os.path.exists(directory / name) for name in ("HEAD", "objects", "refs"))


def _roots(directory: Path) -> Iterator[Path]:
    real = directory.resolve()
    # In a worktree and a submodule .git is a file.
    return (place for place in (real, *real.parents) if (place / ".git").exists())


def _is_trusted(root: Path) -> bool:
    """Return True if the user or the administrator owns ``root``, its ``.git``, and the target of that
    link. Under ``sudo`` the user who ran it counts, too. False if one cannot be examined."""
    users, caller = {0, os.geteuid()}, os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isascii() and caller.isdigit():
        users.add(int(caller))
    try:
        places = os.stat(root), os.lstat(root / ".git"), os.stat(root / ".git")
    except OSError:
        return False
    return {place.st_uid for place in places} <= users


def plain(path: str) -> str:
    """A path as text that any encoder accepts: bytes that are not UTF-8 are escaped, always alike."""
    return path.encode("utf-8", "backslashreplace").decode()


FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


def read_regular(path: Path | str, most: int) -> bytes | None:
    """A regular file's first ``most + 1`` bytes; None for a FIFO, a device or a directory. Never waits for a
    writer. Raises :class:`OSError`."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        return None  # opening a device may already have an effect
    with os.fdopen(os.open(path, FLAGS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None  # the file was replaced between the two checks
        return file.read(most + 1)


def stamp_of(path: Path) -> tuple[int, int, int, int] | None:
    """The state of a file: its size, its times of change (ns) and its inode; None if it is not there."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


APP = "localspec"
PRIVATE = 0o700
OLDER_LOGS = 3
SOCKET_PATH_BYTES = 103
"""the longest address of a Unix socket that every system accepts"""


def place(kind: str) -> Path:
    home = os.environ.get("LOCALSPEC_HOME")
    with _require_home(), warnings.catch_warnings():
        if home:
            path = Path(home).expanduser()
            return (path if path.is_absolute() else here() / path).resolve() / kind
        # Without XDG_RUNTIME_DIR platformdirs falls back to a place in /tmp, which private_dir checks.
        warnings.simplefilter("ignore", UserWarning)
        return Path(getattr(platformdirs, f"user_{kind}_path")(APP))


def of_user() -> Path:
    """The user's home directory. Raises :class:`LocalspecError` if it is unknown."""
    with _require_home():
        return Path.home()


@contextlib.contextmanager
def _require_home() -> Iterator[None]:
    """Turn the error for an unknown user, as in a container, into one whose remedy is to set HOME."""
    try:
        yield
    except RuntimeError:
        raise LocalspecError(
            f"the home directory is unknown: HOME is not set, and the system has no user {os.getuid()}",
            "Set HOME to a directory you can write to; LOCALSPEC_HOME is enough for localspec's own files.",
        ) from None


def config_dir() -> Path:
    return place("config")


def data_dir() -> Path:
    """The directory of the history and the n-gram memory, readable by its owner only."""
    return private_dir(place("data"))


def state_dir() -> Path:
    """The directory of the logs, readable by its owner only."""
    return private_dir(place("state"))


def cache_dir() -> Path:
    """The directory of what can be computed again: measured costs and the like."""
    return private_dir(place("cache"))


def runtime_dir() -> Path:
    """The directory of the socket, the lock and the discovery file, readable by its owner only."""
    return private_dir(place("runtime"))


def socket_path() -> Path:
    """The daemon's Unix socket; if the home's path is too long for one, it is in a directory in /tmp instead,
    as private. Raises :class:`LocalspecError` if another user has made that directory."""
    path = runtime_dir() / "daemon.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return path
    key = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    # Not TMPDIR, of which the daemon's clients may have another one.
    return private_dir(Path(f"/tmp/{APP}-{key}")) / path.name


def discovery_path() -> Path:
    """The file with the addresses of the listening daemon (``messages.Discovery``)."""
    return runtime_dir() / "daemon.json"


def log_path() -> Path:
    """The log of the daemon, unless it was started in a terminal by `localspec daemon run`."""
    return state_dir() / "daemon.log"


def older_logs() -> tuple[Path, ...]:
    """The files of earlier log lines, the newest first."""
    log = log_path()
    return tuple(log.with_name(f"{log.name}.{number}") for number in range(1, OLDER_LOGS + 1))


def starter_path() -> Path:
    """The file of the service's start command (``client.discovery.Starter``), while one is installed."""
    return state_dir() / "service.json"


def left_open_path() -> Path:
    """A file that exists while a daemon with an HTTP server is being replaced."""
    return runtime_dir() / "http-server"


def http_token_path() -> Path:
    """The file of the token for the HTTP server, which is valid for nothing else."""
    return data_dir() / "http-token"


def history_path() -> Path:
    """The database of all chats; exists once a daemon has run."""
    return data_dir() / "history.sqlite"


def chat_caches_dir() -> Path:
    """The directory of the saved KV caches of chats, by model."""
    return private_dir(cache_dir() / "chats")


def chat_cache_name(source: str) -> str:
    """The file of a chat's cache, in a model's directory of :func:`chat_caches_dir`."""
    return hashlib.sha256(source.encode()).hexdigest()[:32] + ".state"


def delete_chat_caches(source: str) -> None:
    """Delete the saved KV caches of a chat, of all models."""
    whole = Path(chat_cache_name(source))
    for name in (whole, whole.with_suffix(".part")):  # the latter is being written
        for path in chat_caches_dir().glob(f"*/{name}"):
            path.unlink(missing_ok=True)


def here() -> Path:
    """The current directory; raises :class:`LocalspecError` if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise LocalspecError(
            "the current directory was deleted", "Change to a directory that exists, such as ~."
        ) from None


def private_dir(path: Path, *, parents: bool = True) -> Path:
    """Create ``path`` if needed, with its ``parents``, and remove all permissions of group and others.
    Raises :class:`LocalspecError` for a directory of another user, or one that cannot be created."""
    try:
        path.mkdir(parents=parents, exist_ok=True, mode=PRIVATE)
        found = path.stat()
        # In /tmp a link of another user to a directory of this one could be changed after this check.
        if found.st_uid != os.geteuid() or path.lstat().st_uid not in (0, os.geteuid()):
            raise LocalspecError(
                f"{path} belongs to another user", "Remove it, or set LOCALSPEC_HOME to another directory."
            )
        if found.st_mode & 0o077:
            path.chmod(PRIVATE)
    except OSError as error:
        raise LocalspecError(
            f"{path} cannot be used: {error.strerror}", "Set LOCALSPEC_HOME to a directory you can write to."
        ) from None
    return path


def private_opener(path: str, flags: int) -> int:
    """For :func:`open`: a new file is readable by its owner only."""
    return os.open(path, flags, 0o600)


def open_log() -> BinaryIO:
    """The daemon's log, opened to append; the null device if the disk has no space for a new file."""
    try:
        return open(log_path(), "ab", opener=private_opener)
    except OSError as error:
        if error.errno not in FULL:
            raise
        return open(os.devnull, "ab")


def write_private(path: Path, content: str) -> None:
    """Write a file atomically, readable by its owner only; an OSError names this file."""
    try:
        fd, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(content)
            os.replace(scratch, path)
        except BaseException:
            os.unlink(scratch)
            raise
    except OSError as error:
        error.filename = str(path)
        raise
