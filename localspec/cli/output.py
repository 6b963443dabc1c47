"""All output to stdout and stderr."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from json import dumps
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from localspec.errors import InvalidOptions, LocalspecError
from localspec.wording import one_line, printable, size, underway

line_is_open = False
"""True if the last output to stdout, or a terminal's echo, did not end its line"""
NOT_ASCII = re.compile("[^\x00-\x7f]+")
NARROWEST = 64
"""characters of a terminal that a table fits into"""
EXAMPLES = "Examples:\n"
PATIENCE_S = 1.0
ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


def prepare() -> None:
    """Make stdout accept every character: those that its encoding lacks are escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper) and not _is_utf8():
        sys.stdout.reconfigure(errors="backslashreplace")


def _is_utf8() -> bool:
    return codecs.lookup(sys.stdout.encoding).name == "utf-8"


def write(text: str) -> None:
    """Write text to stdout and flush; on a terminal without control characters."""
    global line_is_open
    if sys.stdout is None:
        raise LocalspecError("stdout is closed", "Leave stdout open, or redirect it to a file.")
    text = escape_controls(text) if is_terminal() else text
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
        line_is_open = not text.endswith("\n")


def escape_controls(text: str) -> str:
    """``text`` as :func:`printable` returns it, without carriage returns. Each character is replaced alone: a
    control sequence in pieces is found as well."""
    return printable(text.replace("\r", ""))


def json(value: Any) -> None:
    """One JSON object on a line of its own, in ASCII where stdout is not UTF-8."""
    text = msgspec.json.encode(value).decode()
    if sys.stdout is not None and not _is_utf8():
        text = NOT_ASCII.sub(lambda found: dumps(found[0])[1:-1], text)
    write(text + "\n")


def show(value: Any, text: str, *, as_json: bool) -> None:
    """The result of a command: a JSON object, or printable text."""
    json(value) if as_json else write(printable(text))


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Collection[int] = (),
    wrapped: Collection[int] = (),
    styles: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Draw rows on a terminal; elsewhere write each as a line of aligned columns, for grep. On a narrow
    terminal the columns ``wrapped`` are folded and the others stay whole: nothing is cut. A column of dashes
    is left out. ``styles``: of cells by their text."""
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
    global line_is_open
    text = escape_controls(text)
    with contextlib.suppress(OSError, AttributeError):
        if line_is_open and sys.stderr.isatty():
            # To stderr: a pipe or a file of stdout gets the model's text only.
            text = "\n" + text
            line_is_open = False
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


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
    return sys.stdout is not None and sys.stdout.isatty()


def end_line() -> None:
    """On a terminal, end the line that was being written."""
    if line_is_open and is_terminal():
        write("\n")


def end_interrupted_line() -> None:
    """End the line after Ctrl-C, which a terminal shows as ^C."""
    global line_is_open
    line_is_open = True
    end_line()


def failure(error: LocalspecError, *, as_json: bool) -> None:
    """Print an error: its message and remedy as sentences, or the error object."""
    if as_json:
        json({"error": {key: printable(text) for key, text in error.as_dict().items()}})
    else:
        end = "" if error.message.endswith((".", "!", "?")) else "."
        note(f"localspec: {error.message}{end} {error.remedy}")


def can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def ask_confirmation(question: str) -> bool:
    """Ask for a confirmation; raises :class:`InvalidOptions` without a terminal."""
    if not can_ask():
        raise InvalidOptions(
            "stdin is not a terminal, so the confirmation cannot be asked", "Add --yes to go on without it."
        )
    return ask_yes_or_no(question)


def ask_yes_or_no(question: str, *, otherwise: bool = False) -> bool:
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


class LiveProgress:
    """Work: on a terminal a live line after ``after_s`` seconds; elsewhere, with ``lines``, one a step."""

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
    progress = LiveProgress(PATIENCE_S)
    progress.update(what, 0.0)
    try:
        yield progress.update
    finally:
        progress.stop()


def examples(*lines: str) -> str:
    """The end of a command's help; tests run the lines that can be run."""
    return EXAMPLES + "\n".join(f"  {line}" for line in lines)


def arguments(command: str, optional: str) -> str:
    """The first line of a command's help, with its optional arguments by name: cyclopts writes [ARGS]."""
    return f"Usage: localspec {command} [OPTIONS] {optional}"
