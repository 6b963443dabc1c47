"""The prompt: a text field that grows, with suggestions for commands and files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key, Paste
from textual.geometry import Offset
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from localspec.errors import LocalspecError
from localspec.tui import defects
from localspec.tui.attach import Files, mention_of
from localspec.tui.command import COMMANDS, beginning, find_command
from localspec.wording import CONTROLS, one_line

MENTION = re.compile(r'(?<![\w@])@("[^"]*|[^\s"]*)$')
"""a mention that ends at the cursor"""
LONGEST_PASTE, LONGEST_LINE = 250_000, 50_000
"""characters; with more, every key would be slow, as its line is wrapped again"""
LONGEST = 500
"""characters before the cursor that are searched for a mention: a pasted line may have millions"""
LONGEST_TITLE = 48
"""columns of a text on the frame: a chat's title, or the message that waits"""
WIDEST = 24
"""columns of a suggestion before its help"""
KEPT = 500
"""sent texts that can be recalled"""


class PromptHistory:
    """Texts from the oldest to the one being typed; :meth:`move` goes from one to another."""

    def __init__(self) -> None:
        self._texts = [""]
        self._here = 0

    def add(self, text: str) -> None:
        """Add a text that was sent or left, behind the one that was typed before a recall."""
        for each in (self._texts.pop(), text.strip()):
            if each and self._texts[-1:] != [each]:
                self._texts.append(each)
        self._texts = [*self._texts[-KEPT:], ""]
        self._here = len(self._texts) - 1

    def move(self, by: int, current: str) -> str | None:
        """Return the text ``by`` steps away, keeping ``current`` in its place; None if there is none."""
        there = self._here + by
        if not 0 <= there < len(self._texts):
            return None
        self._texts[self._here] = current
        self._here = there
        return self._texts[there]


class TypedToken(NamedTuple):
    """The part of a line that is being typed, from the column ``start`` to the cursor."""

    start: int
    text: str


def suggestion(text: str, label: str, help: str = "") -> Option:
    """A suggestion: ``text`` takes the token's place; ``label`` and ``help`` are shown."""
    line = Text(one_line(label).ljust(WIDEST) if help else one_line(label))
    return Option(line.append(f" {one_line(help)}" if help else "", style="dim"), id=text)


class SuggestionList(OptionList, can_focus=False):
    """Suggestions for a token, above the text, which never take the focus; hidden if there are none."""

    DEFAULT_CSS = """
    SuggestionList {
        height: auto; max-height: 30vh; border: none; padding: 0 1; display: none; background: $surface;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.token: TypedToken | None = None

    @property
    def texts(self) -> list[str]:
        return [each.id or "" for each in self.options]

    def show(self, token: TypedToken | None, suggestions: Sequence[Option], *, eager: bool) -> None:
        """Show these for ``token``; ``eager`` highlights the first."""
        self.token = token
        self.display = bool(suggestions)
        self.set_options(suggestions)
        if suggestions and eager:
            self.highlighted = 0

    def find_highlighted(self, token: TypedToken | None) -> str | None:
        """The highlighted text; None if ``token`` has changed, or is complete already."""
        if token is None or token != self.token or self.highlighted is None:
            return None
        is_complete = any(token.text.strip() == text.strip() for text in self.texts)
        return None if is_complete else self.texts[self.highlighted]


class Composer(TextArea, inherit_bindings=False):
    """The text field; a key runs the prompt's action for it, or else its own. This keeps the order of keys:
    Textual would run an action after keys that were pressed later, or with priority before text that was
    typed just before."""

    BINDINGS = [
        # Without the toolkit's own keys, which are those of every editor, the panel of keys is short.
        *(replace(each, system=True) for each in TextArea.BINDINGS if isinstance(each, Binding)),
        Binding("ctrl+underscore", "undo", "Undo", show=False),
    ]

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        # Undo lays out a shorter text before it moves the cursor into it.
        is_inside = self.cursor_location[0] < self.document.line_count
        return super().scroll_cursor_visible(center, animate) if is_inside else Offset()

    async def _on_paste(self, event: Paste) -> None:
        event.stop()  # the application would give it to a dialog
        longest = max(map(len, event.text.splitlines()), default=0)
        if longest > LONGEST_LINE or len(event.text) > LONGEST_PASTE:
            event.prevent_default()
            title = f"the pasted text is too large to edit here: {len(event.text)} characters"
            self.screen.notify("Save it to a file, and attach that: @PATH.", title=title, severity="error")
        lines = event.text.replace("\r\n", "\n").replace("\r", "\n")  # terminals send either
        event.text = CONTROLS.sub("", lines)

    async def _on_key(self, event: Key) -> None:
        for widget in filter(None, (self.parent, self)):
            bound = widget._bindings.key_to_bindings.get(event.key)
            if bound is not None and await self.app.run_action(bound[0].action, widget):
                event.stop()
                event.prevent_default()
                return
        await super()._on_key(event)


class Prompt(Vertical):
    """The text field with the history of sent texts, and suggestions of commands and ``files``."""

    HELP = "`/` lists the commands, `@` attaches a file, Up recalls what was sent, Ctrl-C stops or clears."
    BINDINGS = [
        Binding("enter", "send", "Send"),
        Binding("ctrl+j,shift+enter", "newline", "New line"),
        Binding("tab", "complete", "Complete", show=False),
        Binding("up", "move('up')", "Earlier", show=False),
        Binding("down", "move('down')", "Later", show=False),
        Binding("ctrl+d", "leave", "Leave, if nothing is typed", show=False),
        Binding("escape", "decline", "Hide the suggestions", show=False),
    ]

    DEFAULT_CSS = """
    Prompt { height: auto; max-height: 80%; }
    Prompt Composer {
        height: auto; max-height: 35vh; min-height: 3; min-width: 5; border: round $border-blurred;
        background: $background; padding: 0 1; border-subtitle-color: $text-muted;
    }
    Prompt Composer:focus { border: round $border; }
    """

    @dataclass
    class Sent(Message):
        text: str

    def __init__(self, files: Files, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._files = files
        self.history = PromptHistory()
        self._declined: int | None = None
        """the start of the token for which suggestions are switched off"""
        self._belongs_to = ""
        self._title = ""
        self.waiting = ""

    def compose(self) -> ComposeResult:
        yield SuggestionList()
        yield Composer(placeholder="Ask something; / for commands, @ for files")

    @property
    def text(self) -> str:
        return self._composer.text

    @text.setter
    def text(self, text: str) -> None:
        self._composer.text = text
        self._composer.move_cursor(self._composer.document.end)

    def clear(self) -> bool:
        """Delete the text, so that undo brings it back; returns False if there is none."""
        return bool(self._composer.clear().replaced_text)

    def entitle(self, title: str) -> None:
        self._title = title
        waits = Content(one_line(" ".join(f"Waits: {self.waiting}".split())))
        self._composer.border_title = waits.truncate(LONGEST_TITLE, ellipsis=True) if self.waiting else title

    def wait(self, text: str) -> None:
        """Keep a message to be sent later, with the one that waits already."""
        self.waiting = f"{self.waiting}\n\n{text}".strip()
        self.entitle(self._title)

    def end_wait(self, *, send: bool) -> None:
        """Send the message that waits, or put it before the typed text."""
        waited, self.waiting = self.waiting, ""
        self.entitle(self._title)
        if waited and send:
            self.post_message(self.Sent(waited))
        elif waited:
            self.text = f"{waited}\n\n{self.text}" if self.text else waited

    def belong_to(self, title: str) -> None:
        """Show the chat's title at the foot of the frame; "" shows nothing."""
        if title != self._belongs_to:  # setting it paints the frame again
            self._belongs_to = title
            self._composer.border_subtitle = Content(one_line(title)).truncate(LONGEST_TITLE, ellipsis=True)

    @property
    def _composer(self) -> Composer:
        return self.query_one(Composer)

    @property
    def _suggestions(self) -> SuggestionList:
        return self.query_one(SuggestionList)

    def take_focus(self) -> None:
        self._composer.focus()

    def take(self, event: Key | Paste) -> None:
        """Take a character, backspace or a pasted text of another widget."""
        self.take_focus()
        if isinstance(event, Paste):
            self._composer.post_message(Paste(event.text))
        elif event.is_printable:
            self._composer.insert(event.character or "")
        else:
            self._composer.action_delete_left()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return False for keys that mean something else now: to delete to the right, to leave an edit."""
        if action == "leave":
            return not self.text
        return action != "decline" or self._suggestions.display

    def action_leave(self) -> None:
        self.post_message(self.Sent("/quit"))

    def action_send(self) -> None:
        if (chosen := self._suggestions.find_highlighted(self._token())) is not None:
            self._put(chosen)
        elif text := self.text.strip():
            self.history.add(text)
            self.text = ""
            self.post_message(self.Sent(text))

    def action_newline(self) -> None:
        self._composer.insert("\n")

    def action_complete(self) -> None:
        """Insert a suggestion, or focus the conversation."""
        if self._suggestions.display:
            self._put(self._suggestions.texts[self._suggestions.highlighted or 0])
        else:
            self.screen.focus_next()

    def action_move(self, way: str) -> None:
        """Move to the next suggestion, line, or text of the history, ``up`` or ``down``."""
        composer, navigator, by = self._composer, self._composer.navigator, -1 if way == "up" else 1
        is_last = navigator.is_first_wrapped_line if by < 0 else navigator.is_last_wrapped_line
        if by < 0 and self.waiting and not self.text:
            self.end_wait(send=False)
        elif self._suggestions.display:
            getattr(self._suggestions, f"action_cursor_{way}")()
        elif not is_last(composer.cursor_location) or (text := self.history.move(by, self.text)) is None:
            getattr(composer, f"action_cursor_{way}")()
        else:
            self.text = text
            self.action_decline()

    def _token(self) -> TypedToken | None:
        """The command or mention being typed at the cursor; None if there is none to complete."""
        row, column = self._composer.cursor_location
        line = self._composer.document.get_line(row)[:column]
        if line.startswith("/") and self._composer.document.line_count == 1:
            return TypedToken(0, line)
        found = MENTION.search(line, max(0, column - LONGEST))
        return None if found is None else TypedToken(found.start(), found[0])

    def on_text_area_changed(self) -> None:
        token = self._token()
        if token is None or token.start != self._declined:
            self._declined = None
            self._suggest(token)

    def action_decline(self) -> None:
        token = self._token()
        self._declined = None if token is None else token.start
        self._suggest(None)

    def _suggest(self, token: TypedToken | None) -> None:
        if token is None:
            self._suggestions.show(None, (), eager=False)
        elif token.start == 0 and token.text[0] == "/" and " " not in token.text:
            found = [COMMANDS[name] for name in beginning(token.text[1:], sorted(COMMANDS))]
            suggestions = [suggestion(f"/{c.name} ", f"/{c.name} {c.argument}", c.help) for c in found]
            self._suggestions.show(token, suggestions, eager=True)
        else:
            look_up = partial(self._look_up, token)  # no coroutine: a worker replaced at once never calls it
            self.run_worker(look_up, group="suggest", exclusive=True)  # type: ignore[arg-type]

    async def _look_up(self, token: TypedToken) -> None:
        """Look up suggestions in the background, and show them unless the token has changed meanwhile."""
        found, typed = list[Option](), ""
        try:
            if token.text[0] == "@":
                typed = token.text[1:].removeprefix('"')
                files = await self._files.like(typed)
                found = [suggestion(f"{mention_of(path)} ", path) for path in files]
            else:
                name, _, typed = token.text[1:].partition(" ")
                command, typed = find_command(name.lower()), typed.lstrip()
                known = {} if command.values is None else await command.values(self.screen)
                values = beginning(typed, known)
                found = [suggestion(f"/{command.name} {each}", each, known[each]) for each in values]
        except LocalspecError:
            pass
        except Exception as error:  # an error in suggestions must not end the chat
            defects.report(error)
        if token == self._token() and [each.id for each in found] != [token.text]:
            self._suggestions.show(token, found, eager=bool(typed.strip()))

    def _put(self, text: str) -> None:
        if (token := self._suggestions.token) is not None:
            composer = self._composer
            row, column = composer.cursor_location
            composer.replace(text, (row, token.start), (row, column), maintain_selection_offset=False)
        self._suggest(None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._put(self._suggestions.texts[event.option_index])
        self.take_focus()
