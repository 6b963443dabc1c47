"""Marks in code, found without parsing: line comments by language, quotes and brackets."""

from __future__ import annotations

import re
from pathlib import PurePath

MARKS: dict[str, str] = {
    "#": "python py pyi shellscript sh bash zsh fish ruby rb perl pl r yaml yml toml makefile mk dockerfile "
    "elixir ex exs julia jl nix cmake coffeescript tcl conf ini graphql awk powershell ps1",
    "//": "c h cpp cc cxx hpp hh csharp cs java kotlin kt javascript js jsx mjs cjs javascriptreact "
    "typescript ts tsx typescriptreact go rust rs swift dart scala php zig d objective-c m groovy proto "
    "jsonc less scss solidity sol verilog v",
    "--": "lua sql haskell hs ada adb elm vhdl",
    ";": "lisp clojure clj cljs scheme scm racket rkt emacs-lisp el asm s",
    "%": "latex tex erlang erl prolog matlab",
    '"': "vim viml",
    "!": "fortran f90",
}
BLOCK = re.compile(r"([:{(\[]|=>|\b(then|do|else|begin|repeat))\s*((#|//|--).*)?$")
BY_NAME = {name: mark for mark, names in MARKS.items() for name in names.split()}
PAIRS = {")": "(", "]": "[", "}": "{"}
QUOTES = "\"'`"
QUOTED = re.compile(r"([\"'`])(?:\\.|(?!\1)[^\\\n])*\1")
"""a text in quotes on one line; an unclosed quote is an apostrophe, or a lifetime in Rust"""
QUOTED_THRICE = re.compile(r"(\"{3}|'{3}|`{3}).*?\1", re.DOTALL)
BRACKET = re.compile(rf"{QUOTED.pattern}|[()\[\]{{}}]")


def comment_mark(language: str | None, path: str | None) -> str | None:
    """The mark of a line comment; None if the language is unknown."""
    ending = PurePath(path).suffix.removeprefix(".") if path else ""
    names = (language or "", ending, PurePath(path).name if path else "")
    return next((mark for name in names if (mark := BY_NAME.get(name.lower()))), None)


def in_comment(line: str, mark: str | None) -> bool:
    """Return True if the end of ``line`` is in a line comment; a mark inside quotes does not count."""
    # In Vim script a double quote begins a comment, not a text.
    return mark is not None and mark in QUOTED.sub(lambda text: mark if text[1] == mark else " ", line)


def opens_block(line: str) -> bool:
    """Return True if the next line is usually indented more than ``line``."""
    return BLOCK.search(line) is not None


def loose(text: str) -> tuple[int, frozenset[int]]:
    """Return the number of brackets that ``text`` leaves open, and the offsets of closing ones whose opening
    ones are not in it; quoted ones do not count."""
    open_brackets: list[str] = []
    found = set()
    for mark in BRACKET.finditer(text):
        if mark[0] in PAIRS.values():
            open_brackets.append(mark[0])
        elif mark[0] in PAIRS:
            if open_brackets[-1:] == [PAIRS[mark[0]]]:
                open_brackets.pop()
            else:
                found.add(mark.start())
    return len(open_brackets), frozenset(found)


def is_open(text: str) -> bool:
    outside = QUOTED_THRICE.sub("", text)
    return any(quote * 3 in outside for quote in QUOTES) or loose(outside)[0] > 0


def closes_for_others(text: str, start: int) -> bool:
    """Return True if the wordless text from ``start`` on closes a bracket or quote opened before ``text``."""
    _, closing = loose(text)
    for at in range(start, len(text)):
        if text[at] in PAIRS:
            return at in closing
        if text[at] in QUOTES:
            thrice = text[at] * 3
            return text[:at].count(thrice if text.startswith(thrice, at) else text[at]) % 2 == 0
    return True


def opens(line: str, before: str) -> bool:
    """Return True if the wordless ``line`` behind the text ``before`` opens a bracket, a comment, or a string
    or fence of three quotes."""
    thrice = next((quote * 3 for quote in QUOTES if quote * 3 in line), None)
    if thrice is not None:
        return before.count(thrice) % 2 == 0
    return loose(line)[0] > 0 or "/*" in line or "<!--" in line
