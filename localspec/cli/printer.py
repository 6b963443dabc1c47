"""One answer printed while it is generated, and the exit code of its end."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from localspec.cli import output
from localspec.errors import ExitCode
from localspec.protocol.requests import Delta, Message, Result
from localspec.wording import count_noun, describe_missing_template, describe_shortening, stats_lines

ENDINGS = {
    "context_full": "the answer was cut short: the context is full. Enlarge it: `localspec config set n_ctx "
    "N`, with N up to the context in `localspec models show`.",
    "cancelled": "the answer was cut short: the daemon was stopped. Ask again; the next command starts it.",
    "deadline": "the answer was cut short: its deadline has passed. Ask for fewer tokens.",
}
"""notes for endings that the text does not show"""


class Printer:
    def __init__(self, *, as_json: bool = False, events: bool = False, stats: bool = False) -> None:
        self._json, self._events, self._stats = as_json, events, stats
        self._progress = output.LiveProgress()
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
        if not (self._events and output.is_terminal()):  # there the events show the progress
            self._progress.update("reading the prompt" if what == "prefill" else what, fraction)
        if self._events:
            output.json({"event": "progress", "stage": what, "fraction": fraction})

    def delta(self, delta: Delta) -> None:
        call = self.follow(delta)
        if delta.channel != "answer" and not self._events:
            output.end_line()  # the live line takes the place of what is there
            self._progress.update("thinking" if delta.channel == "thinking" else call, None)
            return
        self._progress.stop()
        if self._events:
            shown = {"text": delta.text, "tokens": delta.tokens, "channel": delta.channel, "call": delta.call}
            present = {name: value for name, value in shown.items() if value is not None}
            output.json({"event": "delta", **present})
        elif not self._json and delta.text and delta.channel == "answer":
            self._write(delta.text)

    def _write(self, text: str) -> None:
        if self.held is not None:
            self.held = text = self.held + text
            if text.lstrip()[:1] in ("", "{", "`"):
                return
            self.held = None
        output.write(text)

    def note_degradation(self, source: str, to: str, reason: str) -> None:
        if self._events:
            output.json({"event": "degraded", "from": source, "to": to, "reason": reason})
        else:
            output.note(f"localspec: the proposer {source} failed ({reason}); going on with {to}.")

    def result(self, result: Result) -> ExitCode:
        """The end of the answer; returns the exit code."""
        self.close()
        self._print(result)
        output.end_line()
        if remark := describe_shortening(result):
            output.note(f"localspec: {remark}.")
        if result.stats.untemplated:
            reason = describe_missing_template(result.model)
            output.note(f"localspec: {reason}. Use --raw, or a model with a template.")
        if result.finish_reason in ENDINGS:
            output.note(f"localspec: {ENDINGS[result.finish_reason]}")
        elif result.finish_reason == "length" and not result.completion_tokens:
            was = "was" if result.prompt_tokens == 1 else "were"
            read = f"{count_noun(result.prompt_tokens, 'token')} of the prompt {was} read"
            output.note(f"localspec: no text was generated, because max_tokens is 0 ({read}).")
        elif not result.text:
            output.note("localspec: the answer is empty.")
        if self._stats:
            output.note(stats_lines(result, self.loaded_s))
        endings = {"cancelled": ExitCode.UNAVAILABLE, "deadline": ExitCode.BUSY}
        return endings.get(result.finish_reason, ExitCode.OK)

    def calls(self) -> None:
        """The end of an answer that calls tools: more is printed after it."""
        self._progress.stop()
        if output.line_is_open and not (self._json or self._events):
            output.write("\n")

    def print_interrupted(self) -> ExitCode:
        """End an interrupted answer: print its JSON and statistics so far, if requested."""
        self.close()
        output.end_interrupted_line()
        if self.partial is not None:
            self._print(self.partial)
            if self._stats:
                output.note(stats_lines(self.partial, self.loaded_s))
        return ExitCode.INTERRUPTED

    def _print(self, result: Result) -> None:
        shown = msgspec.to_builtins(result)
        if self.messages:
            shown["messages"] = self.messages
        if self._events:
            output.json({"event": "result", **shown})
        elif self._json:
            output.json(shown)

    def close(self) -> None:
        """Stop the progress line, and write what was held."""
        self._progress.stop()
        held, self.held = self.held, None
        output.write(held or "")
