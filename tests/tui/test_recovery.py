"""The daemon or the connection to it is lost: messages are not."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from localspec.client import connect
from localspec.client.discovery import find
from tests.client.conftest import own_home
from tests.daemon.harness import DaemonProcess
from tests.tui.harness import ENDLESS, GREEDY, playing
from tests.waiting import run, until

QUESTION = "What does textwrap.dedent do?"


def kill_the_daemon() -> None:
    found = find()
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_connection_that_is_cut_is_made_again_and_the_answer_goes_on(tmp_path: Path) -> None:
    fifo = tmp_path / "lines"
    os.mkfifo(fifo)

    async def test() -> None:
        async with playing() as player:
            await player.write(f"lines {fifo}")
            await player.press("enter")
            with await asyncio.to_thread(fifo.open, "w") as lines:
                print("one", file=lines, flush=True)
                await player.until(
                    lambda: player.chat.answer is not None and player.chat.answer.text == "one", "it is begun"
                )
                answer = player.chat.answer
                assert answer is not None and answer.growing
                client = await player.app.link.client()
                client._wire._socket.transport.abort()  # type: ignore[attr-defined]
                print("two", file=lines, flush=True)
            await player.until(lambda: not answer.growing, "it has ended")
            assert (answer.status, answer.text) == ("complete", "onetwo")
            assert sum(run.chars for run in answer.runs) == len(answer.text)

    with own_home() as path:
        daemon = DaemonProcess(path)
        run(test())
        assert daemon.stop() == 0


@pytest.mark.slow
async def test_a_daemon_that_is_killed_takes_no_text_along(home: Path) -> None:
    async with playing(ENDLESS) as player:
        answer = await player.ask_on(QUESTION)
        await until(lambda: answer.tokens > 20, "it goes on")  # not the player's: that waits for a pause, too
        kill_the_daemon()
        await player.until(lambda: not answer.growing, "the loss is noticed")
        await player.settle()
        assert answer.status == "failed" and answer.tokens > 20
        assert "the daemon ended during the answer" in player.seen()
        await player.chat.configure(GREEDY)
        await player.press("ctrl+r")
        await player.answered(answer)
        assert player.chat.answer is not None and player.chat.answer.status == "complete"
        assert [said.id for said in player.chat.said] != [None, None]
        assert len(player.chat.said) == 2


@pytest.mark.slow
async def test_a_daemon_that_ended_between_two_questions_is_started_again(home: Path) -> None:
    async with playing() as player:
        await player.say(QUESTION)
        kill_the_daemon()
        await player.until(lambda: "no connection to the daemon" in player.seen(), "it is shown")
        await player.say("And inspect.cleandoc?")
        assert len(player.chat.said) == 4 and player.chat.answer is not None
        assert player.chat.answer.status == "complete" and "no connection" not in player.seen()
        session = player.chat.session
    assert session is not None
    async with await connect() as client:
        assert len((await client.session(session)).messages) == 4
