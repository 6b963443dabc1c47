"""The gap that an editor asks a completion for."""

from __future__ import annotations

from typing import NamedTuple

from localspec.lsp.documents import Document, Place
from localspec.protocol.messages import Trigger


class Question(NamedTuple):
    """A gap of a document: ``lead``, which the editor's menu offers, and an answer replace the text from
    ``start`` to ``end``."""

    document: Document
    revision: int
    start: Place
    end: Place
    lead: str
    trigger: Trigger

    @property
    def is_stale(self) -> bool:
        """True if the text has changed since."""
        return self.document.revision != self.revision
