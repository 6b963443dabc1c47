"""The conversation on the screen: what is seen of it, what is painted, and what a person does with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from textual.app import App, ComposeResult
from textual.events import MouseScrollDown
from textual.pilot import Pilot

from localspec.protocol.options import Options
from localspec.protocol.results import Token
from localspec.tui.chat import Chat
from localspec.tui.conversation import Answer, Question, Said
from localspec.tui.link import Link
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.widgets.prompt import Composer
from localspec.tui.widgets.transcript import KEPT, MORE, Transcript
from tests.waiting import until

WIDTH, HEIGHT = 40, 12


class Shown(App[None]):
    """Nothing but a transcript."""

    AUTO_FOCUS = None

    def __init__(self, said: Sequence[Said]) -> None:
        super().__init__()
        self.said = said
        self.asked: list[Transcript.Asked] = []

    def compose(self) -> ComposeResult:
        yield Transcript()

    def on_mount(self) -> None:
        self.transcript.show(self.said)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def on_transcript_asked(self, wish: Transcript.Asked) -> None:
        self.asked.append(wish)

    def lines(self) -> list[str]:
        """Return the lines on the screen, without the scroll bar."""
        return [strip.text[: WIDTH - 1].rstrip() for strip in self.screen._compositor.render_strips()]

    def top(self) -> int:
        return self.transcript.scroll_offset.y

    def bar(self) -> tuple[float, float]:
        """Return the scroll bar's position and the size that it scrolls over."""
        bar = self.transcript.vertical_scrollbar
        return bar.position, bar.window_virtual_size

    def grow(self, text: str, *, end: bool = False) -> None:
        answer = self.said[-1]
        assert isinstance(answer, Answer)
        answer.grow(text, [Token(1, "target", len(text))])
        if end:
            answer.status = "complete"
        self.transcript.grown()


@asynccontextmanager
async def showing(
    said: Sequence[Said], *, size: tuple[int, int] = (WIDTH, HEIGHT)
) -> AsyncIterator[tuple[Shown, Pilot[None]]]:
    app = Shown(said)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot


def talk(turns: int) -> list[Said]:
    return [each for n in range(turns) for each in (Question(f"question {n}"), Answer(f"answer {n}"))]


def growing(text: str = "") -> list[Said]:
    return [Question("ask"), Answer(text, "streaming")]


LONG = "".join(f"- line {n}\n" for n in range(40))


async def test_the_end_is_followed_until_the_person_scrolls_up() -> None:
    async with showing(growing(LONG)) as (app, pilot):
        app.grow("- last\n")
        await pilot.pause()
        assert "• last" in "\n".join(app.lines())
        await pilot.press("tab", "pageup")
        top, before = app.top(), app.lines()
        assert "• last" not in "\n".join(before)
        app.grow("- more\n" * 9)
        await pilot.pause()
        assert app.top() == top and app.lines()[:-1] == before[:-1]
        assert app.lines()[-1].endswith(MORE.strip())
        await pilot.press("end")
        assert "• more" in app.lines()[-2] and MORE.strip() not in "\n".join(app.lines())
        app.grow("- end\n", end=True)
        await pilot.pause()
        assert "• end" in "\n".join(app.lines())
        assert app.bar() == (app.top(), app.transcript.virtual_size.height)


async def test_what_is_below_is_shown_by_a_click_on_what_tells_of_it() -> None:
    async with showing(growing(LONG)) as (app, pilot):
        await pilot.press("tab", "home")
        assert app.top() == 0
        app.grow("- last\n", end=True)
        await pilot.pause()
        await pilot.click(offset=(WIDTH - 5, HEIGHT - 1))
        assert "• last" in "\n".join(app.lines())


@pytest.mark.slow
async def test_pages_and_the_wheel() -> None:
    async with showing(talk(20)) as (app, pilot):
        end = app.top()
        await pilot.press("tab", "pageup", "pageup")
        assert app.top() < end - HEIGHT
        before = app.top()
        await pilot._post_mouse_events([MouseScrollDown], widget=app.transcript, button=0)
        assert before < app.top() < end
        assert app.bar() == (app.top(), app.transcript.virtual_size.height)
        await pilot.press("pagedown", "pagedown", "pagedown")
        assert app.top() == end
        await pilot.press("home")
        assert app.lines()[0] == "▎ question 0"


@pytest.mark.slow
async def test_a_message_is_chosen_by_keys_and_by_the_mouse() -> None:
    said = talk(20)
    async with showing(said) as (app, pilot):
        await pilot.press("tab")
        assert app.transcript.chosen is said[-1]
        await pilot.press("k", "up")
        assert app.transcript.chosen is said[-3]
        await pilot.press("down", *"j" * 4)
        assert app.transcript.chosen is said[-1]
        await pilot.press(*"k" * 12)
        assert app.transcript.chosen is said[-13] and "▌ answer 13" in app.lines()
        top = app.top()
        await pilot.click(offset=(5, 4))
        assert app.top() == top and f"▌ {app.transcript.chosen.text}" == app.lines()[4]
        await pilot.press("c", "b", "r", "e", "f")
        assert [wish.what for wish in app.asked] == ["copy", "copy_code", "regenerate", "edit", "fork"]


async def test_a_long_answer_is_shown_from_its_beginning() -> None:
    async with showing([Question("ask"), Answer(LONG), Question("and?")]) as (app, pilot):
        await pilot.press("tab", "k")
        assert "line 0" in app.lines()[0]


async def test_details() -> None:
    async with showing([Question("\n".join(map(str, range(30)))), Answer("x")]) as (app, pilot):
        assert any("18 more lines" in line for line in app.lines())
        await pilot.press("tab", "s")
        assert "▌ its statistics are not stored" in app.lines()
        await pilot.press("s", "k", "s")
        assert app.transcript.virtual_size.height == 30 + 1 + 1 + 1
        await pilot.press("s")
        assert app.transcript.virtual_size.height == 13 + 1 + 1 + 1


async def test_text_is_selected_with_the_mouse_and_copied() -> None:
    async with showing([Question("ask"), Answer("漢字 first\n\nsecond one")]) as (app, pilot):
        row = next(n for n, line in enumerate(app.lines()) if "first" in line)
        await pilot.mouse_down(offset=(7, row))
        await pilot.hover(offset=(7, row + 2))
        await pilot.mouse_up(offset=(8, row + 2))
        await pilot.press("ctrl+c")
        assert app.clipboard == "first\n\nsecond"
        assert any(
            segment.style and segment.style.bgcolor
            for segment in app.transcript.render_lines(app.transcript.size.region)[row]
        )


async def test_all_is_selected_though_little_is_painted() -> None:
    async with showing(talk(100)) as (app, pilot):
        app.transcript.text_select_all()
        text = app.screen.get_selected_text() or ""
        assert text.split("\n\n") == [each.text for each in app.said]


@pytest.mark.slow
async def test_only_what_is_looked_at_is_painted() -> None:
    async with showing(talk(250)) as (app, pilot):
        assert len(app.transcript._painted) <= HEIGHT
        await pilot.press("tab", "home")
        assert app.lines()[0] == "▎ question 0" and len(app.transcript._painted) <= 2 * HEIGHT
        for _ in range(30):
            await pilot.press("pagedown")
            assert all(app.lines()[app.top() % 2 :: 2])  # a blank line is below each message
        assert len(app.transcript._painted) <= KEPT + 1
        for _ in range(10):
            await pilot.press("pageup")
            assert any("answer" in line for line in app.lines())


@pytest.mark.slow
@pytest.mark.parametrize("up", [False, True])
async def test_a_resize_keeps_what_is_looked_at(up: bool) -> None:
    async with showing([*talk(10), *growing("word " * 200)]) as (app, pilot):
        await pilot.press("tab", *(["home"] if up else []))
        for size in ((20, 30), (60, 8), (5, 3), (WIDTH, HEIGHT)):
            await pilot.resize_terminal(*size)
            app.grow("word ")
            await pilot.pause()
            assert (app.top() == 0) == up
        last = app.transcript.virtual_size.height - 2 - app.top()
        assert up or "word" in app.lines()[last]


async def test_the_end_stays_when_the_screen_shrinks() -> None:
    async with showing(talk(20)) as (app, pilot):
        await pilot.resize_terminal(WIDTH, HEIGHT - 3)
        await pilot.pause()
        assert app.lines()[-2:] == ["  answer 19", ""]


async def test_another_theme_paints_all_anew() -> None:
    async with showing(talk(2)) as (app, pilot):
        before = app.transcript.render_lines(app.transcript.size.region)
        app.theme = "textual-light"
        await pilot.pause()
        after = app.transcript.render_lines(app.transcript.size.region)
        assert [strip.text for strip in after] == [strip.text for strip in before] and after != before


async def test_a_long_block_gets_its_colours_when_it_ends() -> None:
    async with showing(growing("```py\n" + "def f(x): return 'a'\n" * 150)) as (app, pilot):

        def colours() -> int:
            strips = app.transcript.render_lines(app.transcript.size.region)
            return len({segment.style for strip in strips for segment in strip})

        plain = colours()
        app.grow("```\n", end=True)
        await until(lambda: colours() > plain + 2, "it has its colours")


@pytest.mark.slow
async def test_who_proposed_what_is_shown_and_hidden() -> None:
    async with showing([Question("ask"), Answer("**bold**")]) as (app, pilot):
        app.transcript.colour(True)
        assert "  **bold**" in app.lines()
        app.transcript.colour(False)
        assert "  bold" in app.lines()


async def test_what_was_shown_stays_as_it_is_when_more_is_said() -> None:
    said = talk(2)
    async with showing(said) as (app, pilot):
        await pilot.press("tab", "s")
        app.transcript.show([*said, Question("more")])
        await pilot.pause()
        assert "  its statistics are not stored" in app.lines() and "▎ more" in app.lines()


@pytest.mark.slow
async def test_the_conversation_is_scrolled_from_the_prompt() -> None:
    screen = ChatScreen(Chat(Link(lambda fact: None), lambda chat, fact: None, Options()))
    screen.chat.said = talk(20)
    app: App[None] = App()
    async with app.run_test(size=(WIDTH, 24)) as pilot:
        await app.push_screen(screen)
        transcript = screen.query_one(Transcript)
        transcript.show(screen.chat.said)
        await pilot.pause()
        end = transcript.scroll_offset.y
        tops = []
        for key in ("pageup", "pageup", "pagedown", "ctrl+home", "ctrl+end"):
            await pilot.press(key)
            tops.append(transcript.scroll_offset.y)
        assert end > tops[0] > tops[1] and tops[1] < tops[2] < end and tops[3:] == [0, end]
        assert isinstance(screen.focused, Composer)
