"""The HTTP door: whether it is open, to whom, and what other programs are told of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from localspec.config import WITHOUT_TOKEN, Config, HttpConfig
from localspec.daemon.access.loopback import HOST
from localspec.daemon.http_server import lacking
from localspec.doctor.finding import Finding
from localspec.errors import AGENT_CONTEXT, INSTALL_HTTP
from localspec.models.fit import context_size
from localspec.protocol.messages import DaemonStatus

TOLD = "`localspec doctor --clients` has the lines for other programs."
CLOSED = "The HTTP door is closed: `localspec config set http.enabled true`, then `localspec daemon restart`."
AGAIN = "Run `localspec daemon restart`; `localspec daemon logs` has more."
AGAIN_BY_FLAG = "End the daemon, and run `localspec daemon run --http` again."


def door(config: HttpConfig, status: DaemonStatus | None) -> Iterator[Finding]:
    """Whether it is open, or could be."""
    url, problem = (None, None) if status is None else (status.http, status.http_problem)
    if url is not None:
        yield Finding("http", "ok", f"The HTTP door is open at {url}. {TOLD}")
    elif not config.enabled and problem is None:
        yield Finding("http", "ok", f"The HTTP door is closed, as it is meant to be. {TOLD}{_first()}")
    elif missing := lacking():
        told = f"The HTTP door is to be open, and {' and '.join(missing)} cannot be imported."
        yield Finding("http", "problem", told, INSTALL_HTTP)
    elif status is None:
        yield Finding("http", "ok", f"The HTTP door opens with the daemon, at port {config.port}. {TOLD}")
    elif problem is None:
        yield Finding("http", "warning", "The HTTP door is to be open, and is closed.", AGAIN)
    else:
        remedy = AGAIN if config.enabled else AGAIN_BY_FLAG
        yield Finding("http", "problem", f"The HTTP door is to be open: {problem}", remedy)
    if config.without_token and (config.enabled or url is not None):
        names = ", ".join(config.without_token)
        told = f"{WITHOUT_TOKEN}: {names}."
        yield Finding("http", "warning", told, "Run `localspec config set http.without_token '[]'`.")


def context(config: Config, status: DaemonStatus | None, trained: int | None) -> Iterator[Finding]:
    """Findings on the room for programs with tools, which send long prompts, where they may come in.

    ``trained``: tokens that the default model was trained for, if known.
    """
    is_open = config.http.enabled or (status is not None and status.http is not None)
    loaded = () if status is None else status.models
    n_ctx = max((model.n_ctx for model in loaded), default=0) or context_size(trained, config.engine)
    if is_open and n_ctx < AGENT_CONTEXT:
        need = f"agents, which come in by HTTP, need {AGENT_CONTEXT:,} and more."
        told = f"A context holds {n_ctx:,} tokens; {need}"
        enlarge = "Run `localspec config set n_ctx 32768`, if the model was trained for it."
        if trained is not None and trained < AGENT_CONTEXT:
            enlarge = f"Choose a model trained for more than {trained:,} tokens: `localspec models list`."
        yield Finding("http", "warning", told, enlarge)


def _first() -> str:
    """What comes before opening it."""
    return f" To open it: {INSTALL_HTTP}" if lacking() else ""


def clients(config: HttpConfig, status: DaemonStatus | None) -> str:
    """What to paste into other programs' settings."""
    url = None if status is None else status.http
    text = Path(__file__).with_name("clients.txt").read_text(encoding="utf-8")
    url = url or f"http://{HOST}:{config.port or 'PORT'}"
    text = re.sub(r"\bURL\b", url, text).replace("HOST_PORT", url.removeprefix("http://"))
    return _opening(config, status) + text


def _opening(config: HttpConfig, status: DaemonStatus | None) -> str:
    found = [each for each in door(config, status) if each.level == "problem"]
    if status is not None and status.http is not None:
        lines = [f"The HTTP door is open at {status.http}."]
    elif found:
        lines = [f"{each.sentence} {each.remedy}" for each in found]
    elif config.enabled:
        lines = ["The HTTP door opens with the daemon: `localspec daemon start`."]
    else:
        lines = [CLOSED, *([f"It wants localspec[http]. {INSTALL_HTTP}"] if lacking() else [])]
    if config.port == 0:
        lines += ["Its port is another one at every start: `localspec config set http.port 8012` keeps it."]
    return "\n".join([*lines, "TOKEN stands for what `localspec daemon token` prints.", "", ""])
