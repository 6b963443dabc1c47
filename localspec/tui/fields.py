"""The options of a chat as typed texts, one for each."""

from __future__ import annotations

import json
import os
from typing import Any

from localspec.config import Setting, find, load_config
from localspec.errors import InvalidOptions
from localspec.protocol.options import Options, unknown_key

LIST = 'Write a list, as in ["one", "two"].'


def field(name: str) -> Setting:
    """An option; raises :class:`InvalidOptions` with the nearest name."""
    if name not in Options.__struct_fields__:
        known = Options.__struct_fields__
        raise InvalidOptions(unknown_key("option", name, known), "Type a space after /set: it lists them.")
    return find(f"options.{name}")


def value_of(name: str, text: str) -> Any:
    """The value of a text, None for a blank one; raises :class:`InvalidOptions` with the values it takes."""
    option, text = field(name), text.strip()
    if not text:
        return None
    try:
        value = option.parse(text)
    except InvalidOptions as error:
        remedy = LIST if option.takes.startswith("a list") else sentence(option.meaning)
        raise InvalidOptions(error.message.removeprefix("options."), remedy) from None
    return os.path.abspath(os.path.expanduser(value)) if name == "workspace" else value


def text_of(value: Any) -> str:
    """A value as :func:`value_of` reads it."""
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | tuple) else str(value)


def sentence(meaning: str) -> str:
    """A setting's meaning as a sentence."""
    return f"{meaning[:1].upper()}{meaning[1:]}."


def held(options: Options) -> Options:
    """The configuration's options for this model; reads the disk."""
    from localspec.models.sections import Sections

    return Sections(load_config()).merged(Options(model=options.model))
