"""The colours of code, and which code gets none."""

from __future__ import annotations

import pytest
from pygments.lexer import Lexer

from localspec.tui.highlighting import LONGEST, LONGEST_LINE, highlighted


@pytest.mark.parametrize(
    ("code", "is_read"),
    [
        ("x = 1\n" * 100, True),
        ("a " * (LONGEST_LINE // 2), True),
        ("x = 1\n" + "a " * LONGEST_LINE + "\n", False),
        ("-" * (LONGEST_LINE + 1), False),
        ("x = 1\n" * LONGEST, False),
        ("", True),
    ],
)
def test_code_with_a_long_line_is_read_by_no_lexer(
    monkeypatch: pytest.MonkeyPatch, code: str, is_read: bool
) -> None:
    read, get_tokens = list[str](), Lexer.get_tokens

    def counted(self: Lexer, text: str) -> object:
        read.append(text)
        return get_tokens(self, text)

    monkeypatch.setattr(Lexer, "get_tokens", counted)
    for language in ("make", "java", "python"):
        assert "".join(text for text, _ in highlighted(code, language, "monokai")) == code
    assert read == [code] * (3 if is_read else 0)
