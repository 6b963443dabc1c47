"""localspec: local models, speculating, exact.

In process::

    import localspec

    engine = localspec.load("bundled")
    for chunk in engine.generate("def fib(n):", max_tokens=128, temperature=0.0):
        print(chunk.text, end="")

Through the daemon::

    async with await localspec.connect() as client:
        async for delta in client.generate("What does textwrap.dedent do?"):
            print(delta.text, end="")

Names are loaded when they are used: importing this package costs nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from localspec._version import __version__

if TYPE_CHECKING:
    from localspec.backends.toy import ToyBackend
    from localspec.client.client import Client, connect
    from localspec.engine.engine import Engine
    from localspec.engine.load import load
    from localspec.engine.stream import Stream
    from localspec.errors import LocalspecError
    from localspec.protocol.events import Chunk
    from localspec.protocol.options import Options
    from localspec.protocol.requests import Message
    from localspec.protocol.results import Result, Stats, Token
    from localspec.speculation.draft import Ask, Draft
    from localspec.speculation.proposer import Proposer

# At a failed assertion llama.cpp would start a debugger of the PATH on this process, which reads the current
# directory's .gdbinit and hangs where tracing is not allowed.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

_HOMES = {
    "Ask": "speculation.draft",
    "Chunk": "protocol.events",
    "Client": "client.client",
    "Draft": "speculation.draft",
    "Engine": "engine.engine",
    "LocalspecError": "errors",
    "Message": "protocol.requests",
    "Options": "protocol.options",
    "Proposer": "speculation.proposer",
    "Result": "protocol.results",
    "Stats": "protocol.results",
    "Stream": "engine.stream",
    "Token": "protocol.results",
    "ToyBackend": "backends.toy",
    "connect": "client.client",
    "load": "engine.load",
}

__all__ = [
    "Ask",
    "Chunk",
    "Client",
    "Draft",
    "Engine",
    "LocalspecError",
    "Message",
    "Options",
    "Proposer",
    "Result",
    "Stats",
    "Stream",
    "Token",
    "ToyBackend",
    "__version__",
    "connect",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'localspec' has no attribute {name!r}")
    return getattr(import_module(f"localspec.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
