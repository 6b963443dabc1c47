"""``localspec daemon …``: run, start, stop and watch the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.types import NonNegativeInt

from localspec import home, process
from localspec.cli import answer, output
from localspec.cli.flags import AsJson
from localspec.cli.output import examples
from localspec.client import connect, discovery
from localspec.config import load_config
from localspec.daemon.access import create, read_or_create
from localspec.errors import INSTALL_HTTP, DaemonUnavailable, ExitCode, QueueFull, VersionSkew
from localspec.http.server import lacking
from localspec.protocol.messages import DaemonStatus, Discovery, LoadedModel
from localspec.wording import count_noun, describe_placement, printable, size

STOP_S = 10.0
Yes = Annotated[bool, Parameter(help="Do not ask.")]
LOOK_S = 0.2
"""seconds between looks at the log"""
CHANGED = {
    "changed": "config.toml has changed since the daemon started; the next command replaces an idle daemon.",
    "broken": "config.toml is not valid (see `localspec doctor`); the daemon keeps its earlier settings.",
}
app = App(name="daemon", help_epilogue=examples("localspec daemon status", "localspec daemon logs --follow"))


@app.command
def run(*, http: bool = False) -> int:
    """Run the daemon in the foreground, logging to stderr, until Ctrl-C.

    Parameters
    ----------
    http
        Also start the HTTP server, for clients of OpenAI's, llama.cpp's and Ollama's servers.
    """
    if http and (missing := lacking()):
        raise DaemonUnavailable(
            f"the HTTP server cannot start: {' and '.join(missing)} cannot be imported", INSTALL_HTTP
        )
    sys.stdout.flush()
    options = ["--http"] if http else []
    process.become(process.python("localspec.daemon", *options))


@app.command
def start(*, as_json: AsJson = False) -> int:
    """Start the daemon if none runs, and print its address, also that of the HTTP server if it is enabled.

    With --json: pid, version, protocol, socket.
    """
    status = asyncio.run(_start())
    _print_problems(status)
    if as_json:
        output.json(Discovery(status.pid, status.version, status.protocol, status.socket))
    else:
        output.write(f"The daemon runs (pid {status.pid}) at {status.socket}\n")
        if status.http is not None:
            output.write(f"The HTTP server is at {status.http}\n")
        output.note(f"Its log is {home.log_path()}.")
    return ExitCode.OK


def _print_problems(status: DaemonStatus) -> None:
    """Print why the HTTP server is not open, or chats are not stored."""
    if status.http_problem is not None:
        remedy = f". {status.http_remedy}" if status.http_remedy else ""
        output.note(f"localspec: HTTP server: {status.http_problem}{remedy}")
    if status.history_problem is not None:
        output.note(f"Chats: {status.history_problem}")


async def _start() -> DaemonStatus:
    async with await connect() as client:
        return await client.status()


@app.command
def token(*, new: bool = False) -> int:
    """Print the token of the HTTP server.

    HTTP clients send it as their API key: `Authorization: Bearer …`. It opens nothing else.

    Parameters
    ----------
    new
        Create a new token first; the old one is no longer valid.
    """
    output.write(f"{(create if new else read_or_create)(home.http_token_path())}\n")
    return ExitCode.OK


@app.command
def stop(*, yes: Yes = False) -> int:
    """Stop the daemon; running requests end with the text so far, after a question on a terminal."""
    if not (yes or may_stop()):
        return ExitCode.ERROR
    output.note("The daemon has stopped." if stop_daemon() else "No daemon is running.")
    return ExitCode.OK


@app.command
def restart(*, yes: Yes = False, as_json: AsJson = False) -> int:
    """Stop the daemon, as `daemon stop` does, and start one with the current config.toml and this shell's
    environment; if a service is installed, with the service's environment."""
    load_config()  # raises if it is not valid: no new daemon could start
    if not (yes or may_stop()):
        return ExitCode.ERROR
    stop_daemon()
    return start(as_json=as_json)


def may_stop() -> bool:
    """Say how many requests run, which a stop would cut; on a terminal, ask whether to stop."""
    try:
        running = answer.remote(lambda client: client.status(), start=False).running
    except (DaemonUnavailable, VersionSkew, QueueFull):
        return True
    cut = f"localspec: this cuts {count_noun(running, 'running answer')} short"
    if running and output.can_ask():
        return output.ask_yes_or_no(f"{cut}. Stop the daemon?")
    if running:
        output.note(f"{cut}.")
    return True


def stop_daemon() -> bool:
    """Stop the daemon, and wait until its process has ended; return True if one ran."""
    import psutil

    found, is_asked = discovery.find(), True
    try:
        answer.remote(lambda client: client.shutdown(), start=False)
    except DaemonUnavailable:
        return False
    except (VersionSkew, QueueFull):
        is_asked = False  # it speaks another protocol, or has no free connection: a signal works always
    with contextlib.suppress(psutil.Error):
        if found is not None:
            process = psutil.Process(found.pid)
            if not is_asked:
                process.terminate()
            process.wait(STOP_S)
    return True


@app.command
def status(*, as_json: AsJson = False) -> int:
    """Show the daemon's models and requests; exits with 69 if none runs."""
    found = answer.remote(lambda client: client.status(), start=False)
    if as_json:
        output.json(found)
    else:
        output.write(describe(found))
        if warning := CHANGED.get(found.settings):
            output.note(warning)
        _print_problems(found)
    return ExitCode.OK


def describe(found: DaemonStatus) -> str:
    failed = "closed" if found.http_problem is None else "failed"
    lines = [
        f"localspec {found.version}, pid {found.pid}, up {found.uptime_s:.0f} s{_size(found.resident_bytes)}",
        f"listening: Unix socket {found.socket}",
        f"HTTP server: {found.http or failed}",
        f"connections: {found.connections}",
        f"requests running: {found.running}",
    ]
    lines += [
        f"model: {m.model} on {m.backend}, draft {', '.join(each.model for each in m.drafts) or 'none'},"
        f" worker pid {m.pid}{_size(m.resident_bytes)} ({size(m.planned_bytes)} planned for the model alone),"
        f"{_elsewhere(m)} {_activity(m)}"
        for m in found.models
    ] or ["model: none loaded"]
    return "\n".join(lines) + "\n"


def _elsewhere(model: LoadedModel) -> str:
    parts = [describe_placement(model.placement)] if model.placement else []
    parts += [f"{size(model.offloaded_bytes)} of weights there"] if model.offloaded_bytes else []
    parts += [f"{count_noun(model.sequences, 'sequence')} of {model.n_ctx} tokens"]
    return "".join(f" {part}," for part in parts)


def _activity(model: LoadedModel) -> str:
    if model.running:
        return f"{model.running} running"
    return "idle" if model.idle_left_s is None else f"idle; will be unloaded in {model.idle_left_s:.0f} s"


def _size(resident: int | None) -> str:
    return f", {size(resident)} of memory" if resident else ""


@app.command(help_epilogue=examples("localspec daemon logs -n 100", "localspec daemon logs --follow"))
def logs(
    *,
    lines: Annotated[NonNegativeInt, Parameter(name=["--lines", "-n"])] = 50,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"])] = False,
) -> int:
    """Print the end of the log, whether a client or the service started the daemon.

    Parameters
    ----------
    lines
        Number of lines; otherwise 50.
    follow
        Continue with new lines until Ctrl-C.
    """
    log = home.log_path()
    read = _follow(log)
    older = [path.read_bytes() for path in reversed(home.older_logs()) if path.exists()]
    text = b"".join(older) + next(read)
    if not text:
        output.note(f"There is no log yet: {log} is written when a client or the service starts the daemon.")
    last = text.decode(errors="replace").split("\n")[:-1][-lines:] if lines else []
    output.write(printable("".join(f"{line}\n" for line in last)))
    while follow:
        output.write(printable(next(read).decode(errors="replace")))
        time.sleep(LOOK_S)
    return ExitCode.OK


def _follow(log: Path) -> Iterator[bytes]:
    """The complete lines of a log, then at each step those that came; a shortened log is read anew."""
    position = 0
    while True:
        text = b""
        with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
            if position > log.stat().st_size:
                position = 0
            file.seek(position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        position += len(whole)
        yield whole
