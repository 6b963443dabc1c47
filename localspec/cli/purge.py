"""``localspec purge``: list what localspec keeps on this disk, and remove it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

from localspec import home
from localspec.cli import output
from localspec.cli.daemon import Yes, may_stop, stop_daemon
from localspec.client import discovery
from localspec.errors import ExitCode, LocalspecError, ServiceUnavailable
from localspec.hub import records
from localspec.service import service
from localspec.wording import size

Part = Literal["sessions", "memory", "tokens", "models", "caches", "logs", "settings", "service", "daemon"]
FILES: Mapping[Part, str] = {
    "sessions": "data/history.sqlite data/history.sqlite-* data/history.sqlite.*",
    "memory": "data/memory",
    "tokens": "data/http-token",
    "models": "data/pulled.json data/pulled.json.lock",
    "caches": "cache/chats cache/learnt cache/models.json cache/builds",
    "logs": "state/daemon.log state/daemon.log.* state/chat.log",
    "settings": "config/config.toml state/chat-theme",
    "service": "state/service.json",
    "daemon": "runtime/daemon.json runtime/*.lock runtime/http-server socket/daemon.sock",
}
"""names of localspec's own files, by part; files of other names are never removed"""


def purge(*parts: Part, keep_models: bool = False, yes: Yes = False) -> int:
    """Remove what localspec keeps on this disk, after a list of it and a question.

    Of the hub's cache only models that `localspec models pull` downloaded are removed.

    Parameters
    ----------
    parts
        Only these; otherwise all.
    keep_models
        Keep the models that were downloaded.
    """
    chosen = set(parts or get_args(Part)) - ({"models"} if keep_models else set())
    folders, daemon = _find_folders(), discovery.find() if discovery.runs() else None
    pulled = records.read() if "models" in chosen else ()
    manager = _find_service() if "service" in chosen else None
    found = [("models", file.size, each.entry(file)) for each in pulled for file in each.files]
    files = [*_find_files(folders, chosen), *([("service", manager.path)] if manager else [])]
    found += [(part, _measure(path), path) for part, path in files]
    rows = [(part, size(n_bytes), str(path)) for part, n_bytes, path in found]
    rows += [] if daemon is None else [("daemon", "-", f"process {daemon.pid}, which will be stopped")]
    if not rows:
        output.note("There is nothing to remove.")
        return ExitCode.OK
    output.table(("part", "size", "place"), rows, numbers=(1,), wrapped=(2,))
    question = f"Remove all of this ({size(sum(each[1] for each in found))})? It cannot be undone."
    if not yes and not (output.ask_confirmation(question) and may_stop()):
        output.note("Nothing was removed.")
        return ExitCode.ERROR
    if manager is not None:
        service.uninstall(manager, service.daemon_job())
    stop_daemon()  # until its end it writes files
    if pulled:
        records.remove(pulled)
    for _, path in _find_files(folders, chosen):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    for folder in folders.values():
        with contextlib.suppress(OSError):  # other files are in it
            folder.rmdir()
    output.note("Removed.")
    return ExitCode.OK


def _find_service() -> service.Manager | None:
    """The manager of this home's service, if one is installed."""
    with contextlib.suppress(ServiceUnavailable):
        manager = service.this_manager()
        found = service.status(manager, service.daemon_job())
        return manager if found.installed and not found.other_home else None
    return None


def _find_folders() -> dict[str, Path]:
    """The directories of :data:`FILES`; raises :class:`LocalspecError` for a link, or one of another user."""
    folders = {kind: home.place(kind) for kind in ("data", "cache", "state", "config", "runtime")}
    if (shared := folders["data"].parent) in (home.of_user(), *home.of_user().parents):
        what = f"LOCALSPEC_HOME is {shared}, where data/memory and others may be yours; nothing was removed"
        raise LocalspecError(what, "Remove by hand what is localspec's.")
    folders["socket"] = home.socket_path().parent
    for folder in folders.values():
        if folder.is_symlink() or (folder.exists() and folder.stat().st_uid != os.geteuid()):
            what = f"{folder} is a symbolic link, or belongs to another user; nothing was removed"
            raise LocalspecError(what, "Remove by hand what it holds, and the link.")
    return folders


def _find_files(folders: Mapping[str, Path], parts: Collection[str]) -> Iterator[tuple[str, Path]]:
    """The files and directories of these parts, with those that were written when a process was killed."""
    for part, names in FILES.items():
        for kind, _, pattern in (name.partition("/") for name in names.split() if part in parts):
            for path in sorted({*folders[kind].glob(pattern), *folders[kind].glob(f".{pattern}.*")}):
                yield part, path


def _measure(path: Path) -> int:
    """Bytes of a file, or of all files of a directory; links are not followed."""
    places = path.rglob("*") if path.is_dir() and not path.is_symlink() else (path,)
    return sum(each.lstat().st_size for each in places if each.is_symlink() or each.is_file())
