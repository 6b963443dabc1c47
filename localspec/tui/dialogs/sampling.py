"""The sampling options of a chat: a line for each, checked while it is typed."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import DescendantFocus
from textual.validation import ValidationResult, Validator
from textual.widgets import Input, Label, Static

from localspec.errors import InvalidOptions
from localspec.protocol.options import Options, parse_options
from localspec.tui.dialogs.dialog import Dialog
from localspec.tui.fields import field, sentence, text_of, value_of

FIELDS = (
    *("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "frequency_penalty", "presence_penalty"),
    *("seed", "max_tokens", "stop", "k", "exactness", "remember"),
)


class Takes(Validator):
    """Checks a text as an option's value."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def validate(self, value: str) -> ValidationResult:
        """Fail with the option's error and remedy if it does not take ``value``."""
        try:
            value_of(self._name, value)
        except InvalidOptions as error:
            return self.failure(f"{error.message}. {error.remedy}")
        return self.success()


class SamplingScreen(Dialog[Options | None]):
    """Ends with all options of the chat, or with None; ``held`` are the configuration's values for options
    that are not set."""

    BINDINGS = [
        Binding("escape", "dismiss", "Leave", show=False),
        Binding("ctrl+s", "apply", "Apply", show=False),
        Binding("up", "app.focus_previous", "Up", show=False),
        Binding("down", "app.focus_next", "Down", show=False),
    ]

    DEFAULT_CSS = """
    SamplingScreen { align: center middle; }
    SamplingScreen > Vertical {
        width: 90%; max-width: 80; height: 19; max-height: 100%; background: $surface;
        border: round $border; border-title-color: $text; border-subtitle-color: $text-muted; padding: 0 1;
    }
    SamplingScreen VerticalScroll { height: 1fr; }
    SamplingScreen Horizontal { height: 1; }
    SamplingScreen Label { width: 18; color: $text-muted; }
    SamplingScreen Input { width: 1fr; }
    SamplingScreen Static#note { dock: bottom; height: 4; border-top: solid $border-blurred; }
    """

    def __init__(self, options: Options, held: Options) -> None:
        super().__init__()
        self._options = options
        self._held = held

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            with VerticalScroll(can_focus=False):
                for name in FIELDS:
                    with Horizontal():
                        yield Label(name)
                        yield self._input(name)
            yield Static(id="note", markup=False)
        frame.border_title = "Sampling"
        frame.border_subtitle = "Enter applies, Esc leaves"

    def _input(self, name: str) -> Input:
        text, held = text_of(getattr(self._options, name)), text_of(getattr(self._held, name))
        shown = f"{held}, from the configuration" if held else field(name).unset
        return Input(text, shown, id=name, validators=[Takes(name)], valid_empty=True, compact=True)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        if isinstance(event.widget, Input):
            self._explain(event.widget, event.widget.validate(event.widget.value))

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.has_focus:
            self._explain(event.input, event.validation_result)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        """End with the values, or focus the first line that is wrong."""
        values = {}
        for name in FIELDS:
            line = self.query_one(f"#{name}", Input)
            try:
                values[name] = value_of(name, line.value)
            except InvalidOptions:
                line.focus()
                self.app.bell()
                return
        others = {each: getattr(self._options, each) for each in Options.__struct_fields__}
        self.dismiss(parse_options({**others, **values}))

    def _explain(self, line: Input, result: ValidationResult | None) -> None:
        """Show the error of a line, or its option's meaning."""
        option = field(line.id or "")
        wrong = [] if result is None or result.is_valid else result.failure_descriptions
        note = wrong[0] if wrong else f"{sentence(option.meaning)} It takes {option.takes}."
        self.query_one("#note", Static).update(note)
