"""Reference of the command line, from the parsers that check it."""

from __future__ import annotations

import re
import sys
from unittest.mock import patch

from localspec.cli.app import app
from localspec.cli.examples import EXAMPLES

HEADING = re.compile(r"^(#+) localspec(?: (.+))?$")
CONTENTS = re.compile(r"^## Table of Contents\n.*?(?=^\*\*Commands)", re.MULTILINE | re.DOTALL)
OF_A_FLAG = re.compile(r"\[(`--[^`]+`)\]\([^)]*\)")
"""a link to a command that is a flag: its heading has another anchor in a repository than in the site"""


def body() -> str:
    """Return every command with its arguments, flags and examples."""
    told = OF_A_FLAG.sub(r"\1", CONTENTS.sub("", _told()))
    sections = re.split(r"^(?=#+ localspec)", told, flags=re.MULTILINE)
    return "\n".join(filter(None, map(_section, sections)))


def _told() -> str:
    """Return the library's own reference; it takes the program's name from the arguments of this process."""
    with patch.object(sys, "argv", ["localspec"]):
        return app.generate_docs(output_format="markdown").replace("```console", "```text")


def _section(text: str) -> str:
    """Return one command's section, one heading level deeper, with its examples."""
    heading, _, rest = text.strip().partition("\n")
    match = HEADING.match(heading)
    if match is None:
        return ""
    command = match[2] or ""
    level = "##" if not command or " " not in command else "###"
    examples = "\n".join(EXAMPLES.get(command, ()))
    shown = f"\nExamples:\n\n```text\n{examples}\n```\n" if examples else ""
    return f"{level} localspec {command}".rstrip() + f"\n{rest.rstrip()}\n{shown}"
