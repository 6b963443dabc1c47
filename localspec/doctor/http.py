"""The HTTP door: whether it is open, to whom, and what other programs are told of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from localspec.config import WITHOUT_TOKEN, HttpConfig
from localspec.daemon.door import lacking
from localspec.doctor.finding import Finding
from localspec.errors import INSTALL_HTTP
from localspec.protocol.messages import DaemonStatus

TOLD = "`localspec doctor --clients` has the lines for other programs."


def door(config: HttpConfig, status: DaemonStatus | None) -> Iterator[Finding]:
    """Whether it is open, or could be."""
    url = None if status is None else status.http
    if url is not None:
        yield Finding("http", "ok", f"The HTTP door is open at {url}. {TOLD}")
    elif not config.enabled:
        yield Finding("http", "ok", f"The HTTP door is closed, as it is meant to be. {TOLD}")
    elif missing := lacking():
        told = f"The HTTP door is to be open, and {' and '.join(missing)} cannot be imported."
        yield Finding("http", "problem", told, INSTALL_HTTP)
    elif status is None:
        yield Finding("http", "ok", f"The HTTP door opens with the daemon, at port {config.port}. {TOLD}")
    else:
        why = f" ({status.http_problem})" if status.http_problem is not None else ""
        told = f"The HTTP door is to be open, and is closed{why}."
        yield Finding("http", "problem" if why else "warning", told, "See `localspec daemon logs`.")
    if config.without_token and (config.enabled or url is not None):
        names = ", ".join(config.without_token)
        told = f"{WITHOUT_TOKEN}: {names}."
        yield Finding("http", "warning", told, "Run `localspec config set http.without_token '[]'`.")


def clients(url: str) -> str:
    """What to paste into other programs' settings, for a door at this address."""
    text = Path(__file__).with_name("clients.txt").read_text(encoding="utf-8")
    return text.replace("URL", url)
