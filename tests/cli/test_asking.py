"""Questions, and what is an answer."""

from __future__ import annotations

import io
import sys

import pytest

from localspec.cli import asking


@pytest.mark.parametrize(
    ("said", "otherwise", "agrees", "asked"),
    [
        ("y\n", False, True, 1),
        (" YES \n", False, True, 1),
        ("n\n", True, False, 1),
        ("\n", False, False, 1),
        ("\n", True, True, 1),
        ("", True, False, 1),
        ("maybe\nyes?\nyes\n", False, True, 3),
        ("maybe\n", True, False, 2),
        ("maybe\n\n", True, True, 2),
    ],
)
def test_what_is_neither_yes_nor_no_is_asked_again(
    said: str,
    otherwise: bool,
    agrees: bool,
    asked: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(said))
    assert asking.agrees("Is it?", otherwise=otherwise) is agrees
    told = capsys.readouterr()
    assert told.err.count(f"Is it? [{'Y/n' if otherwise else 'y/N'}]") == asked and not told.out
