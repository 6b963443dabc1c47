"""Lines and columns as the protocol counts them."""

from __future__ import annotations

import re
from typing import Literal

Encoding = Literal["utf-8", "utf-16", "utf-32"]

LONE = re.compile(r"(?<=\r)(?!\n)")


def lines_of(text: str) -> list[str]:
    """The lines with their ends, the last one without; unlike Python, only LF, CRLF and CR end a line."""
    *whole, last = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    lines.append(last)
    if "\r" in text:
        return [piece for line in lines for piece in LONE.split(line)]
    return lines


def column(line: str, units: int, encoding: Encoding) -> int:
    """The code points before ``units``; a position inside a character is moved before it, one after the
    line's text to its end."""
    text = line.rstrip("\r\n")
    if encoding == "utf-32" or text.isascii():
        return min(units, len(text))
    at = 0
    for number, character in enumerate(text):
        at += _width(character, encoding)
        if at > units:
            return number
    return len(text)


def units(text: str, encoding: Encoding) -> int:
    """The length of a text in units of ``encoding``."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    return sum(_width(character, encoding) for character in text)


def _width(character: str, encoding: Encoding) -> int:
    point = ord(character)
    if encoding == "utf-16":
        return 1 + (point > 0xFFFF)
    return 1 + (point > 0x7F) + (point > 0x7FF) + (point > 0xFFFF)
