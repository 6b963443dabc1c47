"""The outcome of an item, from the editor's messages and the cursor's movements."""

from __future__ import annotations

import pytest

from localspec.lsp.documents import Document, Place
from localspec.lsp.suggestions import KEPT, EditorSuggestions, Suggestion

URI = "file:///a.py"


class Log:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, int | None]] = []
        self.suggestions = EditorSuggestions(lambda *event: self.events.append(event))

    def offer(self, text: str, *, id: str = "1", lead: str = "", place: tuple[int, int] = (0, 0)) -> None:
        self.suggestions.offer(Suggestion(id, text, lead, URI, Place(*place)))


@pytest.mark.parametrize(
    ("text", "lead", "units", "chars"),
    [
        ("abc", "", 2, 2),
        ("😋b", "", 1, 0),
        ("😋b", "", 2, 1),
        ("e\N{COMBINING ACUTE ACCENT}x", "", 2, 2),
        ("a\nb", "", 3, 3),
        # The editor inserts LF, the file and so the daemon's text has CRLF.
        ("a\r\nb\r\nc", "", 4, 6),
        ("a\r\nb\r\nc", "", 2, 3),
        ("tail", "😋he", 4, 0),
        ("tail", "😋he", 6, 2),
    ],
)
def test_a_part_is_counted_in_code_points_of_the_daemons_text(
    text: str, lead: str, units: int, chars: int
) -> None:
    log = Log()
    log.offer(text, lead=lead)
    log.suggestions.accept("1", units)
    assert log.events == [("1", "shown", None), ("1", "partial", chars)]


def test_an_item_accepted_in_parts_was_shown_once() -> None:
    log = Log()
    log.offer("abc")
    for units in (1, 2):
        log.suggestions.accept("1", units)
    log.suggestions.accept("1")
    log.suggestions.move(Document(URI, "", "else"), Place(0, 2))
    events = [("shown", None), ("partial", 1), ("partial", 2), ("accepted", None)]
    assert log.events == [("1", *event) for event in events]


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\rb"])
def test_lines_end_as_editors_want_them(text: str) -> None:
    assert Suggestion("1", text, "-", URI, Place(0, 0)).insert_text == "-a\nb"


@pytest.mark.parametrize(
    ("text", "place", "gone"),
    [
        ("x = ab", (0, 4), False),  # asked again where it was
        ("x = ax", (0, 6), True),  # typed otherwise
        ("x = ab", (0, 3), True),  # went back
        ("", (0, 0), True),  # all was taken away
    ],
)
def test_what_is_not_typed_along_was_not_wanted(text: str, place: tuple[int, int], gone: bool) -> None:
    log = Log()
    log.offer("abc\nd", place=(0, 4))
    log.suggestions.show("1")
    log.suggestions.move(Document(URI, "", text), Place(*place))
    assert log.events[1:] == [("1", "dismissed", None)] * gone


@pytest.mark.parametrize(
    ("typed", "then", "chars"),
    [("a", "x", 1), ("abc\n", "d!", 5), ("a", "", 1)],
)
def test_what_was_typed_along_counts_as_taken_when_it_is_left(typed: str, then: str, chars: int) -> None:
    log = Log()
    log.offer("abc\nd", place=(0, 4))
    log.suggestions.show("1")

    def go(text: str) -> None:
        lines = text.split("\n")
        log.suggestions.move(Document(URI, "", text), Place(len(lines) - 1, len(lines[-1])))

    go(f"x = {typed}")
    assert log.events == [("1", "shown", None)]
    if then:
        go(f"x = {typed}{then}")
    else:
        log.suggestions.close(URI)
    assert log.events[1:] == [("1", "partial", chars)]


def test_another_item_takes_the_place_of_the_one_that_is_shown() -> None:
    log = Log()
    for id in ("1", "2"):
        log.offer("abc", id=id)
        log.suggestions.show(id)
        log.suggestions.show(id)
    assert log.events == [("1", "shown", None), ("1", "dismissed", None), ("2", "shown", None)]


def test_what_is_long_gone_or_was_never_shown_or_offered_is_not_reported() -> None:
    log = Log()
    for number in range(KEPT + 1):
        log.offer("x", id=str(number))
    log.suggestions.move(Document(URI, "", "y"), Place(0, 1))
    log.suggestions.close(URI)
    log.suggestions.show("0")
    log.suggestions.accept("no", 1)
    assert log.events == []
