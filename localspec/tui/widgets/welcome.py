"""The text in the place of the conversation, before the first message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import OptionList, Static

from localspec.protocol.messages import ModelDescription
from localspec.protocol.sessions import Pairing
from localspec.wording import one_line, pairing_told

WHAT = """\
Chat with a model on this machine. It verifies several draft tokens in one step: its own text, in fewer \
steps."""
KEYS = """\
Enter sends, ctrl+j begins another line, Esc stops an answer.
/ suggests commands, @ files to attach; f1 lists all keys.
ctrl+t colours each token by its proposer, ctrl+o lists the models."""
FIRST = """\
The only model here is the bundled one, which is tiny and only good for trying things out: its answers look \
like Python's standard library and are mostly made up. To download a real one, in a shell:

  localspec models pull

and then choose it with ctrl+o. Questions to try until then: Tab goes to them, Enter or a click sends one."""
EXAMPLES = (
    "What does textwrap.dedent do?",
    "How do I read a JSON file?",
    "What does functools.lru_cache do?",
)


class Welcome(VerticalScroll, can_focus=False):
    """An introduction, the models in use, the keys, and without a downloaded model the first steps."""

    DEFAULT_CSS = """
    Welcome { padding: 1 2 0 2; display: none; scrollbar-size-vertical: 1; }
    Welcome Static { max-width: 84; margin-bottom: 1; }
    Welcome #keys { color: $text-muted; }
    Welcome #first { display: none; }
    Welcome OptionList { height: auto; padding: 0; display: none; background: $background; }
    Welcome OptionList, Welcome OptionList:focus { border: none; }
    """

    @dataclass
    class Asked(Message):
        """The user chooses an example question."""

        text: str

    def compose(self) -> ComposeResult:
        yield Static(WHAT, markup=False)
        yield Static("", id="who", markup=False)
        yield Static(KEYS, id="keys", markup=False)
        yield Static(FIRST, id="first", markup=False)
        yield OptionList(*(f"› {example}" for example in EXAMPLES))

    def show(self, pairing: Pairing, models: Sequence[ModelDescription]) -> None:
        """Show the models in use; if ``models`` are only the bundled one, also the first steps."""
        self.query_one("#who", Static).update(f"{one_line(pairing_told(pairing))}.")
        is_first = bool(models) and all(model.store == "bundled" for model in models)
        self.query_one("#first").display = is_first
        self.query_one(OptionList).display = is_first

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Asked(EXAMPLES[event.option_index]))
