"""A chat from question to answer, on a real daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.tui.conversation import ChatAnswer, ChatQuestion
from tests.tui.harness import playing


@pytest.mark.slow
async def test_a_question_is_answered_and_edited_later(home: Path) -> None:
    async with playing() as player:
        await player.say("What does os.path.join do?")
        question, answer = player.chat.said
        assert isinstance(question, ChatQuestion) and question.id is not None
        assert isinstance(answer, ChatAnswer) and answer.result is not None and answer.id is not None
        assert answer.status == "complete" and answer.text == answer.result.text
        assert any("What does os.path.join do?" in line for line in player.lines())
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
