"""The daemon's own answers, to compare with those that an editor shows."""

from __future__ import annotations

import asyncio
from typing import Unpack

from localspec.client import connect
from localspec.client.client import Where

SINGLE = "class Foo:\n    def __init__(self, name):\n        self."
"""the bundled model goes on by itself, on one line"""
MULTI = "def fib(n):\n    if n < 2:\n        return n\n    return "
"""… on several"""
NONE = "if __name__ == "
"""… not at all"""


def completions(prefix: str, suffix: str = "\n", **where: Unpack[Where]) -> list[str]:
    """The texts that the daemon of ``LOCALSPEC_HOME`` has for a place in a Python file."""

    async def ask() -> list[str]:
        told: Where = {"language": "python", "path": "/asked.py", "max_ms": 60_000, **where}
        async with await connect() as client:
            answer = await client.complete(prefix, suffix, **told).result()
            return [item.text for item in answer.items]

    return asyncio.run(ask())


def completion(prefix: str, suffix: str = "\n", **where: Unpack[Where]) -> str:
    """The one text; there must be one."""
    (text,) = completions(prefix, suffix, **where)
    return text
