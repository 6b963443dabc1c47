"""The conversation on the screen: what is seen of it, what is painted, and what a person does with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from localspec.protocol.requests import Delta, Token
from localspec.tui.conversation import ChatAnswer, ChatQuestion, Said
from localspec.tui.widgets.transcript import Transcript

WIDTH, HEIGHT = 40, 12


class Shown(App[None]):
    """Nothing but a transcript."""

    AUTO_FOCUS = None

    def __init__(self, said: Sequence[Said]) -> None:
        super().__init__()
        self.said = said

    def compose(self) -> ComposeResult:
        yield Transcript()

    def on_mount(self) -> None:
        self.transcript.show(self.said)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def lines(self) -> list[str]:
        return [strip.text[: WIDTH - 1].rstrip() for strip in self.screen._compositor.render_strips()]

    def top(self) -> int:
        return self.transcript.scroll_offset.y

    def grow(self, text: str, *, end: bool = False) -> None:
        answer = self.said[-1]
        assert isinstance(answer, ChatAnswer)
        answer.grow(Delta(text, (Token(1, "target", len(text)),)))
        if end:
            answer.status = "complete"
        self.transcript.grow()


@asynccontextmanager
async def showing(
    said: Sequence[Said], *, size: tuple[int, int] = (WIDTH, HEIGHT)
) -> AsyncIterator[tuple[Shown, Pilot[None]]]:
    app = Shown(said)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot


def talk(turns: int) -> list[Said]:
    return [each for n in range(turns) for each in (ChatQuestion(f"question {n}"), ChatAnswer(f"answer {n}"))]


def growing(text: str = "") -> list[Said]:
    return [ChatQuestion("ask"), ChatAnswer(text, "streaming")]


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
        assert app.top() == top and app.lines() == before
        await pilot.press("end")
        assert "• more" in app.lines()[-2]
        app.grow("- end\n", end=True)
        await pilot.pause()
        assert "• end" in "\n".join(app.lines())
        bar, whole = app.transcript.vertical_scrollbar, app.transcript.virtual_size.height
        assert (bar.position, bar.window_virtual_size) == (app.top(), whole)


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


async def test_a_long_answer_is_shown_from_its_beginning() -> None:
    async with showing([ChatQuestion("ask"), ChatAnswer(LONG), ChatQuestion("and?")]) as (app, pilot):
        await pilot.press("tab", "k")
        assert "line 0" in app.lines()[0]


async def test_text_is_selected_with_the_mouse_and_copied() -> None:
    async with showing([ChatQuestion("ask"), ChatAnswer("漢字 first\n\nsecond one")]) as (app, pilot):
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


async def test_code_gets_its_colours_when_it_ends() -> None:
    async with showing(growing("```py\n" + "def f(x): return 'a'\n" * 20)) as (app, pilot):

        def colours() -> int:
            strips = app.transcript.render_lines(app.transcript.size.region)
            return len({segment.style for strip in strips for segment in strip})

        plain = colours()
        app.grow("```\n", end=True)
        assert colours() > plain + 2
