"""The chat without a terminal, on a real daemon: keys go in, the screen and messages come out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widget import Widget

from localspec.hub.default import MissingModel
from localspec.protocol.options import Options
from localspec.tui.app import ChatApp
from localspec.tui.chat import Chat
from localspec.tui.conversation import ChatAnswer
from localspec.tui.screen import ChatScreen
from localspec.tui.widgets.prompt import Composer
from localspec.tui.widgets.transcript import Transcript
from tests.waiting import until

GREEDY = Options(temperature=0.0, max_tokens=24)
ENDLESS = Options(temperature=0.0, proposer="none")
"""the bundled model's greedy text repeats itself to the end of the context: there is time to stop it"""


class Player:
    """A user at the keyboard."""

    def __init__(self, app: ChatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self._pilot = pilot

    @property
    def screen(self) -> ChatScreen:
        return self.app.chat_screen

    @property
    def chat(self) -> Chat:
        return self.screen.chat

    @property
    def typed(self) -> str:
        return self.screen.query_one(Composer).text

    @property
    def title(self) -> str:
        return self.screen.query_one(Composer).border_title or ""

    @property
    def transcript(self) -> Transcript:
        return self.screen.query_one(Transcript)

    @property
    def toasts(self) -> list[str]:
        return [f"{toast.title} {toast.message}".strip() for toast in self.app._notifications]

    def lines(self) -> list[str]:
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    def seen(self) -> str:
        return " ".join(" ".join(self.lines()).split())

    def foot(self) -> str:
        return self.lines()[self.screen.query_one(Composer).region.bottom - 1]

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def resize(self, *size: int) -> None:
        await self._pilot.resize_terminal(*size)

    async def click(self, widget: type[Widget] | None = None, *, offset: tuple[int, int] = (0, 0)) -> None:
        await self._pilot.click(widget, offset=offset)

    def put(self, text: str) -> None:
        self.screen.query_one(Composer).text = text

    async def send(self, text: str) -> None:
        """Send a text as if pasted."""
        self.put(text)
        await self.press("enter")

    async def write(self, text: str) -> None:
        names = {" ": "space", "\n": "ctrl+j", "/": "slash", "@": "at", ".": "full_stop", "-": "minus"}
        await self._pilot.press(*(names.get(character, character) for character in text))

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until ``condition`` holds and all that follows from it is shown."""
        await until(condition, what)
        await self._pilot.pause()

    async def search(self, text: str) -> None:
        await self.press("ctrl+p")
        await self._find(text)

    async def choose(self, key: str, text: str) -> None:
        """Press a key that offers values, and choose the one that is found by ``text``."""
        await self.press(key)
        await self.pick(text)

    async def pick(self, text: str) -> None:
        """Choose the value that is found by ``text``, in a list that opens."""
        await self.until(lambda: isinstance(self.app.screen, CommandPalette), "values are offered")
        await self._find(text)
        await self.press("enter")
        await self.until(lambda: self.app.screen is self.screen, "the list is left")

    async def _find(self, text: str) -> None:
        await self.write(text)
        palette = self.app.screen
        assert isinstance(palette, CommandPalette)
        await self.until(lambda: palette._list_visible and not palette._show_busy, "something is found")
        await self.settle()

    async def say(self, text: str) -> None:
        """Send a message, and wait for the end of the answer."""
        before = self.chat.answer
        await self.write(text)
        await self.press("enter")
        await self.answered(before)

    async def ask_on(self, question: str) -> ChatAnswer:
        """Send a message as if pasted, and wait for the first words of a long answer."""
        before = self.chat.answer
        await self.send(question)
        await self.until(
            lambda: bool(self.chat.answer is not before and self.chat.answer and self.chat.answer.text),
            "it answers",
        )
        answer = self.chat.answer
        assert answer is not None and answer.growing
        return answer

    async def do(self, command: str) -> None:
        """Have a command run, and wait until it is done."""
        await self.send(command)
        await self.settle()

    async def answered(self, before: ChatAnswer | None) -> None:
        """Wait for the end of an answer that is another than ``before``, and for what follows from it."""
        await self.until(
            lambda: self.chat.answer is not before and not self.chat.answering, "an answer is given"
        )
        await self.settle()

    async def pause(self) -> None:
        await self._pilot.pause()

    async def settle(self) -> None:
        """Wait until all requests are done."""
        await self.app.workers.wait_for_complete()
        await self._pilot.pause()


@asynccontextmanager
async def playing(
    options: Options = GREEDY,
    *,
    session: str | None = None,
    private: bool = False,
    settled: bool = True,
    missing: MissingModel | None = None,
    size: tuple[int, int] = (100, 30),
) -> AsyncIterator[Player]:
    """A chat, once all that it begins with is done, or at once; the daemon is that of ``LOCALSPEC_HOME``."""
    app = ChatApp(options, missing=lambda: missing, session=session, private=private)
    async with app.run_test(size=size) as pilot:
        player = Player(app, pilot)
        await pilot.pause()  # what begins after the first picture has begun
        if settled:
            await player.settle()
        yield player
