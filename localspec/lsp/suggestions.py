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

    def offer(self, suggestion: Suggestion) -> None:
        """It is sent to the editor."""
        self._offered[suggestion.id] = suggestion
        if len(self._offered) > KEPT:
            self._offered.popitem(last=False)

    def show(self, id: str) -> None:
        """A person sees it."""
        if suggestion := self._offered.get(id):
            self._shown[suggestion.uri] = suggestion
            self._tell(id, "shown", None)

    def accept(self, id: str) -> None:
        """A person took all of it."""
        self._end(id)
        self._tell(id, "accepted", None)

    def accept_part(self, id: str, units: int, encoding: Encoding) -> None:
        """A person took the beginning of it."""
        if suggestion := self._offered.get(id):
            self._end(id)
            self._tell(id, "partial", suggestion.taken(units, encoding))

    def move(self, document: Document, place: Place) -> None:
        """The person is there: what was shown elsewhere, and not typed, was not wanted."""
        shown = self._shown.get(document.uri)
        if shown is not None and not _goes_on(shown, document, place):
            self.close(document.uri)

    def close(self, uri: str) -> None:
        """Nothing is shown there any more."""
        if shown := self._shown.pop(uri, None):
            self._tell(shown.id, "dismissed", None)

    def _end(self, id: str) -> None:
        suggestion = self._offered.get(id)
        if suggestion is not None:
            self._shown.pop(suggestion.uri, None)


def _goes_on(shown: Suggestion, document: Document, place: Place) -> bool:
    """Whether what stands between where it was shown and ``place`` is its beginning."""
    is_there = shown.place.line < len(document.lines)
    return is_there and shown.place <= place and shown.text.startswith(document.between(shown.place, place))
