"""Whole chats: answered, edited, named, exported, deleted, left while they are answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.widgets import OptionList

from localspec.client import Client, connect
from localspec.errors import SessionNotFound
from localspec.protocol.messages import SessionContent
from localspec.tui.conversation import ChatAnswer, ChatQuestion
from localspec.tui.dialog import Confirm
from tests.tui.harness import ENDLESS, Player, playing

QUESTION = "What does dedent do?"


async def stored(player: Player) -> SessionContent:
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
    await player.until(lambda: isinstance(player.app.screen, Confirm), "it asks")
    return " ".join(" ".join(player.lines()).split())


def highlighted(player: Player) -> str | None:
    options = [each.highlighted_option for each in player.app.screen.query(OptionList)]
    return options[0].id if options and options[0] else None


@pytest.mark.slow
async def test_a_chat_is_named_and_another_begun(player: Player) -> None:
    for command, why in (("/rename Too early", "chat is not stored yet"), ("/export", "has no messages yet")):
        await player.do(command)
        assert player.toasts[-1].endswith(f"{why} Send a message first.")
    await player.say(QUESTION)
    assert f" {QUESTION} " in player.foot()
    await player.do("/rename Of dedent")
    assert (await stored(player)).title == "Of dedent" == player.chat.title
    assert " Of dedent " in player.foot()
    for title, why in (("", "no title was given"), ("x" * 201, "expected str of length <= 200")):
        await player.do(f"/rename {title}")
        assert why in player.toasts[-1]
    await player.press("ctrl+n")
    await player.settle()
    assert player.chat.session is None and not player.chat.said and player.chat.pairing is not None
    await player.do("/new")
    assert not player.chat.said and not player.foot().strip("╰─╯")


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
async def test_a_private_chat_leaves_nothing_behind(other: Client) -> None:
    before = {each.session for each in await other.sessions()}
    async with playing() as player:
        await player.do("/private")
        assert player.chat.private and any(line.lstrip().startswith("private") for line in player.lines())
        await player.say(QUESTION)
        left = player.chat.session
        assert (await other.session(left or "")).private
        await player.send("/new ")
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
async def test_a_chat_that_another_program_has_deleted_stays_on_the_screen(
    player: Player, other: Client, tmp_path: Path
) -> None:
    await player.say(QUESTION)
    said = [each.text for each in player.chat.said]
    await other.delete_session(player.chat.session or "")
    await player.write("Hm?")
    await player.press("enter")
    await player.until(lambda: bool(player.toasts), "it is shown")
    await player.settle()
    assert "another program has deleted this chat" in player.toasts[-1]
    assert [each.text for each in player.chat.said] == said and player.typed == "Hm?"
    await player.do(f"/export {tmp_path}")
    kept = tmp_path / "What-does-dedent-do.md"
    assert player.toasts[-1] == f"Written to {kept}" and player.chat.pairing is not None
    for text in (f"· {player.chat.pairing.target}\n", QUESTION, *said):
        assert text in kept.read_text()


@pytest.mark.slow
async def test_a_question_is_answered_and_edited_later(player: Player) -> None:
    await player.say("What does os.path.join do?")
    question, answer = player.chat.said
    assert isinstance(question, ChatQuestion) and question.id is not None
    assert isinstance(answer, ChatAnswer) and answer.result is not None and answer.id is not None
    assert answer.status == "complete" and answer.text == answer.result.text
    assert "What does os.path.join do?" in player.seen()
    assert any(max(answer.text.split(), key=len) in line for line in player.lines())
    assert sum(run.chars for run in answer.runs) == len(answer.text)
    assert " of 16,384 tokens" in "\n".join(player.lines())
    await player.say("And os.path.split?")
    last = player.chat.answer
    await player.press("alt+up", "k", "k", "k", "e")
    assert player.typed == "What does os.path.join do?"
    await player.write(" Say it shortly")
    await player.press("enter")
    await player.answered(last)
    question, _ = player.chat.said
    assert question.text == "What does os.path.join do? Say it shortly"
    assert player.chat.answer is not None and player.chat.answer.result is not None
