"""``localspec complete``: the text between a prefix and a suffix."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from localspec.cli import answer, first
from localspec.cli.flags import ModelFlags
from localspec.cli.output import Printer
from localspec.completion.finishing import finished
from localspec.completion.gap import Gap
from localspec.errors import InvalidOptions
from localspec.protocol.options import Options
from localspec.protocol.requests import FimPrompt, Request
from localspec.protocol.results import Result

if TYPE_CHECKING:
    from localspec.client import Client

NO_FLAGS = ModelFlags()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CompleteFlags:
    """The flags of the input texts and of the output."""

    prefix_file: Path | None = None
    "Text before the gap; without it, stdin."
    suffix_file: Path | None = None
    "Text after the gap; without it, nothing."
    language: str | None = None
    "The text's language, such as python; without it, guessed from --path."
    path: str | None = None
    "Path of the text's file: its name is given to the model, and its repository's n-gram memory learns it."
    json: bool = False
    "Print one JSON object instead of text."
    stats: bool = False
    "Print two lines of statistics to stderr."
    no_daemon: bool = False
    "Load the model in this process."
    yes: bool = False
    "Download the default model without a question, if it is needed and not here."


NO_COMPLETE_FLAGS = CompleteFlags()


def complete(*, how: CompleteFlags = NO_COMPLETE_FLAGS, flags: ModelFlags = NO_FLAGS) -> int:
    """Fill in the middle; returns the exit code."""
    prompt = FimPrompt(
        prefix=_read(how.prefix_file) if how.prefix_file else _piped(),
        suffix=_read(how.suffix_file) if how.suffix_file else "",
        path=None if how.path is None else os.path.abspath(how.path),
        language=how.language,
        tidy=True,
        invoked=True,
    )
    options = flags.options()
    first.prepare(options, yes=how.yes, quiet=how.json)
    printer = Printer(as_json=how.json, stats=how.stats)
    try:
        if how.no_daemon:
            source = "run" if prompt.path is None else f"file:{prompt.path}"
            request = Request(prompt=prompt, options=options, source=source, priority="completion")
            result = answer.local(request, flags.config(), printer, whole=True)
            result = finished(result, Gap.of(prompt))
        else:
            flags.check_daemon()
            result = answer.remote(lambda client: _ask(client, prompt, options, printer))
        printer.delta(result.text, ())
    except KeyboardInterrupt:
        return printer.interrupted()
    finally:
        printer.close()
    return printer.result(result)


async def _ask(client: Client, prompt: FimPrompt, options: Options, printer: Printer) -> Result:
    where = {name: getattr(prompt, name) for name in ("language", "path") if getattr(prompt, name)}
    stream = client.complete(prompt.prefix, prompt.suffix, options=options, trigger="invoked", **where)
    return (await answer.show(stream, printer)).result


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidOptions(f"{path} cannot be read: {reason}", "Give a readable text file.") from None


def _piped() -> str:
    text = answer.read_stdin()
    if not text:
        raise InvalidOptions("there is no prefix", "Give --prefix-file, or pipe text in.")
    return text
