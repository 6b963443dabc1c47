"""Reference of the command line, from the parsers that check it."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from unittest.mock import patch

from cyclopts import App

from localspec.cli.app import app

HEADING = re.compile(r"^(#+) localspec(?: (.+))?$")
CONTENTS = re.compile(r"^## Table of Contents\n.*?(?=^\*\*Commands)", re.MULTILINE | re.DOTALL)
OF_A_FLAG = re.compile(r"\[(`--[^`]+`)\]\([^)]*\)")
"""a link to a command that is a flag: its heading has another anchor in a repository than in the site"""


def body() -> str:
    """Return every command with its arguments, flags and examples."""
    reference = OF_A_FLAG.sub(r"\1", CONTENTS.sub("", _reference()))
    sections = re.split(r"^(?=#+ localspec)", reference, flags=re.MULTILINE)
    return "\n".join(filter(None, map(_section, sections)))


def _reference() -> str:
    """Return the library's own reference, without what it adds to ``--help``.

    It takes the program's name from the arguments of this process, and does not hand a command's defaults for
    parameters (no negative flags, no default values) on to the commands below, as parsing and ``--help`` do.
    """
    with ExitStack() as held:
        held.enter_context(patch.object(sys, "argv", ["localspec"]))
        for name in app:
            if not name.startswith("-"):
                held.enter_context(patch.object(app[name], "default_parameter", app.default_parameter))
        return app.generate_docs(output_format="markdown").replace("```console", "```text")


def _section(text: str) -> str:
    """Return one command's section, one heading level deeper, with its examples."""
    heading, _, rest = text.strip().partition("\n")
    match = HEADING.match(heading)
    if match is None:
        return ""
    command = match[2] or ""
    level = "##" if " " not in command else "###"
    # The library names a command twice whose arguments are positional.
    rest = rest.replace(f"localspec {command} {command} ", f"localspec {command} ", 1)
    return f"{level} localspec {command}".rstrip() + f"\n{rest.rstrip()}\n\n{_epilogue(command)}\n"


def _epilogue(command: str) -> str:
    """Return the end of a command's help, with its examples as code."""
    text, found, examples = (_named(command).help_epilogue or "").partition("Examples:\n")
    lines = "\n".join(line.strip() for line in examples.splitlines())
    return f"{text.strip()}\n" + (f"\nExamples:\n\n```text\n{lines}\n```\n" if found else "")


def _named(command: str) -> App:
    found = app
    for name in command.split():
        found = found[name]
    return found
