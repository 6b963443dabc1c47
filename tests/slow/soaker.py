"""One of the soak's client processes: ``python -m tests.slow.soaker REQUESTS SEED``.

It prints a line ``N`` after every twenty requests, then what it counted as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from localspec.client import Client, connect
from localspec.client.client import Where
from localspec.client.stream import Stream
from localspec.errors import EngineCrashed, InvalidOptions, LocalspecError, SessionNotFound
from localspec.protocol.options import Options
from localspec.protocol.results import Result
from tests.waiting import DEADLINE_S

CONNECTIONS, TURNS, STEP = 3, 5, 20
FIXED = "def f(x):"
EXACT = Options(temperature=0.0, max_tokens=12, proposer="auto")
TEXTS = ("def add(a, b):\n", "import json\n\ndef load(", "class Queue:\n    ", "for i in range(10):\n")


class Soaker:
    """Requests one after the other on a connection, any of which may be left or cancelled."""

    def __init__(self, rng: random.Random, counts: Counter[str]) -> None:
        self.rng, self.counts = rng, counts
        self.session, self.turns = "", TURNS
        self.text: str | None = None
        kinds: dict[str, tuple[int, Callable[[Client], Awaitable[object]]]] = {
            "generate": (25, self.generate),
            "generate, fixed": (10, self.fixed),
            "generate, cancelled": (12, self.cancelled),
            "generate, left": (2, self.left),
            "chat/send": (15, self.chat),
            "completion/inline": (12, self.complete),
            "completion/inline, max_ms": (8, self.hurried),
            "session/list": (2, lambda client: client.sessions()),
            "session/get": (3, self.read),
            "daemon/status": (5, lambda client: client.status()),
            "metrics": (3, lambda client: client.metrics()),
            "a mistake": (3, self.mistake),
        }
        self.kinds, self.weights = kinds, [weight for weight, _ in kinds.values()]

    async def run(self, requests: int) -> None:
        done = 0
        while done < requests:
            async with await connect(start=False, name="soak") as client:
                while done < requests:
                    done += 1
                    (name,) = self.rng.choices(list(self.kinds), self.weights)
                    if not await self.one(client, name):
                        break

    async def one(self, client: Client, name: str) -> bool:
        """One request; False if it hung up."""
        self.counts[f"method {name}"] += 1
        try:
            async with asyncio.timeout(4 * DEADLINE_S):
                await self.kinds[name][1](client)
        except LocalspecError as error:
            self.counts[f"error {error.code}"] += 1
            if not isinstance(error, EngineCrashed):
                raise
        self.counts["done"] += 1
        if self.counts["done"] % STEP == 0:
            print(self.counts["done"], flush=True)
        return name != "generate, left"

    def ended(self, result: Result) -> None:
        self.counts[f"ending {result.finish_reason}"] += 1

    # The kinds of requests.

    def options(self, max_tokens: int = 6) -> Options:
        warm = self.rng.choice((0.0, 0.8))
        return Options(
            temperature=warm, max_tokens=max_tokens, seed=self.rng.randrange(1000), proposer="auto"
        )

    def long(self, client: Client) -> Stream[Result]:
        return client.generate(self.rng.choice(TEXTS), raw=True, options=self.options(300))

    async def generate(self, client: Client) -> None:
        text = self.rng.choice(TEXTS) * self.rng.choice((1, 1, 1, 20))
        self.ended(await client.generate(text, raw=True, options=self.options()).result())

    async def fixed(self, client: Client) -> None:
        """The same greedy text as ever."""
        result = await client.generate(FIXED, raw=True, options=EXACT).result()
        assert self.text in (None, result.text) and result.text, (self.text, result.text)
        self.text = result.text
        self.counts[f"text {result.text}"] += 1

    async def cancelled(self, client: Client) -> None:
        stream = self.long(client)
        await self.some_of(stream)
        self.ended(await stream.cancel())

    async def left(self, client: Client) -> None:
        await self.some_of(self.long(client))

    async def some_of(self, stream: Stream[Result]) -> None:
        parts = aiter(stream)
        for _ in range(self.rng.randrange(4)):
            await anext(parts, None)

    async def chat(self, client: Client) -> None:
        if self.turns >= TURNS:
            self.session = (await client.open_session(private=self.rng.random() < 0.3)).session
            self.turns = 0
        self.turns += 1
        with suppress(SessionNotFound):  # a private one went with its connection
            self.ended(await client.chat(self.session, "What is a list?", options=self.options()).result())
            return
        self.turns = TURNS

    async def complete(self, client: Client, max_ms: int | None = None) -> None:
        prefix, suffix = self.rng.choice(TEXTS), self.rng.choice(("", "\n    return x\n"))
        where: Where = {} if max_ms is None else {"max_ms": max_ms}
        found = await client.complete(prefix, suffix, options=self.options(), **where).result()
        self.ended(found.result)

    async def hurried(self, client: Client) -> None:
        await self.complete(client, self.rng.choice((1, 5, 20, 200)))

    async def read(self, client: Client) -> None:
        if self.session:
            with suppress(SessionNotFound):
                await client.session(self.session)

    async def mistake(self, client: Client) -> None:
        try:
            if self.rng.random() < 0.5:
                await client.session("none such")
            else:
                await client.request("generate", {"prompt": "x", "options": {"k": 99}})
        except (SessionNotFound, InvalidOptions) as error:
            self.counts[f"error {error.code}"] += 1
        else:
            raise AssertionError("a mistake was taken")


async def soak(requests: int, seed: int) -> Counter[str]:
    """Spread ``requests`` over several connections."""
    rng, counts = random.Random(seed), Counter[str]()
    each = requests // CONNECTIONS
    await asyncio.gather(
        *(Soaker(random.Random(rng.random()), counts).run(each) for _ in range(CONNECTIONS - 1)),
        Soaker(random.Random(rng.random()), counts).run(requests - each * (CONNECTIONS - 1)),
    )
    return counts


if __name__ == "__main__":
    print(json.dumps(asyncio.run(soak(int(sys.argv[1]), int(sys.argv[2])))))
