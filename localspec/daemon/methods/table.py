"""The table of the wire's methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from localspec.daemon.daemon import Daemon
from localspec.daemon.methods import chat, completions, generation, memory, models, sessions, status
from localspec.daemon.relay.exchange import Exchange

Handler = Callable[[Daemon, Exchange, Any], Awaitable[object]]

HANDLERS: dict[str, Handler] = {
    "models/list": models.list_all,
    "models/load": models.load,
    "models/unload": models.unload,
    "session/open": sessions.open_new,
    "session/list": sessions.list_some,
    "session/get": sessions.get,
    "session/close": sessions.close,
    "session/delete": sessions.delete,
    "session/rename": sessions.rename,
    "session/configure": sessions.configure,
    "session/fork": sessions.fork,
    "chat/send": chat.send,
    "chat/edit": chat.edit,
    "chat/regenerate": chat.regenerate,
    "stream/resume": generation.resume,
    "generate": generation.generate_text,
    "tokenize": models.tokenize,
    "completion/inline": completions.inline,
    "completion/feedback": completions.feedback,
    "completion/warm": completions.warm,
    "memory/stats": memory.stats,
    "memory/forget": memory.forget,
    "memory/prime": memory.prime,
    "events/subscribe": status.events_subscribe,
    "metrics": status.metrics,
    "daemon/status": status.daemon_status,
    "daemon/shutdown": status.daemon_shutdown,
}
"""a handler for each method; the connection itself answers ``initialize`` and ``$/cancelRequest``"""

NEED_A_MODEL = frozenset(
    {
        *("models/load", "session/open", "session/configure", "chat/send", "chat/edit", "chat/regenerate"),
        *("generate", "tokenize", "completion/inline", "completion/warm"),
    }
)
"""methods that count towards the limit of all connections together, and wait for a load"""

WORK = NEED_A_MODEL | {"memory/forget", "memory/prime", "session/delete"}
"""methods that keep the daemon busy: a shutdown would interrupt them"""
