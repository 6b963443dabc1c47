"""The texts of a request, and its answer from the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from localspec._version import __version__
from localspec.cli.output import note
from localspec.cli.printer import Printer
from localspec.client import Client, Event, Stream, connect
from localspec.config import load_config
from localspec.errors import InvalidOptions, SessionNotFound
from localspec.home import here, plain, workspace_of
from localspec.models.paths import absolute
from localspec.protocol.messages import Completions, ModelProgress, SpeculationDegraded, StreamDelta
from localspec.protocol.options import Options, parse_options
from localspec.protocol.requests import Result

T = TypeVar("T")
STDIN = Path("-")
LONGEST_TEXT = 16 << 20
"""bytes of a text that is read; the daemon accepts fewer in one message"""


def from_here(options: Options) -> Options:
    """``options`` with absolute paths and this directory's workspace, for the daemon in another directory.
    Raises :class:`InvalidOptions` for an invalid configuration, also if a daemon runs with an earlier one."""
    load_config()
    values = {f: v for f in options.__struct_fields__ if (v := getattr(options, f)) is not None}
    for name in ("model", "draft"):
        if name in values:
            values[name] = absolute(values[name])
    if given := values.get("workspace"):
        values["workspace"] = plain(os.path.abspath(os.path.expanduser(given)))
    elif given is None and (workspace := workspace_at(here())) is not None:
        values["workspace"] = workspace
    return parse_options(values)


def workspace_at(directory: Path) -> str | None:
    """The workspace of a directory: its git repository."""
    root = workspace_of(directory)
    return None if root is None else plain(str(root))


def read_stdin() -> str:
    """The piped text; empty if stdin is a terminal or closed. Raises :class:`InvalidOptions`."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    try:
        return _text_of(sys.stdin.buffer.read(LONGEST_TEXT + 1), "stdin")
    except OSError:
        return ""  # closed: as good as empty


def read_text(path: Path) -> str:
    """The text of a file; ``-`` is stdin. Raises :class:`InvalidOptions`."""
    if path == STDIN:
        return read_stdin()
    try:
        with path.open("rb") as file:
            return _text_of(file.read(LONGEST_TEXT + 1), str(path))
    except OSError as error:
        raise InvalidOptions(
            f"{path} cannot be read: {error.strerror}", "Give a readable text file."
        ) from None


def _text_of(data: bytes, name: str) -> str:
    if len(data) > LONGEST_TEXT:
        raise InvalidOptions(f"{name} has more than {LONGEST_TEXT >> 20} MiB", "Give a shorter text.")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidOptions(f"{name} is not UTF-8 text", "Convert it, for example with iconv.") from None


def is_empty_pipe() -> bool:
    """Return True if stdin is a pipe; its text must have been read, and be empty."""
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, AttributeError):
        return False


def remote(ask: Callable[[Client], Awaitable[T]], *, start: bool = True) -> T:
    """Run ``ask`` on a connection to the daemon; with ``start``, start the daemon if none runs."""
    return asyncio.run(_ask_daemon(ask, start=start))


async def _ask_daemon(ask: Callable[[Client], Awaitable[T]], *, start: bool) -> T:
    started: list[bool] = []

    def on_start(why: str) -> None:
        note(f"localspec: restarting the daemon: {why}." if why else "localspec: starting the daemon.")
        started.append(True)

    async with await connect(start=start, on_start=on_start) as client:
        if started and (problem := (await client.status()).history_problem):
            note(f"localspec: {problem}")
        if start and (warning := _not_replaced(client)):
            note(f"localspec: {warning}")
        return await ask(client)


def _not_replaced(client: Client) -> str:
    """The reason why the daemon should be replaced, and why it was not; empty if it is up to date."""
    if not client.replaceable:
        return ""
    version = client.welcome.server.version
    versions = f"the daemon is localspec {version}, this command is {__version__}"
    why = versions if client.outdated else "config.toml has changed since the daemon started"
    kept = client.kept_for or "config.toml cannot be read"
    return f"{why}; {kept}. It is replaced when it is idle, or at once by `localspec daemon restart`."


async def last_session(client: Client, remedy: str) -> str:
    """The id of the last used session; raises :class:`SessionNotFound`, with ``remedy``."""
    sessions = await client.sessions(limit=1)
    if not sessions:
        raise SessionNotFound("there is no stored session to continue", remedy)
    return sessions[0].session


async def show(stream: Stream[T], printer: Printer) -> T:
    """Print the events of a stream and return its result. On Ctrl-C, cancel the request in the daemon first.
    The result so far is then ``printer.partial``."""
    try:
        async for event in stream.events():
            _show(event, printer)
        result = await stream.result()
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):  # the daemon may be gone as well: nothing left to cancel
            end: object = await stream.cancel()
            end = end.result if isinstance(end, Completions) else end
            printer.partial = end if isinstance(end, Result) else None
        raise
    printer.loaded_s += stream.loaded_s or 0.0
    return result


def _show(event: Event, printer: Printer) -> None:
    if isinstance(event, StreamDelta):
        printer.delta(event)
    elif isinstance(event, ModelProgress):
        printer.progress(f"loading the {event.stage} model", event.fraction)
    elif isinstance(event, SpeculationDegraded):
        printer.note_degradation(event.source, event.to, event.reason)
    else:
        printer.progress(event.stage, event.fraction)
