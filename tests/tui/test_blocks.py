"""Markdown in pieces: however it arrives, the blocks are the same, and no text is lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localspec.tui.blocks import Blocks, MarkdownBlock

PIECES = [
    *("\n", "\n\n", " ", "  ", "    ", "\t", "\r\n", "a", "bc", "-", "- ", "--", "* ", "**", "***", "+ "),
    *("1. ", "2) ", "3", "#", "# ", "=", "===", "---", "> ", "`", "```", "````", "~~~", "~~~\n", "```py\n"),
    *("```\n", "|", "a | b\n", "--|--\n", "[x]: y\n", "[x](y)", "![x](y)", "<b>", "&amp;", "\\"),
    *("é", "e\u0301", "👩\u200d👧"),
]
markdown = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


def blocks_of(*chunks: str) -> list[MarkdownBlock]:
    blocks = Blocks()
    finished = [block for chunk in chunks for block in blocks.append(chunk)]
    return finished + blocks.finish()


@pytest.mark.slow
@given(markdown, st.data())
@example("- a\n--", None)
@example("x\n***b***", None)
@example("1. a\n\n2. b", None)
@example("x\n```a`", None)
@example("x\n#a", None)
@example("```a | b\n--|--\n", None)
@example("~~~\n\n\n~~~\n\na", None)
def test_blocks_do_not_depend_on_how_the_text_comes(text: str, data: st.DataObject | None) -> None:
    whole = blocks_of(text)
    assert blocks_of(*text) == whole
    if data is not None and text:
        cuts = sorted(data.draw(st.sets(st.integers(1, len(text)), max_size=5)))
        assert blocks_of(*(text[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True))) == whole


def said(text: str) -> str:
    return re.sub(r"[^a-zé]", "", text.replace("&amp;", ""))


@given(markdown)
def test_nothing_that_was_said_is_lost(text: str) -> None:
    blocks = blocks_of(text)
    assert said("\n".join(f"{block.language}{block.label}{block.source}" for block in blocks)) == said(text)


def kinds(text: str) -> list[str]:
    """Return the blocks of ``text``: prose by its source, code by its language and source."""
    return [
        f"{'+' * block.joined}{block.source}" if block.kind == "prose" else f"{block.language}:{block.source}"
        for block in blocks_of(text)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\n ", []),
        ("one\ntwo\n\nthree\n", ["one\ntwo", "three"]),
        ("title\n===\ntext", ["title\n===", "text"]),
        ("- a\n- b\n\n- c\n\ntext", ["- a", "+- b\n", "+- c\n", "text"]),
        ("- a\n* b", ["- a", "* b"]),
        ("1. a\n\n2. b", ["1. a\n", "+2. b"]),
        ("- a\n\n  - b\n\n  c", ["- a\n\n  - b\n\n  c"]),
        ("- a\n  ```py\n  x\n\n  y\n  ```\n- b", ["- a\n  ```py\n  x\n\n  y\n  ```", "+- b"]),
        ("```py\nx\n\n\ny\n```\nafter", ["py:x\n\n\ny", "after"]),
        ("```py\nnever closed\n\n", ["py:never closed\n\n"]),
        ("```", [":"]),
        ("~~~~ruby startline=3\n```\n~~~\n~~~~~\n", ["ruby:```\n~~~"]),
        ("  ```\n  x\n    y\n  ```", [":x\n  y"]),
        ("```a`b\n", ["```a`b"]),
        ("a | b\n--|--\n1 | 2\n\nx", ["a | b\n--|--\n1 | 2", "x"]),
        ("[a]: https://a.example\n\n[a]", ["[a]: https://a.example", "[a]"]),
        ("<script>\nx\n</script>", ["<script>\nx\n</script>"]),
        ("one\r\n\r\n```\r\nx\r\n```\r\n", ["one", ":x "]),
    ],
)
def test_blocks(text: str, expected: list[str]) -> None:
    assert [kind.rstrip("\n") for kind in kinds(text)] == [kind.rstrip("\n") for kind in expected]


def test_what_is_open_is_shown() -> None:
    blocks = Blocks()
    assert blocks.open is None
    blocks.append("- one\n\n- tw")
    assert blocks.open == MarkdownBlock("prose", "- tw", joined=True)
    blocks.append("o\n\n```py\nx = 1\n``")
    assert blocks.open == MarkdownBlock("code", "x = 1\n``", "py")
    assert blocks.append("`\n") == [MarkdownBlock("code", "x = 1", "py")]
    assert blocks.open is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["word " * 20_000, "- item\n" * 10_000, "```\n" + "x\n" * 50_000, "> " * 50_000]
)
def test_a_long_text_in_pieces_costs_no_more_than_a_few_parses(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.tui import blocks as module

    parsed = 0
    units = module._units

    def counted(text: str) -> list[module._Unit]:
        nonlocal parsed
        parsed += len(text)
        return units(text)

    monkeypatch.setattr(module, "_units", counted)
    whole = blocks_of(*(line[n : n + 1000] for n in range(0, len(line), 1000)))
    assert whole and parsed < 25 * len(line)
