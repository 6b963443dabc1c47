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
    from localspec.client.client import Client as Client
    from localspec.client.client import connect as connect
    from localspec.engine.engine import Engine as Engine
    from localspec.engine.engine import Stream as Stream
    from localspec.engine.load import load as load
    from localspec.errors import LocalspecError as LocalspecError
    from localspec.protocol.options import Options as Options
    from localspec.protocol.requests import Chunk as Chunk
    from localspec.protocol.requests import Message as Message
    from localspec.protocol.requests import Result as Result
    from localspec.protocol.requests import Stats as Stats
    from localspec.protocol.requests import Token as Token
    from localspec.speculation.proposer import Ask as Ask
    from localspec.speculation.proposer import Draft as Draft
    from localspec.speculation.proposer import Proposer as Proposer

# At a failed assertion llama.cpp would start a debugger of the PATH on this process, which reads the current
# directory's .gdbinit and hangs where tracing is not allowed.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

_HOMES = {
    "Ask": "speculation.proposer",
    "Chunk": "protocol.requests",
    "Client": "client.client",
    "Draft": "speculation.proposer",
    "Engine": "engine.engine",
    "LocalspecError": "errors",
    "Message": "protocol.requests",
    "Options": "protocol.options",
    "Proposer": "speculation.proposer",
    "Result": "protocol.requests",
    "Stats": "protocol.requests",
    "Stream": "engine.engine",
    "Token": "protocol.requests",
    "connect": "client.client",
    "load": "engine.load",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'localspec' has no attribute {name!r}")
    return getattr(import_module(f"localspec.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
