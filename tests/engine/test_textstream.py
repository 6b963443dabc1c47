"""Only what is certain is shown: whole code points, nothing of a stop string."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.completion.gap import Gap
from localspec.completion.stopping import StopRule
from localspec.engine.textstream import TextStream
from localspec.protocol.requests import Tool
from localspec.tools.families import HERMES, Form


def stream(
    pieces: list[bytes], *, stop: tuple[str, ...] = (), form: Form | None = None
) -> tuple[TextStream, list[str], bool]:
    """Push the pieces as tokens 0, 1, …; gives the stream, the chunks' texts and whether it stopped."""
    text = TextStream(stop, form=form)
    chunks: list[str] = []
    for token, piece in enumerate(pieces):
        stopped = text.push(token, piece, "target")
        if chunk := text.take():
            chunks.append(chunk.text)
        if stopped:
            return text, chunks, True
    stopped = text.flush()
    if chunk := text.take():
        chunks.append(chunk.text)
    return text, chunks, stopped


def test_text_comes_at_once_without_stop_strings() -> None:
    assert stream([b"a", b"bc", b"d"])[1] == ["a", "bc", "d"]


def test_a_character_split_over_tokens_waits_for_its_last_byte() -> None:
    smile = "🙂".encode()
    text = TextStream()
    chunks = []
    for token, piece in enumerate([b"x" + smile[:1], smile[1:3], smile[3:] + b"y"]):
        text.push(token, piece, "target")
        chunk = text.take()
        assert chunk is not None
        chunks.append((chunk.text, [t.chars for t in chunk.tokens]))
    assert chunks == [("x", [1]), ("", [0]), ("🙂y", [2])]


def test_bytes_that_are_no_text_become_one_replacement_character_each() -> None:
    assert "".join(stream([b"a\xff", b"b"])[1]) == "a\ufffdb"


def test_an_unfinished_character_at_the_end_is_dropped() -> None:
    assert stream(["é".encode()[:1]])[0].text == ""


def test_a_stop_string_over_three_tokens_is_never_shown() -> None:
    text, chunks, stopped = stream([b"one", b" #", b"##", b"# two"], stop=("####",))
    assert stopped and text.text == "one " and chunks == ["one", " "]


def test_what_only_looked_like_a_stop_string_is_shown_later() -> None:
    _, chunks, stopped = stream([b"a", b"##", b"b"], stop=("###",))
    assert not stopped and chunks == ["a", "##b"]


@pytest.mark.parametrize("form", [None, Form(HERMES, (Tool("now"),), ("<think>", "</think>"))])
@given(
    text=st.text(alphabet="ab#é🙂", max_size=40),
    cuts=st.lists(st.integers(1, 6), max_size=40),
    stop=st.lists(st.text(alphabet="ab#", min_size=1, max_size=4), max_size=3),
)
def test_however_it_is_cut_into_tokens_the_text_is_the_same(
    form: Form | None, text: str, cuts: list[int], stop: list[str]
) -> None:
    before = "" if form is None else f"<think>{text}</think>\n"
    data, pieces, at = (before + text).encode(), [], 0
    for cut in (*cuts, len(data) + 1):
        pieces.append(data[at : at + cut])
        at += cut
    found = [(text.find(s) + len(s), text.find(s)) for s in stop if s in text]
    expected = before + (text[: min(found)[1]] if found else text)
    streamed, chunks, stopped = stream([piece for piece in pieces if piece], stop=tuple(stop), form=form)
    assert streamed.text == "".join(chunks) == expected
    assert stopped == bool(found)


@given(
    pieces=st.lists(st.binary(max_size=5), max_size=20), stop=st.lists(st.text("ab", min_size=1), max_size=2)
)
def test_chars_always_add_up_to_the_text(pieces: list[bytes], stop: list[str]) -> None:
    text = TextStream(tuple(stop))
    for token, piece in enumerate(pieces):
        stopped = text.push(token, piece, "target")
        chunk = text.take()
        if chunk is not None:
            assert sum(t.chars for t in chunk.tokens) == len(chunk.text)
        if stopped:
            break


def test_a_rule_holds_all_back_until_it_ends_the_text() -> None:
    text = TextStream(rule=StopRule(Gap("def f():\n    ", "")))
    pieces = [b"a = ", "🙂".encode()[:2], "🙂".encode()[2:], b"\n", b"\nb"]
    stopped = []
    for token, piece in enumerate(pieces):
        stopped.append(text.push(token, piece, "target"))
        assert text.take() is None or stopped[-1]
    assert stopped == [False] * 4 + [True]
    assert text.text == "a = 🙂"


def test_a_text_that_the_rule_did_not_end_is_there_at_the_end() -> None:
    text = TextStream(rule=StopRule(Gap("x = ", "")))
    assert not text.push(0, b"1 + ", "target")
    text.flush()
    chunk = text.take()
    assert chunk is not None and chunk.text == "1 + "


@pytest.mark.parametrize(
    ("pieces", "shown"), [([b"a#", b"b\n"], "a"), ([b"a\n", b"#"], "a"), ([b"b\n#"], "b")]
)
def test_a_stop_string_and_a_rule(pieces: list[bytes], shown: str) -> None:
    text = TextStream(("#",), StopRule(Gap("f(", ")")))
    for token, piece in enumerate(pieces):
        if text.push(token, piece, "target"):
            break
    text.take()
    assert text.text == shown
