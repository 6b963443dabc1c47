"""A stream's deltas: any reader, resuming at any place, reads the whole text once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.daemon.relay.deltas import DELTA_BYTES, KEPT_BYTES, MERGED_BYTES, TOKEN_BYTES, Deltas, Merged
from localspec.errors import Gone, InvalidOptions
from localspec.protocol.results import Token


def tokens(text: str) -> tuple[Token, ...]:
    return (Token(1, "target", len(text)),)


class Reader:
    """A client: what is queued for it, and what it has read; losing it loses the queue."""

    def __init__(self, deltas: Deltas, read: list[tuple[int, str]]) -> None:
        self.deltas = deltas
        self.queue: list[Merged] = []
        self.read = read

    def take(self, text: str) -> None:
        if (waiting := self.deltas.open) is None:
            waiting = self.deltas.begin()
            self.queue.append(waiting)
        waiting.add(text, tokens(text))

    def send(self) -> None:
        if self.queue and (delta := self.deltas.number(self.queue.pop(0))) is not None:
            self.read.append((delta.seq, delta.text))

    def send_all(self) -> None:
        while self.queue:
            self.send()


class Story:
    """A stream whose reader comes and goes; a step is a method."""

    def __init__(self) -> None:
        self.deltas = Deltas("first")
        self.said = ""
        self.read: list[tuple[int, str]] = []
        self.reader: Reader | None = Reader(self.deltas, self.read)

    def text(self) -> None:
        text = f"<{len(self.said)}>"
        self.said += text
        if self.reader is None:
            self.deltas.keep(text, tokens(text))
        else:
            self.reader.take(text)

    def send(self) -> None:
        if self.reader is not None:
            self.reader.send()

    def seal(self) -> None:
        self.deltas.seal()

    def lose(self) -> None:
        if self.reader is not None:
            self.reader = None
            self.deltas.settle()

    def resume(self) -> None:
        """Another reader goes on where the last one was, lost or not."""
        older, self.reader = self.reader, Reader(self.deltas, self.read)
        missed = self.deltas.resume("next", self.read[-1][0] if self.read else -1)
        assert {delta.request for delta in missed} <= {"next"}
        self.read += [(delta.seq, delta.text) for delta in missed]
        if older is not None:  # what was queued for it went elsewhere
            before = list(self.read)
            older.send_all()
            assert self.read == before


STEPS = st.lists(st.sampled_from([Story.text, Story.send, Story.seal, Story.lose, Story.resume]), max_size=60)


@given(STEPS)
def test_nothing_is_lost_and_nothing_comes_twice(steps: list[Callable[[Story], None]]) -> None:
    story = Story()
    for step in (*steps, Story.resume, Story.text):
        step(story)
    assert story.reader is not None
    story.reader.send_all()
    assert [seq for seq, _ in story.read] == list(range(len(story.read)))
    assert "".join(text for _, text in story.read) == story.said


def test_text_that_nobody_hears_is_merged_and_numbered_when_it_is_large() -> None:
    deltas = Deltas(1)
    for _ in range(5):
        deltas.keep("x" * (MERGED_BYTES // 2), ())
    found = deltas.resume(2, -1)
    assert [(d.seq, d.request, len(d.text) * 2 // MERGED_BYTES) for d in found] == [
        (0, 2, 2),
        (1, 2, 2),
        (2, 2, 1),
    ]


def test_the_oldest_go_first_and_are_gone() -> None:
    each = 4 + TOKEN_BYTES + DELTA_BYTES
    deltas = Deltas(1, keep=3 * each)
    reader = Reader(deltas, [])
    for _ in range(5):
        reader.take("four")
        reader.send()
    for after in (-1, 0):
        with pytest.raises(Gone, match="no longer kept"):
            deltas.resume(2, after)
    assert [delta.seq for delta in deltas.resume(2, 1)] == [2, 3, 4]
    assert deltas.resume(2, 4) == []
    with pytest.raises(InvalidOptions, match="5 deltas"):
        deltas.resume(2, 5)


def test_what_is_kept_is_bounded_however_much_comes() -> None:
    deltas = Deltas(1)
    for _ in range(100_000):
        deltas.keep("x" * 100, tokens("x" * 100))
    deltas.settle()
    kept = deltas.resume(1, deltas._seq - len(deltas._kept) - 1)
    assert 0 < sum(len(delta.text) for delta in kept) <= KEPT_BYTES


def test_a_refused_resume_changes_nothing_for_who_reads() -> None:
    deltas = Deltas(1)
    reader = Reader(deltas, [])
    reader.take("waits")
    with pytest.raises(InvalidOptions):
        deltas.resume(2, 0)
    reader.send()
    assert reader.read == [(0, "waits")] and deltas.request == 1
