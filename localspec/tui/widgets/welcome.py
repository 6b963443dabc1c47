"""The text in the place of the conversation, before the first message."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from localspec.models.catalogue import BUNDLED, CATALOGUE, DEFAULT
from localspec.protocol.messages import ModelDescription, Pairing
from localspec.wording import one_line, size

KEYS = """\
Enter sends, Esc stops an answer, Ctrl-J: a new line.
/ lists the commands, @ attaches a file, F1 shows keys."""
REAL = "Ctrl-O: the models here, and larger ones to download."
TOY = f"Ctrl-O gets a real one: {DEFAULT}, {size(CATALOGUE[DEFAULT].size)}."


class Welcome(VerticalScroll, can_focus=False):
    """The model that answers, how to get a better one, and the first keys."""

    DEFAULT_CSS = """
    Welcome { padding: 1 0 0 2; display: none; scrollbar-size-vertical: 1; }
    """

    def compose(self) -> ComposeResult:
        yield Static(KEYS, markup=False)

    def show(self, pairing: Pairing, models: Sequence[ModelDescription]) -> None:
        """Show the model in use, which is one of ``models``."""
        model = next((each for each in models if pairing.target in (each.id, *each.names)), None)
        facts, better = "", REAL
        if model is not None and model.store == BUNDLED:
            facts, better = f": a toy ({size(model.size)}), good for tests only", TOY
        elif model is not None:
            facts = f" ({size(model.size)})"
        self.query_one(Static).update(f"{one_line(pairing.target + ' answers' + facts)}.\n{better}\n\n{KEYS}")
