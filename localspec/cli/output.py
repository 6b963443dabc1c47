"""All output to stdout and stderr, and the exit code of a finished request."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from json import dumps
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from localspec.cli.wrap import Lines
from localspec.errors import ExitCode, InvalidOptions, LocalspecError
from localspec.protocol.requests import Delta, Message, Result
from localspec.wording import (
    counted,
    one_line,
    printable,
    shortened,
    size,
    stats_lines,
    underway,
    untemplated,
)

_line_is_open = False
"""True if the last output to stdout, or a terminal's echo, did not end its line"""
NOT_ASCII = re.compile("[^\x00-\x7f]+")
NARROWEST = 64
"""characters of a terminal that a table fits into"""
ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


def prepare() -> None:
    """Make stdout accept every character: those that its encoding lacks are escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper) and not _is_utf8():
        sys.stdout.reconfigure(errors="backslashreplace")


def _is_utf8() -> bool:
    return codecs.lookup(sys.stdout.encoding).name == "utf-8"


def write(text: str) -> None:
    """Write text to stdout and flush; on a terminal without control characters."""
    global _line_is_open
    if sys.stdout is None:
        raise LocalspecError("stdout is closed", "Leave stdout open, or redirect it to a file.")
    text = harmless(text) if is_terminal() else text
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise LocalspecError(
            f"stdout cannot be written: {error.strerror}", "Redirect it to a file on a disk with free space."
        ) from None
    if text:
        _line_is_open = not text.endswith("\n")


def harmless(text: str) -> str:
    """``text`` as :func:`printable` returns it, without carriage returns. Each character is replaced alone: a
    control sequence in pieces is found as well."""
    return printable(text.replace("\r", ""))


def json(value: Any) -> None:
    """One JSON object on a line of its own, in ASCII where stdout is not UTF-8."""
    text = msgspec.json.encode(value).decode()
    if sys.stdout is not None and not _is_utf8():
        text = NOT_ASCII.sub(lambda found: dumps(found[0])[1:-1], text)
    write(text + "\n")


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Collection[int] = (),
    wrapped: Collection[int] = (),
    styles: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Draw rows on a terminal; elsewhere write each as a line of aligned columns, for grep.

    On a narrow terminal the columns ``wrapped`` are folded and the others stay whole: nothing is cut. A
    column of dashes is left out. ``styles``: of cells by their text.
    """
    if not is_terminal():
        cells = [[one_line(cell) for cell in row] for row in ((header, *rows) if header else rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for texts in cells:
            padded = (cell.ljust(width) for cell, width in zip(texts, widths, strict=True))
            write("  ".join(padded).rstrip() + "\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    console.width = max(console.width, NARROWEST)
    drawn = Table(box=None, pad_edge=False, header_style="dim", show_header=bool(header))
    shown = [n for n in range(len(rows[0])) if any(row[n] != "-" for row in rows)]
    for n in shown:
        justify: Literal["left", "right"] = "right" if n in numbers else "left"
        name = header[n] if header else ""
        drawn.add_column(name, justify=justify, no_wrap=n not in wrapped, overflow="fold")
    for row in rows:
        # As Text: brackets, as in a file's name, would be read as markup.
        drawn.add_row(*(Text(one_line(row[n]), styles.get(row[n], "")) for n in shown))
    console.print(drawn)


def note(text: str) -> None:
    """Write a line to stderr, for the user; nothing if stderr is closed."""
    global _line_is_open
    text = harmless(text)
    with contextlib.suppress(OSError, AttributeError):
        if _line_is_open and _are_seen_together():
            # To stderr: a pipe or a file of stdout alone gets the model's text only.
            text = "\n" + text
            _line_is_open = False
        lines = Lines(lambda: os.get_terminal_size(sys.stderr.fileno()).columns)
        sys.stderr.write((lines.add(text) + lines.end() if sys.stderr.isatty() else text) + "\n")
        sys.stderr.flush()


def _are_seen_together() -> bool:
    """Return True if stderr can continue a line of stdout: on a terminal, or in a file or pipe of both."""
    with contextlib.suppress(OSError, ValueError):
        return sys.stderr.isatty() or os.path.samestat(
            os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
        )
    return False


@contextlib.contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings of the engine, such as a full disk, as lines on stderr."""
    import logging

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(f"localspec: {record.getMessage()}")

    notes, log = Notes(logging.WARNING), logging.getLogger("localspec")
    log.addHandler(notes)
    try:
        yield
    finally:
        log.removeHandler(notes)


def is_terminal() -> bool:
    """Return True if stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def end_line() -> None:
    """On a terminal, end the line that was being written."""
    if _line_is_open and is_terminal():
        write("\n")


def interrupted() -> None:
    """End the line after Ctrl-C, which a terminal shows as ^C."""
    global _line_is_open
    _line_is_open = True
    end_line()


def failure(error: LocalspecError, *, as_json: bool) -> None:
    """Print an error: its message and remedy as sentences, or the error object."""
    if as_json:
        json({"error": {key: printable(text) for key, text in error.as_dict().items()}})
    else:
        end = "" if error.message.endswith((".", "!", "?")) else "."
        note(f"localspec: {error.message}{end} {error.remedy}")


def can_ask() -> bool:
    """Return True if stdin is a terminal, so that a question can be answered."""
    return sys.stdin is not None and sys.stdin.isatty()


def confirms(question: str) -> bool:
    """Ask for a confirmation; raises :class:`InvalidOptions` without a terminal."""
    if not can_ask():
        raise InvalidOptions(
            "stdin is not a terminal, so the confirmation cannot be asked", "Add --yes to go on without it."
        )
    return agrees(question)


def agrees(question: str, *, otherwise: bool = False) -> bool:
    """Ask until the answer is yes or no; an empty line means ``otherwise``, the end of the input no."""
    while True:
        note(f"{question} [{'Y/n' if otherwise else 'y/N'}], then Enter")
        line = sys.stdin.readline()
        word = line.strip().lower()
        if line and not word:
            return otherwise
        if not line or word in ANSWERS:
            return ANSWERS.get(word, False)
        note("Answer y or n.")


def context_full(result: Result) -> str:
    """A sentence that says how to enlarge the context, if the model was trained for more."""
    from localspec.config import load_config
    from localspec.models.library import find

    full = "the answer was cut short: the context is full"
    n_ctx = result.prompt_tokens + result.completion_tokens - 1  # the last token is not in the context
    try:
        trained = find(result.model, load_config().model_dirs).description.context
    except LocalspecError:  # removed since, or its name stands for several
        trained = None
    if trained is None:
        return f"{full} ({n_ctx:,} tokens)."
    if trained <= n_ctx:
        return f"{full}; this model has at most {trained:,} tokens of context."
    return f"{full}. Enlarge it: `localspec config set n_ctx N`, with N up to {trained}."


ENDINGS = {
    "cancelled": "the answer was cut short: the daemon was stopped. Ask again; the next command starts it.",
    "deadline": "the answer was cut short: its deadline has passed. Ask for fewer tokens.",
}
"""notes for endings that the text does not show"""
PATIENCE_S = 1.0


class Progress:
    """Work under way: a live line on a terminal, shown from ``after_s`` seconds on; elsewhere nothing, or
    with ``lines`` one for each step."""

    def __init__(self, after_s: float = 0.0, *, lines: bool = False) -> None:
        self._due = time.monotonic() + after_s
        self._lines, self._step = lines, ""
        self._live: Any = None
        self._spinner: Any = None

    def update(self, what: str, fraction: float | None) -> None:
        """``fraction`` of ``what`` is done, 0 to 1; None: unknown."""
        if what == "queued" or sys.stderr is None or not sys.stderr.isatty():
            if self._lines and what != self._step:
                self._step = what
                note(f"localspec: {what}")
            return
        from rich.spinner import Spinner
        from rich.text import Text

        what, share = underway(what, fraction)
        # As Text: brackets, as in a file's name, would be read as markup.
        text = Text(printable(what if share is None else f"{what} {share:.0%}"))
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._spinner = Spinner("dots", text, style="status.spinner")
            # Rich would redirect output to stdout to stderr meanwhile.
            self._live = Live(
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                refresh_per_second=12.5,
                get_renderable=lambda: self._spinner if time.monotonic() >= self._due else "",
            )
            self._live.start()
        else:
            self._spinner.update(text=text)

    def stop(self) -> None:
        """Clear the line."""
        if self._live is not None:
            self._live.stop()
            self._live = None


class Transfer:
    """The progress of a download on stderr: a live bar on a terminal, a line for every tenth elsewhere."""

    def __init__(self, what: str, total: int, so_far: int = 0) -> None:
        self.what, self.total, self.done = printable(what), max(1, total), so_far
        self._tenth = self._tenths()
        self._bar = self._draw() if sys.stderr is not None and sys.stderr.isatty() else None

    def update(self, done: int) -> None:
        """``done`` bytes of ``total`` are here."""
        self.done = done
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)
        elif self._tenths() > self._tenth:
            self._tenth = self._tenths()
            note(f"localspec: {self._tenth}0% of {size(self.total)} ({self.what})")

    def close(self) -> None:
        """Stop the bar, whatever the reason; that of an incomplete download is removed."""
        if self._bar is not None:
            self._bar.live.transient = self.done < self.total
            self._bar.stop()
            self._bar = None

    def _tenths(self) -> int:
        return self.done * 10 // self.total

    def _draw(self) -> Any:
        from rich import progress
        from rich.console import Console

        columns = (
            *(progress.TextColumn("{task.description}", markup=False), progress.BarColumn()),
            *(progress.DownloadColumn(), progress.TransferSpeedColumn(), progress.TimeRemainingColumn()),
        )
        bar = progress.Progress(*columns, console=Console(stderr=True), redirect_stdout=False)
        bar.add_task(self.what, total=self.total, completed=self.done)
        bar.start()
        return bar


@contextlib.contextmanager
def progressing(what: str) -> Iterator[Callable[[str, float], None]]:
    """Show the progress of a task that may be long on a terminal, from one second after its start on."""
    progress = Progress(PATIENCE_S)
    progress.update(what, 0.0)
    try:
        yield progress.update
    finally:
        progress.stop()


class Printer:
    """Prints one answer while it is generated, in the requested form."""

    def __init__(
        self, *, as_json: bool = False, events: bool = False, stats: bool = False, prose: bool = False
    ) -> None:
        self._json, self._events, self._stats = as_json, events, stats
        self._lines = Lines(lambda: os.get_terminal_size(sys.stdout.fileno()).columns) if prose else None
        self._progress = Progress()
        self.follow: Callable[[Delta], str] = lambda delta: "writing a call"
        """takes each piece of an answer, and returns what is shown of a call"""
        self.loaded_s = 0.0
        """seconds until the model was loaded; 0: it was"""
        self.partial: Result | None = None
        """the answer so far when it was interrupted"""
        self.messages: list[Message] = []
        """a conversation with tools, which is printed with the JSON result"""
        self.held: str | None = None
        """the beginning of an answer that may be a call in JSON; None: the answer is printed as it comes"""

    def progress(self, what: str, fraction: float) -> None:
        if not (self._events and is_terminal()):  # there the events show the progress
            self._progress.update("reading the prompt" if what == "prefill" else what, fraction)
        if self._events:
            json({"event": "progress", "stage": what, "fraction": fraction})

    def delta(self, delta: Delta) -> None:
        call = self.follow(delta)
        if delta.channel != "answer" and not self._events:
            self._write_wrapped("", is_end=True)
            end_line()  # the live line takes the place of what is there
            self._progress.update("thinking" if delta.channel == "thinking" else call, None)
            return
        self._progress.stop()
        if self._events:
            shown = {"text": delta.text, "tokens": delta.tokens, "channel": delta.channel, "call": delta.call}
            json({"event": "delta", **{name: value for name, value in shown.items() if value is not None}})
        elif not self._json and delta.text and delta.channel == "answer":
            self._write(delta.text)

    def _write(self, text: str) -> None:
        if self.held is not None:
            self.held = text = self.held + text
            if text.lstrip()[:1] in ("", "{", "`"):
                return
            self.held = None
        self._write_wrapped(text)

    def _write_wrapped(self, text: str, *, is_end: bool = False) -> None:
        """Write prose on a terminal in lines that end between words; ``is_end``: also the last word."""
        if self._lines is not None and is_terminal():
            if not _line_is_open:
                self._lines.start_line()
            text = self._lines.add(harmless(text)) + (self._lines.end() if is_end else "")
        write(text)

    def degraded(self, source: str, to: str, reason: str) -> None:
        if self._events:
            json({"event": "degraded", "from": source, "to": to, "reason": reason})
        else:
            self._write_wrapped("", is_end=True)
            note(f"localspec: the proposer {source} failed ({reason}); going on with {to}.")

    def result(self, result: Result) -> ExitCode:
        """The end of the answer; returns the exit code."""
        self.close()
        self._print(result)
        end_line()
        if remark := shortened(result):
            note(f"localspec: {remark}.")
        if result.stats.untemplated:
            note(f"localspec: {untemplated(result.model)}. Use --raw, or a model with a template.")
        if result.finish_reason == "context_full":
            note(f"localspec: {context_full(result)}")
        elif result.finish_reason in ENDINGS:
            note(f"localspec: {ENDINGS[result.finish_reason]}")
        elif result.finish_reason == "length" and not result.completion_tokens:
            was = "was" if result.prompt_tokens == 1 else "were"
            read = f"{counted(result.prompt_tokens, 'token')} of the prompt {was} read"
            note(f"localspec: no text was generated, because max_tokens is 0 ({read}).")
        elif not result.text:
            note("localspec: the answer is empty.")
        if self._stats:
            note(stats_lines(result, self.loaded_s))
        endings = {"cancelled": ExitCode.UNAVAILABLE, "deadline": ExitCode.BUSY}
        return endings.get(result.finish_reason, ExitCode.OK)

    def calls(self) -> None:
        """The end of an answer that calls tools: more is printed after it."""
        self._progress.stop()
        self._write_wrapped("", is_end=True)
        if _line_is_open and not (self._json or self._events):
            write("\n")

    def interrupted(self) -> ExitCode:
        """End an interrupted answer: print its JSON and statistics so far, if requested."""
        self.close()
        interrupted()
        if self.partial is not None:
            self._print(self.partial)
            if self._stats:
                note(stats_lines(self.partial, self.loaded_s))
        return ExitCode.INTERRUPTED

    def _print(self, result: Result) -> None:
        """Print the result as JSON, if requested."""
        shown = msgspec.to_builtins(result)
        if self.messages:
            shown["messages"] = self.messages
        if self._events:
            json({"event": "result", **shown})
        elif self._json:
            json(shown)

    def close(self) -> None:
        """Stop the progress line, and write what was held."""
        self._progress.stop()
        held, self.held = self.held, None
        self._write_wrapped(held or "", is_end=True)


EXAMPLES = "Examples:\n"


def examples(*lines: str) -> str:
    """The end of a command's help; tests run the lines that can be run."""
    return EXAMPLES + "\n".join(f"  {line}" for line in lines)


def arguments(command: str, optional: str) -> str:
    """The first line of a command's help, with its optional arguments by name: cyclopts writes [ARGS]."""
    return f"Usage: localspec {command} [OPTIONS] {optional}"
