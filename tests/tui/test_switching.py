"""Chats that are left while they are answered and come back to; chats that other programs change, or end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pexpect
import pytest
from msgspec.structs import replace

from localspec.client import Client, connect
from localspec.protocol.messages import ChatSend
from tests.tui.harness import ENDLESS, GREEDY, Player, playing
from tests.tui.test_session_list import listing
from tests.waiting import DEADLINE_S

QUESTION = "What does os.path.commonpath do?"


@pytest.mark.slow
async def test_a_chat_is_left_while_it_is_answered_and_come_back_to(home: Path) -> None:
    async with playing(ENDLESS) as player:
        answer = await player.ask_on(QUESTION)
        left = player.chat
        await player.press("ctrl+n")
        await player.until(lambda: player.chat is not left, "another chat is shown")
        assert QUESTION not in player.seen()
        seen = len(answer.text)
        await player.until(lambda: len(answer.text) > seen, "the other goes on")
        async with listing(player, "commonpath") as seen_list:
            await seen_list.press("enter")
        await player.until(lambda: player.chat is left, "it is shown again")
        assert left.answer is answer
        seen = len(answer.text)
        await player.until(lambda: len(answer.text) > seen, "it still grows")
        await player.press("escape")
        await player.until(lambda: answer.status == "cancelled", "it is stopped")
        await player.settle()
        assert answer.id is not None
        assert any(line.strip() == "stopped" for line in player.lines())


@pytest.mark.slow
async def test_the_end_of_an_answer_that_is_not_looked_at_is_shown(home: Path) -> None:
    async with playing(ENDLESS) as player:
        await player.ask_on(QUESTION)
        left = player.chat
        await player.press("ctrl+n")
        await player.until(lambda: player.chat is not left, "another chat is shown")
        assert player.toasts == []
        left.stop()
        await player.until(lambda: player.toasts == [f"{QUESTION} The answer is complete."], "it is shown")
        await player.settle()


@pytest.mark.slow
async def test_another_program_deletes_what_is_being_answered(home: Path) -> None:
    async with playing(ENDLESS) as player, await connect() as other:
        answer = await player.ask_on(QUESTION)
        await other.delete_session(player.chat.session or "")
        await player.until(lambda: not player.chat.answering, "it has ended")
        await player.settle()
        (toast,) = player.toasts
        assert toast.startswith("another program has deleted this chat Save what is shown with /export")
        assert player.chat.answer is answer and answer.text


async def test_an_answer_is_followed_once_the_program_that_received_it_has_ended(other: Client) -> None:
    opened = await other.open(options=ENDLESS).result()
    await anext(aiter(other.chat(ChatSend(session=opened.session, content=QUESTION))))
    async with playing(session=opened.session) as player:
        assert "another program is still receiving" in player.seen()
        await other.close()
        await player.until(lambda: player.chat.answering, "it is followed")
        assert "another program is still receiving" not in player.seen()
        await player.press("alt+up")
        player.screen.notify("anything")
        await player.press("escape")
        await player.until(lambda: not player.chat.answering, "one key has ended it")
        assert not player.toasts and player.screen.query_one("Composer").has_focus


@pytest.mark.slow
async def test_an_answer_that_ends_before_it_is_followed_is_read(player: Player) -> None:
    await player.say(QUESTION)
    chat, whole = player.chat, player.chat.answer
    assert whole is not None
    chat._left = "a stream that is no longer known"
    await chat.pick_up()
    await player.settle()
    assert chat.answer is not None and chat.answer is not whole
    assert (chat.answer.text, chat.answer.status) == (whole.text, "complete")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        (["--session", "none-such"], "localspec: there is no session 'none-such'."),
        (["-c"], "localspec: there is no stored session to continue. Start a chat first:"),
    ],
)
async def test_what_cannot_be_gone_on_with_is_reported_before_the_screen_is_taken(
    home: Path, flags: list[str], shown: str
) -> None:
    async with await connect() as other:
        for each in await other.sessions():
            await other.delete_session(each.session)
    command = ["-m", "localspec", "chat", *flags]
    terminal = pexpect.spawn(sys.executable, command, env=dict(os.environ), timeout=DEADLINE_S)
    terminal.expect_exact(shown)
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 1 and b"\x1b[" not in terminal.before


@pytest.mark.slow
async def test_the_model_of_a_chat_that_is_only_looked_at_is_not_loaded(
    player: Player, other: Client
) -> None:
    small = replace(GREEDY, model="stdlib-1m", draft="none")
    session = (await other.open(options=small).result()).session
    await other.chat(ChatSend(session=session, content=QUESTION)).result()
    async with listing(player, "commonpath") as seen:
        await seen.leave("enter")
    assert player.chat.pairing is None and len(player.chat.said) == 2
    player.put("/rename it")
    await player.settle()
    assert player.chat.pairing is None
    player.put("")
    await player.press("x")
    await player.until(lambda: player.chat.pairing is not None, "it is loaded")
    assert player.chat.pairing is not None and player.chat.pairing.target == "stdlib-1m"
    await player.settle()
