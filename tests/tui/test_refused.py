"""Turns that the daemon refuses: the screen shows the messages that it has, and no text is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from localspec.client import connect
from localspec.errors import Gone, ModelError, ModelNotFound, SessionNotFound
from localspec.protocol.options import Options
from localspec.tui.chat import Chat, Tools
from localspec.tui.conversation import ChatAnswer, ChatQuestion
from localspec.tui.facts import Working
from localspec.tui.link import DaemonLink
from tests.models.ggufs import DRAFT
from tests.tui.harness import GREEDY, Player

QUESTION = "What does os.path.join do?"
NO_MODEL = replace(GREEDY, model="no-such-model", draft=None)


@asynccontextmanager
async def chatting(options: Options = GREEDY, report: Callable[[Any], Any] = id) -> AsyncIterator[Chat]:
    """A chat without a screen."""
    link = DaemonLink(report)
    yield Chat(link, lambda chat, fact: report(fact), options, Tools(AsyncMock(return_value="no")))
    await link.close()


@pytest.fixture
def chat(home: Path) -> AbstractAsyncContextManager[Chat]:
    return chatting()


async def stored(chat: Chat) -> list[str]:
    assert chat.session is not None
    async with await connect() as client:
        return [message.content for message in (await client.session(chat.session)).messages]


async def test_a_question_that_is_not_taken_is_not_seen(home: Path) -> None:
    async with chatting(NO_MODEL) as chat:
        with pytest.raises(ModelNotFound):
            await chat.send(QUESTION)
        assert chat.said == [] and chat.session is None


@pytest.mark.slow
async def test_an_edit_or_another_answer_that_is_refused_leaves_all_as_it_was(chat: Chat) -> None:
    await chat.send(QUESTION)
    await chat.send("And os.path.split?")
    before = list(chat.said)
    first = before[0]
    assert isinstance(first, ChatQuestion) and chat.session is not None
    async with await connect() as client:
        await client.delete_session(chat.session)
    with pytest.raises(SessionNotFound):
        await chat.edit(first, "Something else")
    assert chat.said == before
    with pytest.raises(SessionNotFound):
        await chat.regenerate(first)
    assert chat.said == before


@pytest.mark.slow
async def test_an_edit_whose_model_is_gone_is_stored_as_the_daemon_has_it(home: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(DRAFT.read_bytes())
    async with chatting(replace(GREEDY, model=str(model), draft="none")) as chat:
        await chat.send(QUESTION)
        question = chat.said[0]
        assert isinstance(question, ChatQuestion)
        async with await connect() as client:
            await client.unload()
        model.rename(tmp_path / "away")
        await chat.edit(question, "Something else")
        assert [said.text for said in chat.said] == ["Something else", ""] == await stored(chat)
        assert isinstance(chat.said[1], ChatAnswer) and isinstance(chat.said[1].error, ModelError)
        (tmp_path / "away").rename(model)
        await chat.regenerate()
        assert [said.text for said in chat.said] == await stored(chat) and chat.said[1].text


async def test_an_id_that_could_not_be_read_is_read_before_another_answer(chat: Chat) -> None:
    await chat.send(QUESTION)
    for said in chat.said:
        said.id = None
    await chat.regenerate()
    assert len(chat.said) == 2 and [said.text for said in chat.said] == await stored(chat)


async def test_a_message_that_is_gone_is_said_to_be(chat: Chat) -> None:
    await chat.send(QUESTION)
    old = chat.said[0]
    assert isinstance(old, ChatQuestion)
    await chat.edit(old, "And os.path.split?")
    for turn in (chat.edit(old, "x"), chat.regenerate(old)):
        with pytest.raises(Gone, match="no longer in this chat"):
            await turn


async def test_what_is_stopped_before_it_began_was_not_said(chat: Chat) -> None:
    turn = asyncio.create_task(chat.send(QUESTION))
    await asyncio.sleep(0)  # it has begun, and knows of no connection yet
    assert chat.answering
    chat.stop()
    with pytest.raises(Gone):
        await turn
    assert chat.said == []
    await chat.send(QUESTION)
    assert isinstance(chat.said[1], ChatAnswer) and chat.said[1].status == "complete"


@pytest.mark.slow
async def test_options_that_are_set_at_once_are_all_set(chat: Chat) -> None:
    slow = chat.configure(replace(chat.options, model="stdlib-1m", draft="none"))
    quick = chat.configure(replace(chat.options, temperature=0.5))
    await asyncio.gather(slow, quick)
    assert (chat.options.model, chat.options.temperature) == ("stdlib-1m", 0.5)
    assert chat.pairing is not None and chat.pairing.target == "stdlib-1m"


async def test_a_new_chat_is_set_as_the_one_before(player: Player) -> None:
    await player.do("/set temperature 0.25")
    before = player.chat
    await player.press("ctrl+n")
    await player.settle()
    assert player.chat is not before and player.chat.options.temperature == 0.25


async def test_a_question_waits_for_the_model_that_was_chosen_before(home: Path) -> None:
    reported: list[Any] = []
    async with chatting(report=reported.append) as chat:
        await chat.send(QUESTION)
        reported.clear()
        choosing = asyncio.create_task(chat.configure(replace(GREEDY, model="stdlib-1m", draft=None)))
        await asyncio.sleep(0)
        assert reported == [Working("loading stdlib-1m", None)]
        await chat.send(QUESTION)
        assert Working("waiting for the chosen model", None) in reported
        await choosing
        assert chat.answer is not None and chat.answer.result is not None
        assert chat.answer.model == chat.answer.result.model == "stdlib-1m"
