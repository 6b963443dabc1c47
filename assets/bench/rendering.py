"""The cost of showing an answer while it streams: the chat's screen against Textual's ``MarkdownStream``.

    python -m assets.bench.rendering [--chunks 8000]

Two answers are shown at 200 chunks of 4 characters a second, about as fast as a small model writes: 32,000
characters of prose, and a fence of 12,000. Each is shown in a terminal of its own, of 100x40, which takes all
that is written to it: by the chat's screen, and by Textual's own Markdown. The table has the processor time
of each, as a share of one core; the time that it took beyond the answer's; and the longest time without a
reaction to keys.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pexpect
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Markdown

import localspec
from localspec.protocol.options import Options
from localspec.protocol.results import Token
from localspec.tui import facts
from localspec.tui.chat import BATCH_S, Chat
from localspec.tui.conversation import Answer, Question
from localspec.tui.link import Link
from localspec.tui.screens.chat import ChatScreen

CHUNK, RATE = 4, 200
COLUMNS, LINES = 100, 40
LENGTHS = {"prose": 32_000, "fence": 12_000}
"""characters of each answer"""
LOOK_S = 0.005
"""seconds between checks that the event loop still runs"""
SENTENCES = [
    "A speculative decoder guesses several tokens, and lets the large model check them all at once.",
    "What is *accepted* costs a fraction; what is refused costs **one** forward that was due anyway.",
    "The function `verify` returns how many of them are right, see [the paper](https://a.example/paper).",
    "No answer changes: it is the one that the large model alone would have given.",
]


class Cost(msgspec.Struct, frozen=True):
    """The cost of showing one answer: a share of one core, seconds behind the answer, and without keys."""

    answer: str
    shown_by: str
    share: float
    late_s: float
    stall_s: float


def answer_of(kind: str, length: int) -> str:
    """A text that is the same each time."""
    if kind == "fence":
        source = Path(localspec.__file__).parent.joinpath("engine", "engine.py").read_text(encoding="utf-8")
        return f"```python\n{(source * (length // len(source) + 1))[:length]}\n```\n"
    chance, text = random.Random(1), ""
    while len(text) < length:
        text += " ".join(chance.choices(SENTENCES, k=chance.randint(1, 5)))
        text += chance.choice(["\n\n", "\n\n", "\n\n- first\n- second\n\n", "\n\n## A title\n\n"])
    return text[:length]


async def feed(chunks: list[str], show: Callable[[str], Awaitable[None]]) -> None:
    """Pass the chunks to ``show``, each at its time or, where the screen is late, at once."""
    started = time.perf_counter()
    for number, chunk in enumerate(chunks):
        if (early := started + number / RATE - time.perf_counter()) > 0:
            await asyncio.sleep(early)
        await show(chunk)


class Textuals(App[None]):
    """A screen that shows an answer by Textual's own Markdown."""

    def compose(self) -> ComposeResult:
        with VerticalScroll() as scroll:
            scroll.anchor()
            yield Markdown()

    async def show_all(self, chunks: list[str]) -> None:
        """Show the answer."""
        stream = Markdown.get_stream(self.query_one(Markdown))
        await feed(chunks, stream.write)
        await stream.stop()


class Ours(App[None]):
    """The chat's screen, whose answer comes from here and not from a daemon."""

    def __init__(self) -> None:
        super().__init__()
        self.chat_screen = ChatScreen(Chat(Link(self._ignore), self._ignore, Options()))

    def _ignore(self, *facts: object) -> None:
        """Ignore events, as there is no daemon."""

    def on_mount(self) -> None:
        self.push_screen(self.chat_screen)

    async def show_all(self, chunks: list[str]) -> None:
        """Show the answer, with the events of :class:`~localspec.tui.chat.Chat`."""
        answer = Answer(status="streaming", waiting="asking")
        self.chat_screen.chat.said = [Question("What is speculative decoding?"), answer]
        self.chat_screen.post_message(facts.Changed())
        timer: asyncio.TimerHandle | None = None

        def tell() -> None:
            nonlocal timer
            timer = None
            self.chat_screen.post_message(facts.Grown())

        async def show(chunk: str) -> None:
            nonlocal timer
            answer.grow(chunk, [Token(1, "draft" if len(answer.text) % 12 else "target", len(chunk))])
            if timer is None:
                timer = asyncio.get_running_loop().call_later(BATCH_S, tell)

        await feed(chunks, show)
        answer.status = "complete"
        self.chat_screen.post_message(facts.Ended())


SHOWN_BY: dict[str, type[Textuals | Ours]] = {"localspec": Ours, "MarkdownStream": Textuals}


async def watch(worst: list[float]) -> None:
    """Note the longest time for which the event loop was blocked."""
    last = time.perf_counter()
    while True:
        await asyncio.sleep(LOOK_S)
        now = time.perf_counter()
        worst[0], last = max(worst[0], now - last - LOOK_S), now


def show_one(kind: str, shown_by: str, chunks: int, report: Path) -> None:
    """Show an answer in this terminal, and write its cost to ``report``."""
    text = answer_of(kind, LENGTHS[kind])[: chunks * CHUNK]
    pieces = [text[n : n + CHUNK] for n in range(0, len(text), CHUNK)]
    app = SHOWN_BY[shown_by]()

    async def measured() -> None:
        await asyncio.sleep(0.5)  # the first painting of the screen is not measured
        worst = [0.0]
        watching = asyncio.create_task(watch(worst))
        cpu, started = time.process_time(), time.perf_counter()
        await app.show_all(pieces)
        await asyncio.sleep(2 * BATCH_S)
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu
        watching.cancel()
        late = wall - 2 * BATCH_S - len(pieces) / RATE
        report.write_bytes(msgspec.json.encode(Cost(kind, shown_by, cpu / wall, max(late, 0), worst[0])))
        app.exit()

    app.call_later(lambda: app.run_worker(measured(), exit_on_error=True))
    app.run()


def measure(kind: str, shown_by: str, chunks: int, report: Path) -> Cost:
    """Show an answer in a terminal of its own."""
    one = ("--one", kind, shown_by, str(report), "--chunks", str(chunks))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    child = pexpect.spawn(
        sys.executable,
        ["-m", "assets.bench.rendering", *one],
        env=environment,
        dimensions=(LINES, COLUMNS),
        timeout=None,
        encoding="utf-8",
    )
    child.expect(pexpect.EOF)
    child.close()
    return msgspec.json.decode(report.read_bytes(), type=Cost)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    longest = max(LENGTHS.values()) // CHUNK
    parser.add_argument("--chunks", type=int, default=longest, help="the most chunks of an answer")
    parser.add_argument("--one", nargs=3, metavar=("ANSWER", "BY", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, shown_by, file = given.one
        show_one(kind, shown_by, given.chunks, Path(file))
        return
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "cost.json")
        print(table([measure(kind, by, given.chunks, report) for kind in LENGTHS for by in SHOWN_BY]))


def table(costs: list[Cost]) -> str:
    """The measurements as a table."""
    lines = [f"{'answer':<8}{'shown by':<16}{'of a core':>10}{'late':>9}{'worst stall':>13}"]
    for each in costs:
        seconds = f"{each.late_s:>7.1f} s{1000 * each.stall_s:>10.0f} ms"
        lines.append(f"{each.answer:<8}{each.shown_by:<16}{each.share:>10.1%}{seconds}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
