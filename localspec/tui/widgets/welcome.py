"""The text in the place of the conversation, before the first message."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from localspec.protocol.messages import ModelDescription, Pairing
from localspec.wording import one_line, pairing_sentence

WHAT = """\
Chat with a model on this machine. It verifies several draft tokens in one step: its own text, in fewer \
steps."""
KEYS = """\
Enter sends, Ctrl-J begins another line, Esc stops an answer.
/ suggests commands, @ files to attach; F1 shows all keys.
Ctrl-T colours each token by its proposer, Ctrl-O lists the models."""
FIRST = """\
The only model here is the bundled one, which is tiny and only good for trying things out: its answers look \
like Python's standard library and are mostly made up. To download a real one, in a shell:

  localspec models pull

and then choose it with Ctrl-O."""


class Welcome(VerticalScroll, can_focus=False):
    """An introduction, the models in use, the keys, and without a downloaded model the first steps."""

    DEFAULT_CSS = """
    Welcome { padding: 1 2 0 2; display: none; scrollbar-size-vertical: 1; }
    Welcome Static { max-width: 84; }
    """

    def compose(self) -> ComposeResult:
        yield Static(f"{WHAT}\n\n{KEYS}", markup=False)

    def show(self, pairing: Pairing, models: Sequence[ModelDescription]) -> None:
        """Show the models in use; if ``models`` are only the bundled one, also the first steps."""
        parts = [WHAT, f"{one_line(pairing_sentence(pairing))}.", KEYS]
        if models and all(model.store == "bundled" for model in models):
            parts.append(FIRST)
        self.query_one(Static).update("\n\n".join(parts))
