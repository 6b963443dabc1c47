"""What was sent, to be sent again: nothing that was typed is lost on the way there and back."""

from __future__ import annotations

KEPT = 500


class History:
    """Texts from the oldest to the one that is being typed; :meth:`move` goes from one to another."""

    def __init__(self) -> None:
        self._sent: list[str] = []
        self._texts: list[str] = [""]
        self._here = 0

    def add(self, text: str) -> None:
        """A text was sent, or left; what was changed in others is as it was sent. What was being typed before
        another was gone back to is kept, too."""
        draft = self._texts[-1] if self._here < len(self._sent) else ""
        for each in (draft, text):
            if each and self._sent[-1:] != [each]:
                self._sent.append(each)
        del self._sent[:-KEPT]
        self._texts = [*self._sent, ""]
        self._here = len(self._sent)

    def move(self, by: int, current: str) -> str | None:
        """The text so many further, ``current`` being kept in its place; None where there is none."""
        there = self._here + by
        if not 0 <= there < len(self._texts):
            return None
        self._texts[self._here] = current
        self._here = there
        return self._texts[there]
