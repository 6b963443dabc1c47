"""The marks of line comments, by language or by the ending of a file's name."""

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
"""marks, with the names of their languages in editors and file endings"""
BLOCK = re.compile(r"([:{(\[]|=>|\b(then|do|else|begin|repeat))\s*((#|//|--).*)?$")
"""the end of a line that opens a block or a bracket"""
BY_NAME = {name: mark for mark, names in MARKS.items() for name in names.split()}


def comment_mark(language: str | None, path: str | None) -> str | None:
    """The mark of a line comment; None if the language is unknown."""
    ending = PurePath(path).suffix.removeprefix(".") if path else ""
    names = (language or "", ending, PurePath(path).name if path else "")
    return next((mark for name in names if (mark := BY_NAME.get(name.lower()))), None)


def in_comment(line: str, mark: str | None) -> bool:
    """Return True if the end of ``line`` is in a line comment; a mark inside quotes does not count."""
    at = 0
    while mark is not None and at < len(line):
        if line.startswith(mark, at):
            return True
        if line[at] in "\"'`":
            # An unclosed quote is an apostrophe, or a lifetime in Rust.
            at = max(at, closing_quote(line, at))
        at += 1
    return False


def opens_block(line: str) -> bool:
    """Return True if the next line is usually indented more than ``line``."""
    return BLOCK.search(line) is not None


def closing_quote(line: str, start: int) -> int:
    """The offset at which the quote at ``start`` is closed; -1 if it is not."""
    at = start + 1
    while at < len(line):
        if line[at] == "\\":
            at += 1
        elif line[at] == line[start]:
            return at
        at += 1
    return -1
