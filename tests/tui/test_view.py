"""Commands and keys about what is seen."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from textual.command import CommandPalette
from textual.widgets._toast import Toast

from localspec.errors import LocalspecError
from localspec.protocol.results import Token
from localspec.tui import facts, themes
from localspec.tui.conversation import Question
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.pulse import Pulse
from tests.tui.harness import Player
from tests.tui.showing import conversation, growing, show, showing


async def command(player: Player, text: str) -> None:
    player.screen.post_message(Prompt.Sent(text))
    await player.settle()


@pytest.mark.slow
async def test_colours_show_the_text_and_the_pulse(still: Path) -> None:
    async with showing(conversation()) as player:
        pulse = player.screen.query_one(Pulse)
        assert not pulse.display and not any("**common" in line for line in player.lines())
        await player.press("ctrl+t")
        await player.settle()
        assert any("**common leading" in line for line in player.lines())
        assert any("draft 45%" in line and "4.9 a round" in line for line in player.lines())
        await command(player, "/colours")
        assert not pulse.display and not player.transcript.raw


@pytest.mark.slow
async def test_the_pulse_follows_an_answer_that_grows(still: Path) -> None:
    async with showing() as player:
        answer = growing("one two", "target 1, draft 3 1")
        show(player, [Question("Count.", 1), answer])
        await player.press("ctrl+t")
        await player.settle()
        assert any("▁▄" in line and "2.5 a round" in line for line in player.lines())
        several = [Token(0, "memory", 6), Token(0, "target", 1), Token(0, "target", 1)]
        answer.grow(" three!!", [*several, Token(0, "draft", 0)])  # rounds that came in one delta
        answer.grow("", [Token(0, "target", 0)])
        player.screen.post_message(facts.Grown())
        await player.settle()
        assert any("▁▄▂▁▂" in line and "2.0 a round" in line for line in player.lines())


@pytest.mark.slow
async def test_statistics_of_the_last_answer(still: Path) -> None:
    async with showing(conversation()) as player:
        await command(player, "/stats")
        assert any("first token after 80 ms" in line for line in player.lines())
        await command(player, "/stats")
        assert not any("first token after 80 ms" in line for line in player.lines())
        show(player, [])
        await command(player, "/stats")
        assert player.toasts == ["this chat has no answer yet Send a message first."]


@pytest.mark.slow
async def test_a_theme_is_kept_for_the_next_chat(still: Path) -> None:
    async with showing() as player:
        await command(player, "/theme gruvbox")
        assert player.app.theme == "gruvbox"
    async with showing() as player:
        assert player.app.theme == "gruvbox"
        await command(player, "/theme gruvbx")
        assert "did you mean 'gruvbox'?" in player.toasts[0]
        await command(player, "/theme")
        assert isinstance(player.app.screen, CommandPalette)
    assert stat.S_IMODE((still / "state" / "chat-theme").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"no-such-theme\n", b"\xff\xfe", b""])
def test_an_unknown_theme_is_none(still: Path, content: bytes) -> None:
    (still / "state").mkdir(mode=0o700)
    (still / "state" / "chat-theme").write_bytes(content)
    assert themes.kept({"nord"}) is None


def test_a_theme_that_cannot_be_kept_or_read_is_no_error(
    still: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (still / "file").touch()
    monkeypatch.setenv("LOCALSPEC_HOME", str(still / "file"))
    themes.keep("nord")
    assert themes.kept({"nord"}) is None


@pytest.mark.slow
@pytest.mark.parametrize("variable", [("NO_COLOR", "1"), ("TERM", "dumb")])
async def test_sources_differ_without_colours(
    still: Path, monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.delenv("COLORTERM")
    monkeypatch.setenv(*variable)
    async with showing(conversation()) as player:
        await player.press("ctrl+t")
        await player.settle()
        strips = player.app.screen._compositor.render_strips()
        legend = next(strip for strip in strips if "a round" in strip.text)
        marks = {
            (style.underline, style.bold, style.reverse)
            for text, style, _ in legend
            if style is not None and "%" in text
        }
        assert len(marks) == 4


@pytest.mark.slow
async def test_a_toast_is_readable_on_a_narrow_screen_and_goes_by_a_key_or_a_click(still: Path) -> None:
    error = LocalspecError("the model stdlib-60m is not on this disk", "See `localspec models list`.")
    async with showing(size=(60, 20)) as player:
        for leave in ("key", "click"):
            player.screen.show_error(error)
            await player.until(lambda: bool(player.app.screen.query(Toast)), "a toast is shown")
            shown = "\n".join(player.lines())
            assert "the model stdlib-60m is not on this disk" in shown
            assert "See `localspec models list`." in shown
            if leave == "key":
                await player.press("escape")
            else:
                await player.click(Toast)
            await player.until(lambda: not player.app.screen.query(Toast), "it has gone")


@pytest.mark.slow
async def test_a_key_of_the_footer_is_clicked(still: Path) -> None:
    async with showing(conversation(), size=(60, 20)) as player:
        place = player.lines()[-1].index("Help")
        await player.click(offset=(place, 19))
        await player.settle()
        assert player.app.screen is not player.screen


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 100])
async def test_the_footer_fits(still: Path, columns: int) -> None:
    async with showing(conversation(), size=(columns, 20)) as player:
        for keys in ((), ("alt+up",)):
            await player.press(*keys)
            await player.settle()
            footer = player.screen.query_one("Keys")
            regions = [key.region for key in footer.children]
            assert len(regions) > 3 and all(footer.region.contains_region(r) for r in regions)
            assert not any(a.overlaps(b) for a in regions for b in regions if a is not b)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [30, 60, 100])
async def test_a_title_stands_at_the_foot_of_the_prompt(still: Path, columns: int) -> None:
    async with showing(conversation(), size=(columns, 20)) as player:
        assert not player.foot().strip("╰─╯")
        player.chat.title = f"A [b]bold[/b]\n\x1b]0;evil\x07 {'title ' * 12}"
        player.screen.post_message(facts.Ended())
        await player.settle()
        foot = player.foot()
        assert foot.startswith("╰─") and foot.endswith("… ─╯") and len(foot) == columns
        assert "A [b]bold[/b]\ufffd\ufffd" in foot
        show(player, [])
        player.chat.title = ""
        player.screen.post_message(facts.Changed())
        await player.settle()
        assert not player.foot().strip("╰─╯")
