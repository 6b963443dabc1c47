"""The HTTP server: its state, its access without a token, and settings for its clients."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from localspec.config import WITHOUT_TOKEN, Config, HttpConfig
from localspec.daemon.access.loopback import HOST
from localspec.daemon.http_server import AGAIN, lacking
from localspec.doctor.finding import Finding
from localspec.errors import AGENT_CONTEXT, INSTALL_HTTP
from localspec.models.fit import context_size
from localspec.protocol.messages import DaemonStatus

CLIENTS = "`localspec doctor --clients` prints settings for other programs."
CLOSED = (
    "The HTTP server is closed: `localspec config set http.enabled true`, then `localspec daemon restart`."
)
AGAIN_BY_FLAG = "End the daemon, and run `localspec daemon run --http` again."

ENOUGH = 32_768
"""tokens of context for most agents"""


def server_findings(config: HttpConfig, status: DaemonStatus | None) -> Iterator[Finding]:
    """Check that the server is open if it is enabled, and could be opened; warn of access without a token."""
    url, problem = (None, None) if status is None else (status.http, status.http_problem)
    if url is not None:
        yield Finding("http", "ok", f"The HTTP server is open at {url}. {CLIENTS}")
    elif not config.enabled and problem is None:
        yield Finding("http", "ok", f"The HTTP server is closed, as configured. {CLIENTS}{_first()}")
    elif missing := lacking():
        sentence = f"The HTTP server is enabled, but {' and '.join(missing)} cannot be imported."
        yield Finding("http", "problem", sentence, INSTALL_HTTP)
    elif status is None:
        yield Finding(
            "http", "ok", f"The HTTP server opens with the daemon, at port {config.port}. {CLIENTS}"
        )
    elif problem is None:
        yield Finding("http", "warning", "The HTTP server is enabled, but closed.", AGAIN)
    else:
        remedy = (status.http_remedy or AGAIN) if config.enabled else AGAIN_BY_FLAG
        yield Finding("http", "problem", f"The HTTP server is enabled, but not open: {problem}.", remedy)
    if config.without_token and (config.enabled or url is not None):
        names = ", ".join(config.without_token)
        sentence = f"{WITHOUT_TOKEN}: {names}."
        yield Finding("http", "warning", sentence, "Run `localspec config set http.without_token '[]'`.")


def context(config: Config, status: DaemonStatus | None, trained: int | None) -> Iterator[Finding]:
    """Warn of a context that is too short for agents, which send long prompts, if the HTTP server is used.

    ``trained``: tokens that the default model was trained for, if known.
    """
    is_open = config.http.enabled or (status is not None and status.http is not None)
    loaded = () if status is None else status.models
    n_ctx = max((model.n_ctx for model in loaded), default=0) or context_size(trained, config.engine)
    if is_open and n_ctx < AGENT_CONTEXT:
        need = f"agents that use the HTTP server need {AGENT_CONTEXT:,} or more."
        sentence = f"The context has {n_ctx:,} tokens; {need}"
        enlarge = "Run `localspec config set n_ctx 32768`, if the model was trained for it."
        if trained is not None:
            enlarge = f"Run `localspec config set n_ctx {min(ENOUGH, trained)}`."
        if trained is not None and trained < AGENT_CONTEXT:
            most = f"This model has at most {trained:,} tokens of context"
            enlarge = f"{most}: choose another one of `localspec models list`."
        yield Finding("http", "warning", sentence, enlarge)


def _first() -> str:
    """The steps that open the server."""
    install = [f"{_install()} (in a checkout)"] if lacking() else []
    steps = (*install, "`localspec config set http.enabled true`", "`localspec daemon restart`")
    return f" To open it: {', '.join(steps)}."


def _install(prefix: str = sys.prefix) -> str:
    """The command that adds what the server needs, by the program that installed localspec."""
    parts = Path(prefix).parts
    for program, folder in (("pipx install", ("pipx", "venvs")), ("uv tool install", ("uv", "tools"))):
        if any(pair == folder for pair in pairwise(parts)):
            return f"`{program} --force '.[http]'`"
    return "`make install`"


def clients(config: HttpConfig, status: DaemonStatus | None) -> str:
    """The lines to paste into other programs' settings."""
    url = None if status is None else status.http
    text = Path(__file__).with_name("clients.txt").read_text(encoding="utf-8")
    url = url or f"http://{HOST}:{config.port or 'PORT'}"
    text = re.sub(r"\bURL\b", url, text).replace("HOST_PORT", url.removeprefix("http://"))
    return _opening(config, status) + text


def _opening(config: HttpConfig, status: DaemonStatus | None) -> str:
    found = [each for each in server_findings(config, status) if each.level == "problem"]
    if status is not None and status.http is not None:
        lines = [f"The HTTP server is open at {status.http}."]
    elif found:
        lines = [f"{each.sentence} {each.remedy}" for each in found]
    elif config.enabled:
        lines = ["The HTTP server opens with the daemon: `localspec daemon start`."]
    else:
        lines = [CLOSED, *([f"It needs localspec[http]. {INSTALL_HTTP}"] if lacking() else [])]
    if config.port == 0:
        lines += ["Its port changes at every start; `localspec config set http.port 8012` makes it fixed."]
    return "\n".join([*lines, "TOKEN stands for what `localspec daemon token` prints.", "", ""])
