"""Suggestions for the text being typed: a list above it that never takes the focus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from localspec.wording import one_line

WIDEST = 24


class Token(NamedTuple):
    """The part of a line that is being typed, from the column ``start`` to the cursor."""

    start: int
    text: str


class Suggestion(NamedTuple):
    """``text`` takes the token's place; ``label`` and ``help`` are shown."""

    text: str
    label: str = ""
    help: str = ""


class Suggestions(OptionList, can_focus=False):
    """Suggestions for a token; hidden if there are none."""

    DEFAULT_CSS = """
    Suggestions {
        height: auto; max-height: 30vh; border: none; padding: 0 1; display: none; background: $surface;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.token: Token | None = None
        """the token that they complete"""
        self._shown: Sequence[Suggestion] = ()

    def show(self, token: Token | None, suggestions: Sequence[Suggestion], *, eager: bool) -> None:
        """Show these for ``token``; ``eager`` highlights the first."""
        self.token, self._shown = token, suggestions
        self.display = bool(suggestions)
        self.clear_options()
        self.add_options(Option(_line(each)) for each in suggestions)
        if suggestions and eager:
            self.highlighted = 0

    def at(self, index: int) -> Suggestion:
        """The suggestion on this line."""
        return self._shown[index]

    def chosen_for(self, token: Token | None) -> Suggestion | None:
        """The highlighted suggestion; None if ``token`` has changed, or is complete already."""
        if token is None or token != self.token or self.highlighted is None:
            return None
        typed = token.text.strip()
        return None if any(typed == each.text.strip() for each in self._shown) else self.at(self.highlighted)


def _line(each: Suggestion) -> Text:
    label = one_line(each.label or each.text)
    text = Text(label.ljust(WIDEST) if each.help else label)
    return text.append(f" {each.help}", style="dim") if each.help else text
