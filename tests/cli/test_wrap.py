"""Lines of an answer on a terminal end between words."""

from __future__ import annotations

import sys

import pexpect
import pytest

from localspec.cli.printer import Printer
from localspec.cli.wrap import Lines
from localspec.protocol.requests import Delta
from tests.waiting import DEADLINE_S


@pytest.mark.parametrize("step", [1, 2, 3, 99])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Hello out there.", "Hello out\nthere."),
        ("1234567890 2 4 67890\nfoo bar bazz", "1234567890\n2 4 67890\nfoo bar\nbazz"),
        ("12345 7890 \n\n- foo", "12345 7890\n\n- foo"),
        ("see https://a.example/b for it", "see\nhttps://a.example/b\nfor it"),
        (
            "```py\nx = call(one, two)\n```\nHello out there.",
            "```py\nx = call(one, two)\n```\nHello out\nthere.",
        ),
        ("    y = call(one, two)\nHello out there.", "    y = call(one, two)\nHello out\nthere."),
        ("a\tb cdef ghij klm", "a\tb cdef ghij klm"),
        ("ab 世界 x yz foo", "ab 世界 x\nyz foo"),
        ("世界世界世界 ab cde", "世界世界世界 ab cde"),
        ("cafe\u0301 cafe\u0301 12", "cafe\u0301 cafe\u0301\n12"),
    ],
)
def test_a_line_ends_between_words(text: str, shown: str, step: int) -> None:
    lines, unknown = Lines(lambda: 10), Lines(lambda: 0)
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    assert "".join(map(lines.add, pieces)) + lines.end() == shown
    assert "".join(map(unknown.add, pieces)) + unknown.end() == text


def test_one_word_is_held_at_most() -> None:
    lines = Lines(lambda: 10)
    pieces = ("He", "llo", " ou", "t th", "ere. ", "世", "abcdefghijk")
    assert [lines.add(each) for each in pieces] == ["", "", "Hello", " out\nt", "here.", " 世", "ab"]
    assert lines.end() == "cdefghijk"


@pytest.mark.parametrize("piece", ["\nx", "\tx", "x"])
def test_a_window_may_become_narrower(piece: str) -> None:
    widths = [80]
    lines = Lines(lambda: widths[-1])
    assert lines.add("word 世") == "word 世"
    widths.append(4)
    assert lines.add(piece) + lines.end() == piece


PRINT = """
from localspec.cli.printer import Printer
from localspec.protocol.requests import Delta
printer = Printer(prose=True)
for text in ("Hello \\x1b[1mout", " there, all of ", "you"):
    printer.delta(Delta(text, ()))
printer.degraded("a", "b", "c")
printer.delta(Delta(" there.", ()))
printer.close()
"""


def test_prose_is_broken_on_a_terminal_alone(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = pexpect.spawn(sys.executable, ["-c", PRINT], timeout=DEADLINE_S, dimensions=(24, 16))
    terminal.expect(pexpect.EOF)
    first, second, third, *_ = terminal.before.decode().split("\r\n")
    assert (first, second) == ("Hello �[1mout", "there, all of") and third == "you"
    printer = Printer(prose=True)
    printer.delta(Delta("Hello \x1b[1mout there, all of ", ()))
    assert capsys.readouterr().out == "Hello \x1b[1mout there, all of "
