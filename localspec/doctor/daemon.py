"""The daemon as a client of this machine finds it, its HTTP server, and settings for HTTP clients."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from localspec._version import __version__
from localspec.client import connect, discovery
from localspec.config import WITHOUT_TOKEN, HttpConfig
from localspec.doctor import Finding, problem_of
from localspec.errors import INSTALL_HTTP, DaemonUnavailable, LocalspecError, VersionSkew
from localspec.http.server import lacking
from localspec.protocol.messages import DaemonStatus, Discovery

ANSWER_S = 5.0
AGAIN = "Run `localspec daemon restart`; `localspec daemon logs` has more."
OPEN = "`localspec config set http.enabled true`, then `localspec daemon restart`"


class Asked(NamedTuple):
    """The discovery file of a daemon, and its status or the error that came instead, if any."""

    found: Discovery | None = None
    status: DaemonStatus | None = None
    error: LocalspecError | None = None


def ask() -> Asked:
    """The daemon that listens, if any; an error also if its directory cannot be used."""
    found: Discovery | None = None

    async def ask_status() -> DaemonStatus:
        async with asyncio.timeout(ANSWER_S), await connect(start=False) as client:
            return await client.status()

    try:
        found = discovery.find()
        return Asked(found, None if found is None else asyncio.run(ask_status()))
    except (DaemonUnavailable, TimeoutError):
        return Asked(found if discovery.runs() else None)
    except LocalspecError as error:
        return Asked(found, error=error)


def daemon(asked: Asked) -> Iterator[Finding]:
    """Check that the daemon answers, and has the version and settings of one that a command would start."""
    found, status, error = asked
    if error is not None:
        yield problem_of("daemon", error, level="warning" if isinstance(error, VersionSkew) else "problem")
    elif found is None:
        yield Finding("daemon", "ok", "No daemon runs; the first command that needs one starts it.")
    elif status is None:
        step = f"End it: kill -9 {found.pid}"
        yield Finding("daemon", "problem", f"The daemon (pid {found.pid}) does not answer.", step)
    elif status.version != __version__:
        sentence = f"The daemon (pid {status.pid}) is localspec {status.version}, this is {__version__}."
        yield Finding("daemon", "warning", sentence, "Run `localspec daemon restart`.")
    elif status.settings == "changed":
        sentence = f"The daemon (pid {status.pid}) runs with other settings than config.toml has now."
        step = "Run `localspec daemon restart`; otherwise the next command replaces the daemon if it is idle."
        yield Finding("daemon", "warning", sentence, step)
    else:
        yield Finding("daemon", "ok", f"The daemon runs (pid {status.pid}, localspec {status.version}).")


def http(config: HttpConfig, status: DaemonStatus | None) -> Iterator[Finding]:
    """Check that the HTTP server is open if it is enabled; warn of access without a token."""
    url, problem = (None, None) if status is None else (status.http, status.http_problem)
    if problem is not None:
        remedy = (status and status.http_remedy) or AGAIN
        yield Finding("http", "problem", f"The HTTP server is enabled, but not open: {problem}.", remedy)
    elif url is not None:
        yield Finding("http", "ok", f"The HTTP server is open at {url}.")
    elif not config.enabled:
        yield Finding("http", "ok", f"The HTTP server is closed, as configured. To open it: {OPEN}.")
    else:  # a daemon with other settings has a warning of its own
        yield Finding("http", "ok", "The HTTP server is enabled; `localspec daemon restart` opens it.")
    if config.without_token and (config.enabled or url is not None):
        sentence = f"{WITHOUT_TOKEN}: {', '.join(config.without_token)}."
        yield Finding("http", "warning", sentence, "Run `localspec config set http.without_token '[]'`.")


def clients(config: HttpConfig, status: DaemonStatus | None) -> str:
    """The lines to paste into other programs' settings."""
    url = None if status is None else status.http
    lines = [f"{each.sentence} {each.remedy or ''}".rstrip() for each in http(config, status)]
    if missing := lacking():
        lines += [f"It needs {' and '.join(missing)}. {INSTALL_HTTP}"]
    if config.port == 0:
        lines += ["Its port changes at every start; `localspec config set http.port 8012` makes it fixed."]
    url = url or f"http://127.0.0.1:{config.port or 'PORT'}"
    text = Path(__file__).with_name("clients.txt").read_text(encoding="utf-8")
    text = re.sub(r"\bURL\b", url, text).replace("HOST_PORT", url.removeprefix("http://"))
    return "\n".join([*lines, "TOKEN stands for what `localspec daemon token` prints.", "", text])
