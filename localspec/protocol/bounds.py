"""The base of all parameters of the wire's methods, and its longest texts.

Prompts, contents and files' texts are bounded by the frame alone.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

LONGEST_PATH = 4096
ENDING = 4
"""a shortened text keeps one part in so many for its end"""

Name = Annotated[str, Meta(max_length=LONGEST_PATH)]
"""a model: its name, or a path"""
FilePath = Annotated[str, Meta(max_length=LONGEST_PATH)]
"""a file as an editor names it; it need not exist"""
Place = Annotated[str, Meta(min_length=1, max_length=LONGEST_PATH, pattern=r"^[^\x00]*$")]
"""a path on this disk"""
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Language = Annotated[str, Meta(max_length=100)]
"""an editor's name of a language"""
Identity = Annotated[str, Meta(max_length=128)]
"""the id of a session, an item or a stream"""


class Params(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all parameters: an unknown field is an error."""


def shortened(text: str, longest: int) -> str:
    """The text, or its beginning and its end where it is longer than ``longest`` characters."""
    if len(text) <= longest:
        return text
    end = longest // ENDING
    return f"{text[: longest - end - 1]}…{text[len(text) - end :]}"
