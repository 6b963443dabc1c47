"""Whole chats: begun, named, exported, deleted, left while they are answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.widgets import OptionList

from localspec.client import Client, connect
from localspec.errors import SessionNotFound
from localspec.protocol.messages import SessionContent
from localspec.tui.dialog import Confirm
from tests.tui.harness import ENDLESS, Player, playing

QUESTION = "What does dedent do?"


async def stored(player: Player) -> SessionContent:
    """The chat that is shown, as another program sees it."""
    assert player.chat.session is not None
    async with await connect() as other:
        return await other.session(player.chat.session)


async def is_gone(client: Client, session: str | None) -> bool:
    assert session is not None
    try:
        await client.session(session)
    except SessionNotFound:
        return True
    return False


async def asked(player: Player) -> str:
    """Wait for a confirmation and return its text."""
    await player.until(lambda: isinstance(player.app.screen, Confirm), "it asks")
    return " ".join(" ".join(player.lines()).split())


def highlighted(player: Player) -> str | None:
    """The session that is highlighted in the list of chats; None without a list."""
    options = [each.highlighted_option for each in player.app.screen.query(OptionList)]
    return options[0].id if options and options[0] else None


@pytest.mark.slow
async def test_a_chat_is_named_and_another_begun(home: Path) -> None:
    async with playing() as player:
        await player.say(QUESTION)
        assert f" {QUESTION} " in player.foot()
        await player.do("/rename Of dedent")
        assert (await stored(player)).title == "Of dedent" == player.chat.title
        assert " Of dedent " in player.foot()
        too_long = "expected str of length <= 200"
        for title, why in (("", "no title was given"), ("x" * 201, too_long)):
            await player.do(f"/rename {title}")
            assert why in player.toasts[-1]
        await player.press("ctrl+n")
        await player.settle()
        assert player.chat.session is None and not player.chat.said and player.chat.pairing is not None
        await player.do("/new")
        assert not player.chat.said and not player.foot().strip("╰─╯")


@pytest.mark.slow
async def test_what_cannot_be_done_yet_is_shown(home: Path) -> None:
    async with playing() as player:
        for command in ("/rename Too early", "/export"):
            await player.do(command)
        nothing = "this chat has no messages yet Send a message first."
        assert player.toasts == ["this chat is not stored yet Send a message first.", nothing]


@pytest.mark.slow
async def test_a_chat_is_deleted_while_it_is_answered(home: Path) -> None:
    async with playing(ENDLESS) as player, await connect() as other:
        await player.ask_on(QUESTION)
        session = player.chat.session
        await player.press("ctrl+s")
        await player.until(lambda: highlighted(player) == session, "it is the first in the list")
        await player.press("ctrl+d")
        await asked(player)
        await player.press("left", "enter")
        await player.until(lambda: not isinstance(player.app.screen, Confirm), "it is answered")
        await player.press("escape")
        await player.settle()
        assert await is_gone(other, session)
        assert not player.chat.said and player.toasts == []


@pytest.mark.slow
async def test_a_chat_that_is_deleted_while_it_is_opened_is_not_kept(home: Path) -> None:
    async with playing(ENDLESS) as player, await connect() as other:
        before = {each.session for each in await other.sessions()}
        chat = player.app.new_chat()
        sending = asyncio.create_task(chat.send(QUESTION))
        while chat._stream is None:
            await asyncio.sleep(0)  # the daemon's answer takes longer
        assert chat.answering and chat.session is None
        await chat.discard()
        await sending
        assert {each.session for each in await other.sessions()} == before


@pytest.mark.slow
async def test_a_private_chat_leaves_nothing_behind(home: Path) -> None:
    async with await connect() as other:
        before = {each.session for each in await other.sessions()}
        async with playing() as player:
            await player.do("/private")
            assert player.chat.private and any(line.lstrip().startswith("private") for line in player.lines())
            await player.say(QUESTION)
            left = player.chat.session
            assert (await other.session(left or "")).private
            player.put("/new ")
            await player.press("enter")
            assert "Leave this private chat? Nothing of it is kept." in await asked(player)
            await player.press("escape")
            await player.settle()
            assert player.chat.session == left
            await player.press("ctrl+n")
            await asked(player)
            await player.press("y")
            await player.settle()
            assert not player.chat.private and await is_gone(other, left)
            await player.do("/private")
            await player.say(QUESTION)
            last = player.chat.session
        assert await is_gone(other, last)
        assert {each.session for each in await other.sessions()} == before


@pytest.mark.slow
async def test_a_chat_is_exported(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with playing() as player:
        await player.say(QUESTION)
        await player.do("/export")
        content = await stored(player)
        assert player.toasts == [f"Written to {tmp_path / 'What-does-dedent-do.md'}"]
        markdown = (tmp_path / "What-does-dedent-do.md").read_text()
        assert all(message.content in markdown for message in content.messages)
        assert player.chat.pairing is not None and f"· {player.chat.pairing.target}\n" in markdown
        await player.do("/export no/such/place.md")
        assert "place.md cannot be written: No such file or directory" in player.toasts[-1]


@pytest.mark.slow
async def test_a_chat_that_another_program_has_deleted_stays_on_the_screen(
    home: Path, tmp_path: Path
) -> None:
    async with playing() as player, await connect() as other:
        await player.say(QUESTION)
        said = [each.text for each in player.chat.said]
        await other.delete_session(player.chat.session or "")
        await player.write("Hm?")
        await player.press("enter")
        await player.until(lambda: bool(player.toasts), "it is shown")
        await player.settle()
        assert "another program has deleted this chat" in player.toasts[-1]
        assert [each.text for each in player.chat.said] == said and player.typed == "Hm?"
        await player.do(f"/export {tmp_path / 'kept.md'}")
        assert all(text in (tmp_path / "kept.md").read_text() for text in (QUESTION, *said))
