"""A completion's end does not depend on the pieces in which its text arrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.completion.gap import Gap
from localspec.completion.stopping import StopRule

CODE = st.text(alphabet="ab \n\t}🙂", max_size=80)


def cut(gap: Gap, *pieces: str) -> int | None:
    rule = StopRule(gap)
    for piece in pieces:
        if (end := rule.feed(piece)) is not None:
            return end
    return None


def test_it_ends_with_the_first_character_that_is_indented_less() -> None:
    gap = Gap("def f():\n    ", "")
    assert cut(gap, "a = 1\n", "\n", "  ") is None
    assert cut(gap, "a = 1\n", "\n", "  ", "b") == len("a = 1")


def test_a_single_line_ends_at_its_newline() -> None:
    assert cut(Gap("f(", ")"), "a, b", "  \nc") == len("a, b")
    assert cut(Gap("f(", "", multiline=False), "\n") == 0


def test_a_line_that_the_file_has_next_is_not_generated_twice() -> None:
    gap = Gap("a\n", "\n  c = 3\nd")
    assert cut(gap, "b\n", "  c = 3\n") == 1
    assert cut(gap, "  c = 3\n") is None, "that the first line is a repetition, finishing finds"


def test_the_end_of_a_text_that_the_file_has_next_is_not_generated_twice() -> None:
    gap = Gap('SQL = """\nSELECT *\n', '\n"""\n')
    assert cut(gap, "FROM t\n", '"""\n') == len("FROM t")
    assert cut(gap, 'FROM t"""\n', 'TWO = """\n') is None


def test_only_brackets_are_no_repetition() -> None:
    assert cut(Gap("", ""), "}\n" * 12) is None


@given(text=CODE, prefix=CODE, suffix=CODE, cuts=st.lists(st.integers(0, 80), max_size=6))
def test_however_it_is_cut_into_pieces(text: str, prefix: str, suffix: str, cuts: list[int]) -> None:
    gap = Gap(prefix, suffix)
    edges = [0, *sorted(min(c, len(text)) for c in cuts), len(text)]
    pieces = [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    whole = cut(gap, text)
    assert cut(gap, *pieces) == whole
    assert whole is None or 0 <= whole <= len(text)
