"""The items sent to the editor, and their fate: shown, accepted, accepted in part, dismissed."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from collections.abc import Callable

from localspec.lsp.documents import Document, Place, column
from localspec.protocol.messages import SuggestionEvent

KEPT = 200
BREAKS = re.compile(r"\r\n?")

Report = Callable[[str, SuggestionEvent, int | None], None]
"""takes an item's id, the event, and the code points of its text that were accepted"""


def normalise_breaks(text: str) -> str:
    """A text with LF line ends: editors insert the file's own, and some would double a CR."""
    return BREAKS.sub("\n", text)


@dataclasses.dataclass
class Suggestion:
    """One item. The editor inserts ``lead``, the selected entry of its menu, and then ``text``."""

    id: str
    text: str
    lead: str
    uri: str
    place: Place
    typed: int = 0
    """code points of ``text`` that the user has typed since it was shown"""

    @property
    def insert_text(self) -> str:
        return self.lead + normalise_breaks(self.text)

    def count_taken(self, units: int) -> int:
        """The code points of ``text`` among the first ``units`` of UTF-16 of the inserted text."""
        # `column` stops at a line's end; here the count goes on behind it.
        whole = self.insert_text.replace("\n", " ")
        taken = normalise_breaks(self.text)[: max(0, column(whole, units, "utf-16") - len(self.lead))]
        return len(taken) + ("\r\n" in self.text) * taken.count("\n")


class EditorSuggestions:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._offered: OrderedDict[str, Suggestion] = OrderedDict()
        self._shown: dict[str, Suggestion] = {}
        """by document URI"""
        self._last = ""

    def offer(self, suggestion: Suggestion) -> None:
        self._offered[suggestion.id] = suggestion
        if len(self._offered) > KEPT:
            self._offered.popitem(last=False)

    def show(self, id: str) -> None:
        suggestion = self._offered.get(id)
        if suggestion is not None and self._shown.get(suggestion.uri) != suggestion:
            self.close(suggestion.uri)
            self._shown[suggestion.uri] = suggestion
            if id != self._last:  # it was shown before a part of it was accepted
                self._report(id, "shown", None)
            self._last = id

    def accept(self, id: str, units: int | None = None) -> None:
        """Report an item, or the first ``units`` of UTF-16 of its inserted text, as shown and accepted."""
        if suggestion := self._offered.get(id):
            self.show(id)
            del self._shown[suggestion.uri]
            suggestion.typed = 0
            if units is None:
                self._report(id, "accepted", None)
            else:
                self._report(id, "partial", suggestion.count_taken(units))

    def move(self, document: Document, place: Place) -> None:
        """Take the cursor's new place; a shown item ends unless the user types along it."""
        shown = self._shown.get(document.uri)
        if shown is None:
            return
        is_behind = shown.place.line < len(document.lines) and shown.place <= place
        typed = document.between(shown.place, place) if is_behind else None
        if typed is not None and shown.text.startswith(typed):
            shown.typed = len(typed)
            return
        if typed is not None and typed.startswith(shown.text):
            shown.typed = len(shown.text)
        self.close(document.uri)

    def close(self, uri: str) -> None:
        """End the item shown in a document: partial if some of it was typed, else dismissed."""
        if shown := self._shown.pop(uri, None):
            self._report(shown.id, "partial" if shown.typed else "dismissed", shown.typed or None)
            shown.typed = 0
