"""What was answered to the editor, and what became of it."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from collections.abc import Callable

from localspec.lsp.documents import Document, Place
from localspec.lsp.text import Encoding, column
from localspec.protocol.messages import SuggestionEvent

KEPT = 200
BREAKS = re.compile(r"\r\n?")

Tell = Callable[[str, SuggestionEvent, int | None], None]
"""takes an item's id, what became of it, and how many code points of its text were taken"""


def inserted(text: str) -> str:
    """A text as editors insert it: they end lines as the file does, and some double what is there already."""
    return BREAKS.sub("\n", text)


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """One item. The editor inserts ``lead``, which stands in its menu already, and the ``text``."""

    id: str
    text: str
    lead: str
    uri: str
    place: Place

    @property
    def insert_text(self) -> str:
        return self.lead + inserted(self.text)

    def taken(self, units: int, encoding: Encoding) -> int:
        """How many code points of ``text`` the first ``units`` of what is inserted are."""
        # A text has no line's end for the protocol's columns; here it goes on behind it.
        whole = self.insert_text.replace("\n", " ")
        taken = inserted(self.text)[: max(0, column(whole, units, encoding) - len(self.lead))]
        return len(taken) + ("\r\n" in self.text) * taken.count("\n")


class Suggestions:
    """Those of late, by their ids; ``tell`` hears what became of one."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._offered: OrderedDict[str, Suggestion] = OrderedDict()
        self._shown: dict[str, Suggestion] = {}
        """by the text that it is shown in"""
        self._typed: dict[str, int] = {}
        """how many code points of it were typed there"""

    def offer(self, suggestion: Suggestion) -> None:
        """It is sent to the editor."""
        self._offered[suggestion.id] = suggestion
        if len(self._offered) > KEPT:
            self._offered.popitem(last=False)

    def show(self, id: str) -> None:
        """A person sees it."""
        suggestion = self._offered.get(id)
        if suggestion is not None and self._shown.get(suggestion.uri) != suggestion:
            self.close(suggestion.uri)
            self._shown[suggestion.uri] = suggestion
            self._tell(id, "shown", None)

    def accept(self, id: str) -> None:
        """A person took all of it, and so has seen it: not every editor says that."""
        self.show(id)
        self._end(id)
        self._tell(id, "accepted", None)

    def accept_part(self, id: str, units: int, encoding: Encoding) -> None:
        """A person took the beginning of it."""
        if suggestion := self._offered.get(id):
            self.show(id)
            self._end(id)
            self._tell(id, "partial", suggestion.taken(units, encoding))

    def move(self, document: Document, place: Place) -> None:
        """The person is there; what was shown and is not typed along any more is gone."""
        shown = self._shown.get(document.uri)
        if shown is None:
            return
        typed = document.between(shown.place, place) if _is_behind(shown, document, place) else None
        if typed is not None and shown.text.startswith(typed):
            self._typed[document.uri] = len(typed)
            return
        if typed is not None and typed.startswith(shown.text):
            self._typed[document.uri] = len(shown.text)
        self.close(document.uri)

    def close(self, uri: str) -> None:
        """Nothing is shown there any more: what was typed of it counts as taken."""
        typed = self._typed.pop(uri, 0)
        if shown := self._shown.pop(uri, None):
            event: SuggestionEvent = "partial" if typed else "dismissed"
            self._tell(shown.id, event, typed or None)

    def _end(self, id: str) -> None:
        suggestion = self._offered.get(id)
        if suggestion is not None:
            self._shown.pop(suggestion.uri, None)
            self._typed.pop(suggestion.uri, None)


def _is_behind(shown: Suggestion, document: Document, place: Place) -> bool:
    """Whether ``place`` is where it was shown, or behind that."""
    return shown.place.line < len(document.lines) and shown.place <= place
