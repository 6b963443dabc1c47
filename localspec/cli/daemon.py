"""``localspec daemon …``: running, starting, stopping and watching the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from localspec import home, process
from localspec.cli import answer, output
from localspec.config import load_config
from localspec.errors import INSTALL_HTTP, DaemonUnavailable, ExitCode, QueueFull, VersionSkew
from localspec.protocol.messages import DaemonStatus, Discovery, LoadedModel
from localspec.units import size

if TYPE_CHECKING:
    from localspec.client import Client

AsJson = Annotated[bool, Parameter(name="--json")]
STOP_S = 10.0
DOOR_S = 10.0
"""how long its HTTP door is waited for"""
DOOR_STEP_S = 0.05
CHANGED = {
    "changed": "config.toml has changed since it started; the next command that asks it replaces it if idle.",
    "broken": "config.toml is broken, as `localspec doctor` tells; it goes on with what it has read.",
}


def run(*, http: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Run the daemon in the foreground, logging to stderr, until Ctrl-C.

    Parameters
    ----------
    http
        Open the HTTP door, too, for clients of OpenAI's, llama.cpp's and Ollama's servers.
    """
    if http and (missing := _lacking()):
        raise DaemonUnavailable(f"the HTTP door lacks {' and '.join(missing)}", INSTALL_HTTP)
    sys.stdout.flush()
    door = ["--http"] if http else []
    process.become(process.python("localspec.daemon", *door))


def _lacking() -> list[str]:
    from localspec.daemon.http_server import lacking

    return lacking()


def start(*, as_json: AsJson = False) -> int:
    """Start the daemon if it does not run, and say where it listens, by HTTP as well where that is set.

    Parameters
    ----------
    as_json
        Print the discovery object: pid, version, protocol, socket, url, token_file.
    """
    found, status = asyncio.run(_started())
    if as_json:
        output.json(found)
    else:
        output.write(f"The daemon runs (pid {found.pid}) at {found.socket or found.url}\n")
        if status.http is not None:
            output.write(f"The HTTP door is at {status.http}\n")
        elif status.http_problem is not None:
            output.note(f"HTTP: {status.http_problem}")
        if status.history_problem is not None:
            output.note(f"Chats: {status.history_problem}")
        output.note(f"Its log is {home.log_path()}.")
    return ExitCode.OK


async def _started() -> tuple[Discovery, DaemonStatus]:
    from localspec.client import connect, discovery

    async with await connect() as client:
        status = await _with_door(client)
        found = discovery.find()
    if found is None:
        raise DaemonUnavailable("the daemon ended while it was asked")
    return found, status


async def _with_door(client: Client) -> DaemonStatus:
    """How the daemon is once its HTTP door is open, or it is known why not; at once where none is set."""
    status = await client.status()
    if load_config().http.enabled and status.settings == "current":
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DOOR_S):
                while status.http is None and status.http_problem is None:
                    await asyncio.sleep(DOOR_STEP_S)
                    status = await client.status()
    return status


def token(*, new: bool = False, wire: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Print the token of the HTTP door.

    Parameters
    ----------
    new
        Make another one first; the old one opens nothing any more.
    wire
        The token of the daemon's own wire over TCP instead.
    """
    from localspec.daemon.access.token import create, read_or_create

    path = home.token_path() if wire else home.http_token_path()
    output.write(f"{(create if new else read_or_create)(path)}\n")
    return ExitCode.OK


def stop() -> int:
    """Stop the daemon; running requests end with the text so far."""
    output.note("The daemon has stopped." if _stopped() else "No daemon is running.")
    return ExitCode.OK


def restart(*, as_json: AsJson = False) -> int:
    """Stop the daemon, as `daemon stop` does, and start one with config.toml and this shell's environment as
    they are now; where a service is installed, with the environment of that.

    Parameters
    ----------
    as_json
        Print the discovery object, as `daemon start` does.
    """
    load_config()  # while it is broken, the daemon that runs is the only one to be had
    _stopped()
    return start(as_json=as_json)


def _stopped() -> bool:
    """Stop the daemon; whether there was one."""
    try:
        answer.remote(lambda client: client.shutdown(), start=False)
    except DaemonUnavailable:
        return False
    except (VersionSkew, QueueFull):
        # It speaks another protocol, or has no place for this client, but every one understands this.
        _terminate()
    return True


def _terminate() -> None:
    """End the daemon that the discovery file names, and wait until it is gone."""
    from localspec.client import discovery

    found = discovery.find()
    if found is None:
        return
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        theirs = psutil.Process(found.pid)
        theirs.terminate()
        theirs.wait(STOP_S)


def status(*, as_json: AsJson = False) -> int:
    """What the daemon is doing; exits with 69 if none runs.

    Parameters
    ----------
    as_json
        Print one JSON object.
    """
    found = answer.remote(lambda client: client.status(), start=False)
    if as_json:
        output.json(found)
    else:
        output.write(describe(found))
        if told := CHANGED.get(found.settings):
            output.note(told)
        if found.http_problem is not None:
            output.note(f"HTTP: {found.http_problem}")
        if found.history_problem is not None:
            output.note(f"Chats: {found.history_problem}")
    return ExitCode.OK


def describe(found: DaemonStatus) -> str:
    """A daemon's status for a person."""
    lines = [
        f"localspec {found.version}, pid {found.pid}, up {found.uptime_s:.0f} s{_size(found.resident_bytes)}",
        f"listening: {found.socket or '-'} and {found.url or '-'}",
        f"HTTP door: {found.http or 'closed'}",
        f"connections: {found.connections}",
        f"requests running: {found.running}",
    ]
    lines += [
        f"model: {m.model} on {m.backend}, draft {m.draft or 'none'},"
        f" worker pid {m.pid}{_size(m.resident_bytes)}, {_activity(m)}"
        for m in found.models
    ] or ["model: none loaded"]
    return "\n".join(lines) + "\n"


def _activity(model: LoadedModel) -> str:
    if model.running:
        return f"{model.running} running"
    return "idle" if model.idle_left_s is None else f"idle, unloaded in {model.idle_left_s:.0f} s"


def _size(resident: int | None) -> str:
    return f", {size(resident)}" if resident else ""
