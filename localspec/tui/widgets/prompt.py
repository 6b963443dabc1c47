"""Where a person types: a text that grows, with suggestions for what begins with a slash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.events import Key
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from localspec.tui.commands.command import COMMANDS

MOST_SUGGESTED = 8


class Composer(TextArea):
    """The text; ``take`` is asked first what becomes of a key, in the order in which keys are pressed.

    Bindings with priority would overtake what was typed just before.
    """

    def __init__(self, take: Callable[[str], bool]) -> None:
        super().__init__(placeholder="Ask something, or type / for commands")
        self._take = take

    async def _on_key(self, event: Key) -> None:
        if self._take(event.key):
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)


class Prompt(Vertical):
    """A text, what could complete it, and what was sent before."""

    BINDINGS = [
        Binding("enter", "send", "Send"),
        Binding("shift+enter,ctrl+j", "newline", "New line", key_display="^j"),
        Binding("tab", "complete", "Complete", show=False),
        Binding("up", "previous", "Earlier", show=False),
        Binding("down", "next", "Later", show=False),
    ]

    DEFAULT_CSS = """
    Prompt { height: auto; max-height: 50%; }
    Prompt Composer {
        height: auto; max-height: 10; min-height: 3; border: round $border-blurred;
        background: $background; padding: 0 1;
    }
    Prompt Composer:focus { border: round $border; }
    Prompt OptionList { height: auto; max-height: 8; border: none; display: none; background: $surface; }
    """

    @dataclass
    class Sent(Message):
        """The person wants this said, or done."""

        text: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._sent: list[str] = []
        self._recalled = 0

    def compose(self) -> ComposeResult:
        yield OptionList(markup=False)
        yield Composer(self._take)

    @property
    def text(self) -> str:
        return self.query_one(Composer).text

    @text.setter
    def text(self, text: str) -> None:
        composer = self.query_one(Composer)
        composer.text = text
        composer.move_cursor(composer.document.end)

    @property
    def title(self) -> str:
        """What is said on its frame."""
        return self.query_one(Composer).border_title or ""

    @title.setter
    def title(self, title: str) -> None:
        self.query_one(Composer).border_title = title

    def take_focus(self) -> None:
        """Let the person type."""
        self.query_one(Composer).focus()

    # What is typed.

    def _take(self, key: str) -> bool:
        """Do what a key is for here; False for one that is the text's."""
        match key:
            case "enter":
                self.action_send()
            case "shift+enter" | "ctrl+j":
                self.action_newline()
            case "tab":
                self.action_complete()
            case "up":
                self.action_previous()
            case "down":
                self.action_next()
            case _:
                return False
        return True

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        self._suggest(event.text_area.text)

    def action_send(self) -> None:
        """Send the text, or take the suggestion where it is none but the beginning of a command."""
        if self._options.display and self.text.strip() not in {f"/{c.name}" for c in COMMANDS.all()}:
            self.action_complete()
            return
        text = self.text.strip()
        if text:
            self._sent.append(text)
            self._recalled = len(self._sent)
            self.text = ""
            self.post_message(self.Sent(text))

    def action_newline(self) -> None:
        """Go on in another line."""
        self.query_one(Composer).insert("\n")

    def action_complete(self) -> None:
        """Take the suggestion, or go to the conversation."""
        options = self._options
        if not options.display:
            self.screen.focus_next()
        elif options.highlighted is not None:
            self.text = f"{options.get_option_at_index(options.highlighted).id} "

    def action_previous(self) -> None:
        """The suggestion above, the line above, or what was sent before."""
        composer = self.query_one(Composer)
        if self._options.display:
            self._options.action_cursor_up()
        elif composer.cursor_location[0] == 0 and self._recalled > 0:
            self._recall(self._recalled - 1)
        else:
            composer.action_cursor_up()

    def action_next(self) -> None:
        """The suggestion below, the line below, or what was sent after."""
        composer = self.query_one(Composer)
        if self._options.display:
            self._options.action_cursor_down()
        elif composer.cursor_location[0] == composer.document.end[0] and self._recalled < len(self._sent):
            self._recall(self._recalled + 1)
        else:
            composer.action_cursor_down()

    def _recall(self, number: int) -> None:
        self._recalled = number
        self.text = self._sent[number] if number < len(self._sent) else ""

    # What is suggested.

    @property
    def _options(self) -> OptionList:
        return self.query_one(OptionList)

    def _suggest(self, text: str) -> None:
        options = self._options
        matching = []
        if text.startswith("/") and not any(mark in text for mark in " \n"):
            matching = [c for c in COMMANDS.all() if c.name.startswith(text[1:].lower())]
        options.display = bool(matching)
        options.clear_options()
        options.add_options(
            Option(f"{c.usage:<24} {c.help}", id=f"/{c.name}") for c in matching[:MOST_SUGGESTED]
        )
        if matching:
            options.highlighted = 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A suggestion was clicked."""
        self.text = f"{event.option.id} "
        self.take_focus()
