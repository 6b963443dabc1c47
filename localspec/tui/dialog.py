"""Dialogs in front of the chat: the base class, the confirmation, and the consent to a call."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Click, Key, Paste
from textual.screen import ModalScreen, ScreenResultType
from textual.timer import Timer
from textual.widgets import Button, Static
from textual.widgets.button import ButtonVariant

from localspec.agent.loop import Consent
from localspec.tui.widgets.prompt import Prompt

LONG = 250
"""characters of a question that may not be seen at once"""
PAUSE_S, ALONE_S = 1.0, 1.0
"""seconds without a key before and after one that answers the question before a call"""
LETTERS: Mapping[str, Consent] = {"y": "yes", "a": "always", "n": "no"}


class Dialog(ModalScreen[ScreenResultType]):
    """Ends with a result, or by a click beside it without one; a key pressed twice ends it once."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def on_click(self, event: Click) -> None:
        if event.widget is self:
            self.dismiss()


class AnswerDialog(Dialog[ScreenResultType]):
    """A question with a button for each answer, by its label; the last one, ``no``, has the focus."""

    BINDINGS = [
        Binding("left,up", "move(-1)", "Previous", show=False),
        Binding("right,down", "move(1)", "Next", show=False),
        Binding("pageup", "page('up')", "Page up", show=False),
        Binding("pagedown", "page('down')", "Page down", show=False),
    ]

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (40, "-wide")]
    AUTO_FOCUS = "#no"  # a key may already be in the queue
    DEFAULT_CSS = """
    AnswerDialog { align: center middle; }
    AnswerDialog > Vertical {
        width: 100%; max-width: 72; height: auto; padding: 0 1;
        border: round $border; background: $surface;
    }
    AnswerDialog VerticalScroll { height: auto; max-height: 60vh; margin-bottom: 1; }
    AnswerDialog Static { width: 100%; }
    AnswerDialog Horizontal { height: auto; }
    AnswerDialog Button { min-width: 0; margin-right: 1; padding: 0 1; }
    AnswerDialog Button:focus { text-style: bold reverse; }
    AnswerDialog.-narrow Horizontal { layout: vertical; }
    AnswerDialog.-narrow VerticalScroll { margin-bottom: 0; }
    """

    def __init__(
        self, question: str, answers: Mapping[str, ScreenResultType], variant: ButtonVariant
    ) -> None:
        super().__init__()
        self._question, self._answers, self._variant = question, answers, variant

    def compose(self) -> ComposeResult:
        first, *_, last = self._answers
        with Vertical() as box:
            box.border_title = self.title
            if len(self._question) > LONG:
                box.border_subtitle = f"{len(self._question):,} characters: PgDn"
            with VerticalScroll(can_focus=False):
                yield Static(self._question, markup=False)
            with Horizontal():
                for label in self._answers:
                    id = {first: "yes", last: "no"}.get(label)
                    variant: ButtonVariant = self._variant if id == "yes" else "default"
                    yield Button(label, variant, id=id, compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(self._answers[str(event.button.label)])

    def action_move(self, by: int) -> None:
        """Focus the answer beside the current one; the first and the last have none beyond them."""
        buttons = [*self.query(Button)]
        at = next((n for n, button in enumerate(buttons) if button.has_focus), len(buttons))
        buttons[min(max(at + by, 0), len(buttons) - 1)].focus()

    def action_page(self, way: str) -> None:
        scroll = self.query_one(VerticalScroll)
        (scroll.scroll_page_up if way == "up" else scroll.scroll_page_down)(animate=False)


class Confirm(AnswerDialog[bool]):
    """A confirmation before what cannot be undone, or takes long; True if the user chooses ``deed``."""

    BINDINGS = [Binding("escape,n", "dismiss(False)", "No"), Binding("y", "dismiss(True)", "Yes")]

    def __init__(self, question: str, deed: str, variant: ButtonVariant = "error") -> None:
        super().__init__(question, {f"{deed} (y)": True, "Cancel (Esc)": False}, variant)


class Permission(AnswerDialog[Consent]):
    """The consent to a call, by a letter that stands alone, or a button; other text goes to ``prompt``."""

    BINDINGS = [Binding("escape", "dismiss('no')", "No"), Binding("ctrl+c", "stop", "Stop", show=False)]
    DEFAULT_CSS = "Permission Toast { display: none; }"  # the chat shows them
    TITLE = "The model calls"

    def __init__(self, call: str, prompt: Prompt) -> None:
        answers: dict[str, Consent] = {"Always (a)": "always", "Once (y)": "yes", "No (Esc)": "no"}
        super().__init__(call, answers, "default")
        self._prompt = prompt
        self._letter: Key | None = None
        self.pause: Timer | None = None
        """runs behind a key, and at first"""

    def on_mount(self) -> None:
        self._begin_pause()

    def _begin_pause(self, letter: Key | None = None) -> None:
        if self.pause is not None:
            self.pause.stop()
        self._letter = letter
        self.query_one(Vertical).border_title = f"{self.TITLE}; keys answer in a moment"
        self.pause = self.set_timer(PAUSE_S if letter is None else ALONE_S, self._end_pause)

    def _end_pause(self) -> None:
        self.pause = None
        self.query_one(Vertical).border_title = self.TITLE
        if self._letter is not None:
            self.dismiss(LETTERS[self._letter.key])

    def on_key(self, event: Key) -> None:
        """Begin to answer by a letter, or pass what is typed to the prompt."""
        if event.key in ("pageup", "pagedown"):
            return
        has_paused, typed = self.pause is None, self._prompt.text
        is_meant = has_paused and not (typed and self.focused is self.query_one("#no"))
        if has_paused and event.key in LETTERS and not typed:
            self._begin_pause(event)
        elif event.is_printable or event.key == "backspace":
            self._pass(event)
        elif event.key != "enter" or is_meant:
            self._begin_pause()
            return
        else:
            self._pass()
        event.stop()

    def on_paste(self, event: Paste) -> None:
        self._pass(event)

    def _pass(self, *events: Key | Paste) -> None:
        """Put what is typed or pasted into the prompt, behind a letter that did not stand alone."""
        for each in (*filter(None, (self._letter,)), *events):
            self._prompt.take(each)
        self._begin_pause()
        self.query_one("#no").focus()
        self.query_one(Vertical).border_subtitle = "typed into the prompt; ← Enter: once, Esc: no"

    async def action_stop(self) -> None:
        self.dismiss("no")
        await self.app.run_action("help_quit")
