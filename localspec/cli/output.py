"""The one place that writes to stdout and stderr, and says how a request's end becomes an exit code."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from localspec.errors import ExitCode, LocalspecError
from localspec.protocol.results import Result, Stats, Token


def write(text: str) -> None:
    """Model text to stdout, at once."""
    if sys.stdout is None:
        raise LocalspecError("there is no stdout to write to", "Leave it open, or redirect it to a file.")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise LocalspecError(
            f"stdout cannot be written: {error.strerror}", "Make room for the output."
        ) from None


def json(value: Any) -> None:
    """One JSON object on a line of its own."""
    write(msgspec.json.encode(value).decode() + "\n")


def note(text: str) -> None:
    """A line for the person, on stderr; nobody can be told where that is closed."""
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


@contextlib.contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Inside, what the engine warns of, such as a full disk, is told as a line on stderr."""
    import logging

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(printable(f"localspec: {record.getMessage()}"))

    notes, log = Notes(logging.WARNING), logging.getLogger("localspec")
    log.addHandler(notes)
    try:
        yield
    finally:
        log.removeHandler(notes)


def is_terminal() -> bool:
    """Whether somebody reads stdout as it is written."""
    return sys.stdout is not None and sys.stdout.isatty()


def end_line() -> None:
    """On a terminal: leave the line that was being written."""
    if is_terminal():
        write("\n")


def failure(error: LocalspecError, *, as_json: bool) -> None:
    """What happened and what to do: a sentence each, or the error object."""
    if as_json:
        json({"error": {key: printable(text) for key, text in error.as_dict().items()}})
    else:
        end = "" if error.message.endswith((".", "!", "?")) else "."
        note(printable(f"localspec: {error.message}{end} {error.remedy}"))


def printable(text: str) -> str:
    """``text`` without what no encoding has, such as bytes of a file name that are no text."""
    return text.encode(errors="replace").decode()


def exit_code(result: Result) -> ExitCode:
    """What a finished request tells the shell; who interrupts it himself never gets this far."""
    endings = {"cancelled": ExitCode.UNAVAILABLE, "deadline": ExitCode.BUSY}
    return endings.get(result.finish_reason, ExitCode.OK)


ENDINGS = {
    "cancelled": "the answer was cut short: the daemon was stopped.",
    "deadline": "the answer was cut short: its time was up.",
    "context_full": "the answer was cut short: the context is full.",
}
"""what a person is told about an ending that the text does not show"""
SHOWN_REASONS = 2


def stats_lines(result: Result) -> str:
    """A request in two lines: what it took, and what speculation did."""
    stats = result.stats
    took = [f"{result.completion_tokens} tokens ({result.finish_reason.replace('_', ' ')})"]
    if stats.decode_tokens_per_s:
        took.append(f"{stats.decode_tokens_per_s:.1f} tok/s")
    if stats.time_saved_s is not None and stats.drafted:
        took.append(f"{_duration(abs(stats.time_saved_s))} {'saved' if stats.time_saved_s >= 0 else 'lost'}")
    if stats.ttft_s is not None:
        took.append(f"first token after {_duration(stats.ttft_s)}")
    return f"{' · '.join(took)}\n{' · '.join(_speculation(stats))}"


def _speculation(stats: Stats) -> Iterator[str]:
    if stats.tokens_per_round is not None:
        yield f"{stats.tokens_per_round:.2f} tokens per round"
    used = [f"{name} {s.accepted}/{s.drafted}" for name, s in stats.proposers.items() if s.drafted]
    if used:
        yield f"{' + '.join(used)} drafted tokens accepted ({stats.acceptance_rate or 0:.0%})"
    yield from _silence(stats)
    if stats.rechecks:
        yield f"{stats.rechecks} rechecked"
    if not stats.lossless:
        yield "lossy (threshold)"


def _silence(stats: Stats) -> Iterator[str]:
    """Why little or nothing was drafted."""
    reasons = {why: n for why, n in stats.choices.items() if why not in stats.proposers}
    silent = sum(reasons.values())
    if not stats.drafted:
        why = stats.speculation_off_reason
        yield f"no speculation ({why})" if why else "no speculation"
    elif stats.speculation_off_reason:
        yield stats.speculation_off_reason
    elif silent * 2 > stats.rounds:
        most = sorted(reasons, key=lambda why: -reasons[why])[:SHOWN_REASONS]
        others = silent - sum(reasons[why] for why in most)
        told = ", ".join(f"{why} ({reasons[why]})" for why in most) + f", other ({others})" * bool(others)
        yield f"no draft in {silent} of {stats.rounds} rounds: {told}"


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


class Progress:
    """What is going on before text comes: a live line on a terminal, nothing elsewhere."""

    def __init__(self) -> None:
        self._status: Any = None

    def update(self, what: str, fraction: float) -> None:
        """``fraction`` of ``what`` is done, 0 to 1."""
        if what == "queued" or sys.stderr is None or not sys.stderr.isatty():
            return
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status("")
            self._status.start()
        self._status.update(f"{what} {fraction:.0%}")

    def stop(self) -> None:
        """Text comes: clear the line."""
        if self._status is not None:
            self._status.stop()
            self._status = None


class Printer:
    """Shows one answer as it comes, in the form that was asked for."""

    def __init__(self, *, as_json: bool = False, events: bool = False, stats: bool = False) -> None:
        self._json, self._events, self._stats = as_json, events, stats
        self._progress = Progress()
        self._ends_line = True

    def progress(self, what: str, fraction: float) -> None:
        self._progress.update(what, fraction)
        if self._events:
            json({"event": "progress", "stage": what, "fraction": fraction})

    def delta(self, text: str, tokens: tuple[Token, ...]) -> None:
        self._progress.stop()
        if self._events:
            json({"event": "delta", "text": text, "tokens": tokens})
        elif not self._json and text:
            write(text)
            self._ends_line = text.endswith("\n")

    def degraded(self, source: str, to: str, reason: str) -> None:
        if self._events:
            json({"event": "degraded", "from": source, "to": to, "reason": reason})
        else:
            note(f"localspec: the proposer {source} failed ({reason}); going on with {to}.")

    def result(self, result: Result) -> ExitCode:
        """The end of the answer; returns the exit code."""
        self._progress.stop()
        if self._events:
            json({"event": "result", **msgspec.to_builtins(result)})
        elif self._json:
            json(result)
        elif not self._ends_line and is_terminal():
            write("\n")
        if result.finish_reason in ENDINGS:
            note(f"localspec: {ENDINGS[result.finish_reason]}")
        elif not result.text:
            note("localspec: the model had nothing to say.")
        if self._stats:
            if not self._ends_line and not is_terminal() and sys.stderr.isatty():
                note("")
            note(stats_lines(result))
        return exit_code(result)

    def close(self) -> None:
        """No more output, whatever the reason."""
        self._progress.stop()
