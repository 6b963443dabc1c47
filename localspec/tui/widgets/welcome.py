"""What stands in the place of the conversation until something is said."""

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
Chat with a model on this machine. It is offered several tokens at a time and checks them all in one step: \
the same text, in fewer steps."""
KEYS = """\
Enter sends, ctrl+j begins another line, Esc stops an answer.
/ suggests commands, @ files to send along; f1 tells every key.
ctrl+t shows who guessed which token, ctrl+o offers other models."""
FIRST = """\
The only model here is the one that comes with localspec. It is tiny, there to try everything out: \
what it says looks like Python's standard library, and is mostly made up. For a real one, in a shell:

  localspec models pull Qwen/Qwen2.5-Coder-7B-Instruct-GGUF

and then ctrl+o here. Until then, something to ask: Tab leads there, Enter or a click asks."""
EXAMPLES = (
    "What does textwrap.dedent do?",
    "How do I read a JSON file?",
    "What does functools.lru_cache do?",
)


class Welcome(VerticalScroll, can_focus=False):
    """What this is, who answers, and how to begin."""

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
        """The person wants to ask this."""

        text: str

    def compose(self) -> ComposeResult:
        yield Static(WHAT, markup=False)
        yield Static("", id="who", markup=False)
        yield Static(KEYS, id="keys", markup=False)
        yield Static(FIRST, id="first", markup=False)
        yield OptionList(*(f"› {example}" for example in EXAMPLES))

    def tell(self, pairing: Pairing, models: Sequence[ModelDescription]) -> None:
        """Say who answers, and how to get another model where those are known, and came along."""
        self.query_one("#who", Static).update(f"{one_line(pairing_told(pairing))}.")
        is_first = bool(models) and all(model.store == "bundled" for model in models)
        self.query_one("#first").display = is_first
        self.query_one(OptionList).display = is_first

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Asked(EXAMPLES[event.option_index]))
