"""Commands and keys of the view, whole screens, and the welcome that a chat without messages shows."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from textual.widgets import Static

from localspec.errors import LocalspecError
from localspec.models.catalogue import DEFAULT
from localspec.protocol.messages import Pairing
from localspec.tui import facts
from localspec.tui.dialog import Permission
from localspec.tui.look import Look
from localspec.tui.widgets.transcript import Welcome
from tests.tui.harness import Player, playing
from tests.tui.showing import conversation, show, showing
from tests.tui.test_models import described


def legend(player: Player) -> str:
    return player.lines()[player.screen.query_one("#legend", Static).region.y]


@pytest.mark.slow
async def test_colours_show_the_text_and_a_legend(viewer: Player) -> None:
    assert "**common" not in viewer.seen()
    await viewer.press("ctrl+t")
    await viewer.settle()
    assert "**common leading" in viewer.seen() and "draft 45%" in legend(viewer)
    await viewer.do("/colours")
    assert not viewer.screen.query_one("#legend").display and not viewer.transcript.raw


@pytest.mark.slow
async def test_statistics_of_the_last_answer(viewer: Player) -> None:
    await viewer.do("/stats")
    assert "first token after 80 ms" in viewer.toasts[0]
    show(viewer, [])
    await viewer.do("/stats")
    assert viewer.toasts[1:] == ["this chat has no answer yet Send a message first."]


async def test_a_theme_with_colours_of_its_own_is_kept_for_the_next_chat(
    still: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with showing() as player:
        await player.do("/theme")
        await player.pick("gruvbox")
        assert player.app.theme == "gruvbox"
        assert not [each for each in player.app.available_themes.values() if each.ansi]
    async with showing() as player:
        assert player.app.theme == "gruvbox"
    monkeypatch.setenv("TEXTUAL_THEME", "textual-dark")
    async with showing() as player:
        assert player.app.theme == "textual-dark"
    kept = still / "state" / "chat-theme"
    assert kept.read_text() == "gruvbox\n" and stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"no-such-theme\n", b"\xff\xfe", None])
async def test_a_theme_that_is_unknown_or_cannot_be_kept_is_no_error(
    still: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    (still / "state").mkdir(mode=0o700)
    if content is None:
        monkeypatch.setenv("LOCALSPEC_HOME", str(still / "state" / "file"))
        (still / "state" / "file").touch()
    else:
        (still / "state" / "chat-theme").write_bytes(content)
    async with showing() as player:
        assert player.app.theme == "textual-dark"
        player.app.theme = "nord"


@pytest.mark.slow
@pytest.mark.parametrize("variable", [("NO_COLOR", "1"), ("TERM", "dumb")])
async def test_sources_differ_without_colours(
    still: Path, monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.delenv("COLORTERM")
    monkeypatch.setenv(*variable)
    async with showing() as player:
        styles = Look.read_app(player.app).sources.values()
        assert len({(style.underline, style.bold, style.reverse) for style in styles}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("columns", [30, 100])
async def test_a_title_stands_at_the_foot_of_the_prompt(still: Path, columns: int) -> None:
    async with showing(conversation(), size=(columns, 20)) as player:
        assert not player.foot().strip("╰─╯")
        player.chat.title = f"A [b]bold[/b]\n\x1b]0;evil\x07 {'title ' * 12}"
        player.screen.post_message(facts.Grown(ended=True))
        await player.settle()
        foot = player.foot()
        assert foot.startswith("╰─") and foot.endswith("… ─╯") and len(foot) == columns
        assert "A [b]bold[/b]\ufffd\ufffd" in foot
        show(player, [])
        player.chat.title = ""
        player.screen.post_message(facts.Changed())
        await player.settle()
        assert not player.foot().strip("╰─╯")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [4, 34])
async def test_the_keys_are_shown_on_a_narrow_screen(still: Path, columns: int) -> None:
    async with showing(size=(columns, 30)) as player:
        await player.press("f1")
        await player.until(lambda: bool(player.screen.query("HelpPanel")), "the keys are shown")
        await player.press("escape", "x")
        assert player.typed == "x"


async def test_the_first_screen_says_what_answers_and_how_to_get_a_better_one(home: Path) -> None:
    async with playing(size=(60, 20)) as player:
        await player.until(
            lambda: "stdlib-6m answers: a toy (13.3 MB), good for tests only." in player.seen(),
            "models are listed",
        )
        assert f"Ctrl-O gets a real one: {DEFAULT}, 491.4 MB." in player.seen()
        assert "Enter sends" in player.seen() and "F1 shows keys" in player.seen()
        models = [described("one", store="ollama"), described("two", store="ollama")]
        player.screen.query_one(Welcome).show(Pairing("two", None, "auto", "llama_cpp", ""), models)
        await player.settle()
        assert "two answers (1.0 GB). Ctrl-O: the models here" in player.seen()


async def test_it_leaves_at_once_and_comes_back_with_a_chat_without_messages(still: Path) -> None:
    async with showing() as player:
        show(player, conversation())
        player.screen._dirty_widgets |= {Static(), player.screen.query_one("#status")}
        player.screen._on_timer_update()  # paints, with a new widget, before the messages are laid out
        await player.settle()
        assert "common leading whitespace" in player.seen()
        show(player, [])
        await player.settle()
        assert player.screen.query_one(Welcome).display and not player.transcript.display
        await player.press("tab", "escape", "tab", "escape", "y")
        assert player.typed == "y"


async def test_notices_cover_no_text(still: Path) -> None:
    async with showing(conversation(), size=(60, 20)) as player:
        assert "Lines with only blanks" in player.seen() and "F1 Help" in player.lines()[-1]
        player.screen.notify("Copied.")
        player.screen.show_error(LocalspecError("it does not fit", "Choose a smaller one."))
        await player.until(lambda: "▌ Choose a smaller one." in player.lines(), "they are shown")
        lines = player.lines()
        assert lines[-8:-5] == ["▌ Copied.", "▌ it does not fit", "▌ Choose a smaller one."]
        assert "212 tok/s" in lines[-10] and "Ask something" in lines[-4]
        player.app.push_screen(Permission("time {}", player.screen.prompt))
        await player.until(lambda: "time {}" in player.seen(), "it is asked")
        assert player.seen().count("Copied.") == 1
