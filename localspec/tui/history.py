"""The history of sent texts, to recall them; unsent text is kept while the user goes back and forth."""

from __future__ import annotations

KEPT = 500


class History:
    """Texts from the oldest to the one being typed; :meth:`move` goes from one to another."""

    def __init__(self) -> None:
        self._sent: list[str] = []
        self._texts: list[str] = [""]
        self._here = 0

    def add(self, text: str) -> None:
        """Add a text that was sent or left. Changes to recalled texts are undone; the text that was typed
        before a recall is kept, too."""
        draft = self._texts[-1] if self._here < len(self._sent) else ""
        for each in (draft, text):
            if each and self._sent[-1:] != [each]:
                self._sent.append(each)
        del self._sent[:-KEPT]
        self._texts = [*self._sent, ""]
        self._here = len(self._sent)

    def move(self, by: int, current: str) -> str | None:
        """Return the text ``by`` steps away, keeping ``current`` in its place; None if there is none."""
        there = self._here + by
        if not 0 <= there < len(self._texts):
            return None
        self._texts[self._here] = current
        self._here = there
        return self._texts[there]
