"""Answers in words from the results of calls."""

from __future__ import annotations

import re

import pytest

from localspec.protocol.options import Options
from localspec.protocol.requests import Message, ToolCall
from localspec.tools.words import WORDS, ask_in_words, is_written_call, limit_to_words, may_be_json


@pytest.mark.parametrize(
    ("text", "is_call"),
    [
        ('{"name": "notes.txt", "arguments": {}}', True),
        ('```json\n{"name": "x", "parameters": {}}\n```\n', True),
        ('{"name": "kite", "version": "3"}', False),
        ('{"name": "x", "arguments": "none"}', False),
        ('{"version": "3"}', False),
        ('Call {"name": "x", "arguments": {}}', False),
        ("[" * 100_000, False),
        ("", False),
    ],
)
def test_a_text_that_is_a_call(text: str, is_call: bool) -> None:
    assert is_written_call(text) == is_call


def test_the_last_question_is_asked_again_with_what_was_returned() -> None:
    call = ToolCall("1", "add", '{"a": 1}')
    earlier = (Message("user", "Hi"), Message("assistant", "Ho", (call,)), Message("tool", "2", (), "1"))
    turn = (Message("user", "Sum?"), Message("assistant", "", (call,)), Message("tool", "3", (), "1"))
    asked = ask_in_words([Message("system", "Be kind."), *earlier, *turn])
    assert [each.role for each in asked] == ["system", "user", "assistant", "user"]
    assert not any(each.tool_calls for each in asked)
    question = asked[-1].content
    assert question.startswith("Sum?") and 'add {"a": 1} returned:\n3' in question and "2" not in question


def test_a_form_of_the_user_stays() -> None:
    assert may_be_json("As JSON, please", Options()) and not may_be_json("As a list", Options())
    assert limit_to_words(Options(seed=1)) == Options(seed=1, regex=WORDS)
    assert limit_to_words(Options(choice=("a",))) == Options(choice=("a",))
    python = WORDS.replace(r"[\p{L}\p{N}]", r"\w")
    assert [text for text in ("Ja, 3.", "{}", "a {", "```") if re.fullmatch(python, text)] == ["Ja, 3."]
