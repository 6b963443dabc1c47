"""Tokens that a repeated prompt and a growing chat take over from the cache, and the time which that saves.

    python -m assets.bench.reuse [--sizes 140 620 4000 10000]

A daemon in a home of its own, with the bundled model and a context of 16,384 tokens, is sent a prompt of each
size twice, at temperature 0. The first table has the tokens that were taken over the second time, and the
time to the first token both times, as the client sees it. The second one has the prompts of three greedy chat
turns. A short prompt before all of them is not counted. Nothing is taken over from one prompt to the next
one: each begins at another token of the same text.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from assets.bench.keystrokes import measure
from localspec.client import Client, connect
from localspec.protocol.options import Options
from localspec.protocol.results import Result

CONTEXT = 16_384
SIZES = (140, 620, 4000, 10_000)
SHIFT = 11
"""tokens of the text between the beginnings of two prompts"""
GREEDY = Options(temperature=0.0, max_tokens=8)
TURN = Options(temperature=0.0, max_tokens=40)
TURNS = ("What does textwrap.dedent do?", "And textwrap.fill?", "What does os.walk do?")
PART = 60_000
"""characters that are tokenized at once"""


class Answer(msgspec.Struct, frozen=True):
    """Tokens of a prompt, the number of them taken over from the cache, milliseconds until the first token,
    and the answer."""

    prompt: int
    taken_over: int
    first_ms: float
    text: str

    @property
    def read(self) -> int:
        return self.prompt - self.taken_over


class Repeated(msgspec.Struct, frozen=True):
    """One prompt's first and second answer."""

    cold: Answer
    warm: Answer


class Reuse(msgspec.Struct, frozen=True):
    """The prompts that were sent twice, and the turns of the chat."""

    prompts: list[Repeated]
    turns: list[Answer]


async def answer_of(client: Client, session: str, prompt: str | tuple[int, ...]) -> Answer:
    """Send a message to ``session``, or request a continuation of tokens outside of it."""
    began = time.perf_counter()
    if isinstance(prompt, str):
        stream = client.chat(session, prompt, options=TURN)
    else:
        stream = client.generate(tokens=prompt, options=GREEDY)
    first = None
    async for _ in stream:
        first = first or time.perf_counter()
    result: Result = await stream.result()
    seconds = (first or time.perf_counter()) - began
    return Answer(result.prompt_tokens, result.cached_tokens, 1000 * seconds, result.text)


async def text_tokens(client: Client, least: int) -> list[int]:
    """At least ``least`` tokens of the standard library's argparse."""
    text, tokens = inspect.getsource(argparse), list[int]()
    for at in range(0, len(text), PART):
        tokens += [token.id for token in await client.tokenize(text[at : at + PART])]
    if len(tokens) < least:
        raise SystemExit(
            f"the prompts need {least} tokens, but the text has {len(tokens)}; give smaller sizes"
        )
    return tokens


async def ask(sizes: Sequence[int]) -> Reuse:
    """Send the prompts to a daemon that is started here, and stop it."""
    client = await connect(name="bench")
    async with client:
        try:
            text = await text_tokens(client, max(sizes) + SHIFT * len(sizes))
            session = (await client.open_session(private=True)).session
            await answer_of(client, session, tuple(text[-SHIFT:]))  # a model's first answer takes longer
            prompts = []
            for n, size in enumerate(sizes):
                prompt = tuple(text[SHIFT * n : SHIFT * n + size])
                cold = await answer_of(client, session, prompt)
                prompts.append(Repeated(cold, await answer_of(client, session, prompt)))
            return Reuse(prompts, [await answer_of(client, session, turn) for turn in TURNS])
        finally:
            await client.shutdown()


def measured(sizes: Sequence[int]) -> Reuse:
    """Measure, in a temporary home. The model's rounding is measured first, as a daemon does while idle."""
    with tempfile.TemporaryDirectory(prefix="ls") as home:
        os.environ["LOCALSPEC_HOME"] = home
        config = Path(home, "config", "config.toml")
        config.parent.mkdir()
        config.write_text(f"[engine]\nn_ctx = {CONTEXT}\n", encoding="utf-8")
        measure("bundled", n_ctx=CONTEXT)
        return asyncio.run(ask(sizes))


def table(found: Reuse) -> str:
    """The measurements as a table."""
    lines = ["prompt  taken over the second time  first token cold      warm  same text"]
    for each in found.prompts:
        is_same = "yes" if each.cold.text == each.warm.text else "no"
        lines.append(
            f"{each.cold.prompt:6,}  {each.warm.taken_over:26,}  {each.cold.first_ms:13,.0f} ms"
            f"  {each.warm.first_ms:5,.0f} ms  {is_same:>9}"
        )
    lines += ["", "chat turn  prompt  taken over  read  first token"]
    for n, turn in enumerate(found.turns, 1):
        lines.append(
            f"{n:9}  {turn.prompt:6,}  {turn.taken_over:10,}  {turn.read:4,}  {turn.first_ms:8,.0f} ms"
        )
    return "\n".join(lines)


def size_of(text: str) -> int:
    """A prompt's size from the command line, with room for the answer. Raises ArgumentTypeError."""
    most = CONTEXT - (GREEDY.max_tokens or 0)
    if not (text.isdecimal() and 1 <= int(text) <= most):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size of a prompt; give a number from 1 to {most}"
        )
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", type=size_of, nargs="+", default=SIZES, help="tokens of the prompts")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    given = parser.parse_args()
    found = measured(given.sizes)
    print(msgspec.json.encode(found).decode() if given.json else table(found))


if __name__ == "__main__":
    main()
