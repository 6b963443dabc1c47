"""Messages as they are shown: an answer that grew looks as one that came at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from localspec.errors import ModelNotFound
from localspec.protocol.requests import Delta, Token
from localspec.tui.conversation import ChatAnswer, ChatQuestion, SourceRun
from localspec.tui.entries import HEAD, LONG, AnswerEntry, Entry, FoldedEntry, entry_of
from tests.tui.showing import LOOK, answered, painter, texts
from tests.tui.test_blocks import markdown


def shown(entry: Entry) -> list[str]:
    return texts(entry.lines)


def painted(answer: ChatAnswer, width: int = 60, *, raw: bool = False) -> AnswerEntry:
    entry = AnswerEntry(answer)
    entry.paint(painter(width, by_source=raw))
    return entry


def grown(chunks: list[str], *, raw: bool = False, sources: str = "target") -> AnswerEntry:
    answer = ChatAnswer(status="streaming", waiting="asking")
    entry = AnswerEntry(answer)
    entry.paint(painter(60, by_source=raw))
    for number, chunk in enumerate(chunks):
        source = ("target", "draft", "memory")[number % 3]
        answer.grow(Delta(chunk, (Token(1, source, len(chunk)),)))
        entry.grow()
    answer.status = "complete"
    entry.grow()
    return entry


LONG_CODE = "  ```py\n" + "  x = 'abc'\n" * (LONG // 8) + "  ```\n- a\n- b"
LONG_PROSE = "one **two** `three` " * (LONG // 12) + "\nfour\n\nfive"


@pytest.mark.slow
@given(st.lists(markdown, max_size=6), st.booleans())
@example(["- a", "\n", LONG_PROSE, "\n", LONG_CODE], False)
@example([LONG_CODE[n : n + 700] for n in range(0, len(LONG_CODE), 700)], False)
@example([LONG_PROSE[n : n + 700] for n in range(0, len(LONG_PROSE), 700)], False)
def test_what_grew_looks_as_what_came_at_once(chunks: list[str], raw: bool) -> None:
    entry = grown(chunks, raw=raw)
    assert [list(line) for line in entry.lines] == [list(line) for line in painted(entry.said, raw=raw).lines]


def test_blocks_stand_apart_and_items_together() -> None:
    text = "Look:\n\n- one\n- two\n\n```py\nx\n```\n\nEnd."
    assert shown(painted(ChatAnswer(text))) == ["Look:", "", " • one", " • two", "", " x", "", "End."]


def test_raw_text_is_coloured_by_its_proposer() -> None:
    runs = [SourceRun("target", 2), SourceRun("draft", 4), SourceRun("unheard-of", 1)]
    answer = ChatAnswer("a**b**c and", runs=runs)
    (line,) = painted(answer, raw=True).lines
    assert [(s.text, s.style and s.style.color) for s in line if s.text.strip()] == [
        ("a*", LOOK.sources["target"].color),
        ("*b**", LOOK.sources["draft"].color),
        ("c and", LOOK.base.color),
    ]


class Counted(list[SourceRun]):
    """Runs that know how often one of them was looked at."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[SourceRun]:
        self.looks += len(self)
        return super().__iter__()


def test_raw_text_that_grows_costs_what_is_new_of_it() -> None:
    answer = ChatAnswer(status="streaming", runs=Counted())
    entry = AnswerEntry(answer)
    entry.paint(painter(60, by_source=True))
    rounds = ("draft", "target"), ("target",), ("target", "memory"), ("memory", "target"), ("draft",)
    for number in range(300):
        sources = rounds[number % len(rounds)]
        answer.grow(Delta("abc " * len(sources), tuple(Token(1, source, 4) for source in sources)))
        entry.grow()
    assert isinstance(answer.runs, Counted) and answer.runs.looks < 10 * len(answer.runs)
    at_once = painted(answer, raw=True)
    assert [[*line.simplify()] for line in entry.lines] == [[*x.simplify()] for x in at_once.lines]


def test_runs_may_reach_beyond_the_text() -> None:
    answer = ChatAnswer("ab", runs=[SourceRun("target", 1), SourceRun("draft", 9)])
    assert shown(painted(answer, raw=True)) == ["ab"]


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (ChatAnswer("x", "cancelled"), ["x", "stopped"]),
        (ChatAnswer("", "complete"), ["the answer is empty"]),
        (ChatAnswer("", "streaming", waiting="asking"), ["asking"]),
        (ChatAnswer("x", "failed", error=ModelNotFound("no\x1b[2J", "Get it.")), ["x", "no�[2J. Get it."]),
    ],
)
def test_how_it_ended_is_shown(answer: ChatAnswer, lines: list[str]) -> None:
    assert shown(painted(answer)) == lines


def test_what_the_model_has_not_read_is_shown() -> None:
    answer = answered("x")
    assert answer.result is not None
    stats = replace(answer.result.stats, truncated_messages=2)
    answer.result = replace(answer.result, stats=stats)
    lines = "the context is full: the prompt is without 2 old messages"
    took = (0.08 + answer.tokens / 212.4) * 1000
    assert shown(painted(answer)) == ["x", lines, f"{took:.0f} ms · 212 tok/s"]


def test_a_question_is_shown_as_it_was_typed() -> None:
    entry = entry_of(ChatQuestion("**a**\n\tb\x1b[31m"))
    entry.paint(painter(40))
    assert shown(entry) == ["**a**", "    b�[31m"]
    assert all(line.text.startswith("▎ ") for line in entry.lines)


def test_a_long_question_is_folded() -> None:
    entry = FoldedEntry(ChatQuestion("\n".join(map(str, range(40)))))
    entry.paint(painter(40))
    assert shown(entry) == [*map(str, range(HEAD)), "… 28 more lines"]


def test_thoughts_are_shown_until_the_answer_begins() -> None:
    answer = ChatAnswer(status="streaming", waiting="asking")
    entry = AnswerEntry(answer)
    entry.paint(painter(60))
    answer.grow(Delta("Hm.", (Token(1, "target", 3),), "thinking"))
    entry.grow()
    assert "Hm." in "".join(line.text for line in entry.lines) and answer.tokens == 1 and not answer.runs
    answer.grow(Delta("Yes", (Token(1, "target", 3),)))
    entry.grow()
    assert answer.text == "Yes" and "Hm." not in "".join(line.text for line in entry.lines)
