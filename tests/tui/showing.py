"""Fixed conversations, painted or on a screen, without a daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from textual.strip import Strip
from textual.theme import BUILTIN_THEMES

from localspec.protocol.messages import Pairing
from localspec.protocol.options import Options
from localspec.protocol.requests import Delta, ProposerStats, Result, Stats, Token
from localspec.tui.app import ChatApp
from localspec.tui.chat import Chat
from localspec.tui.conversation import ChatAnswer, ChatQuestion, Said
from localspec.tui.look import Look
from localspec.tui.painter import GUTTER, Painter
from tests.tui.harness import Player

THEME = BUILTIN_THEMES["textual-dark"]
LOOK = Look.of(dark=True, colours=THEME.to_color_system().generate())
PAIRING = Pairing("stdlib-6m", "stdlib-1m", "auto", "llama.cpp", "")
ROUNDS = (
    "target 4, draft 5 1, draft 6 1, prompt-lookup 9 1, draft 2 1, target 1, draft 7 1, memory 8 1, "
    "draft 4 1, draft 6 1, target 1, prompt-lookup 12 1, draft 3 1, draft 5 1"
)
TEXT = """\
`textwrap.dedent` removes the **common leading whitespace** from every line of a text.

1. Lines with only blanks are ignored.
2. Tabs and spaces are *not* equal.

```python
import textwrap

def usage() -> str:
    return textwrap.dedent(\"\"\"
        one
          two
    \"\"\")
```

> It is meant for strings in triple quotes.
"""


def stats() -> Stats:
    """Figures of an answer, the same whenever and wherever it is shown."""
    return Stats(
        rounds=14,
        drafted=90,
        accepted=67,
        acceptance_rate=0.744,
        tokens_per_round=5.9,
        proposers={"draft": ProposerStats(60, 38), "prompt-lookup": ProposerStats(21, 21)},
        time_saved_s=1.24,
        ttft_s=0.08,
        decode_tokens_per_s=212.4,
    )


def answered(text: str = TEXT, rounds: str = ROUNDS) -> ChatAnswer:
    """An answer that has come in ``rounds``: each with a proposer, its tokens, and those of the target."""
    answer = growing(text, rounds)
    answer.status = "complete"
    answer.result = Result(
        text=text,
        finish_reason="stop",
        model="stdlib-6m",
        draft="stdlib-1m",
        backend="llama.cpp",
        prompt_tokens=20,
        cached_tokens=0,
        completion_tokens=answer.tokens,
        stats=stats(),
    )
    return answer


def growing(text: str = TEXT, rounds: str = ROUNDS) -> ChatAnswer:
    sources = [_sources(each.split()) for each in rounds.split(", ")]
    total = sum(map(len, sources))
    answer = ChatAnswer(status="streaming")
    done = 0
    for each in sources:
        # Tokens are of one length, about: who proposed what is seen, not the words.
        ends = [len(text) * (done + n) // total for n in range(len(each) + 1)]
        tokens = [Token(0, s, b - a) for s, a, b in zip(each, ends, ends[1:], strict=False)]
        answer.grow(Delta(text[ends[0] : ends[-1]], tuple(tokens)))
        done += len(each)
    answer.first = answer.last  # no speed: it would be that of this machine
    return answer


def _sources(words: list[str]) -> list[str]:
    source, count, *targets = words
    return [source] * int(count) + ["target"] * sum(map(int, targets))


class Still(ChatApp):
    """A chat without a daemon."""

    async def _begin(self) -> None:
        self.chat_screen.settled.set()
        self.chat_screen.show(self.chat_screen.chat)


@asynccontextmanager
async def showing(
    said: Sequence[Said] = (), *, size: tuple[int, int] = (100, 30), private: bool = False
) -> AsyncIterator[Player]:
    """The chat's screen with these messages; the model is loaded."""
    app = Still(Options(), private=private)
    async with app.run_test(size=size, notifications=True) as pilot:
        player = Player(app, pilot)
        await player.settle()
        show(player, said)
        await player.settle()
        yield player


def show(player: Player, said: Sequence[Said]) -> Chat:
    chat = player.chat
    chat.pairing = PAIRING
    chat.said = list(said)
    player.screen.show(chat)
    return chat


def conversation() -> list[Said]:
    return [ChatQuestion("What does `textwrap.dedent` do?", 1), answered()]


def painter(width: int, *, by_source: bool = False) -> Painter:
    return Painter(width + GUTTER, LOOK, by_source=by_source)


def texts(lines: list[Strip]) -> list[str]:
    """Return the text of lines, without gutter and trailing blanks."""
    return [line.text[GUTTER:].rstrip() for line in lines]
