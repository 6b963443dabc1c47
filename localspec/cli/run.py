"""``localspec run``: one prompt, one answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from localspec.cli import answer, first
from localspec.cli.answer import read_stdin
from localspec.cli.completers import sessions
from localspec.cli.flags import ModelFlags
from localspec.cli.output import Printer, note
from localspec.errors import InvalidOptions
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, Message, Request, TextPrompt
from localspec.protocol.results import Result
from localspec.wording import pairing_line

if TYPE_CHECKING:
    from localspec.client import Client

NO_FLAGS = ModelFlags()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """The flags of the request and of the output."""

    system: str | None = None
    "System prompt."
    raw: bool = False
    "Continue the text as it is, without the chat template."
    json: bool = False
    "Print one JSON object at the end instead of text."
    stream_json: bool = False
    "Print one JSON event per line while the answer is generated."
    stats: bool = False
    "Print the session's id and two lines of statistics to stderr."
    no_daemon: bool = False
    "Load the model in this process; there is no session then."
    go_on: Annotated[bool, Parameter(name=["--continue", "-c"])] = False
    "Continue the last session."
    session: Annotated[str | None, Parameter(completer=sessions)] = None
    "Continue the session of this id, which --stats prints."
    private: bool = False
    "Store no history, and learn nothing from this request."
    yes: bool = False
    "Download the default model without a question, if it is needed and not here."


NO_RUN_FLAGS = RunFlags()


def run(*prompt: str, how: RunFlags = NO_RUN_FLAGS, flags: ModelFlags = NO_FLAGS) -> int:
    """Answer a prompt; returns the exit code.

    Parameters
    ----------
    prompt
        The prompt; several words are joined by spaces.
    """
    text = _prompt(" ".join(prompt), raw=how.raw)
    _check(how)
    options = flags.options()
    if how.private:
        options = replace(options, remember=False)
    first.prepare(options, yes=how.yes, quiet=how.json or how.stream_json)
    printer = Printer(as_json=how.json, events=how.stream_json, stats=how.stats)
    try:
        if how.no_daemon:
            result = answer.local(_request(text, how, options), flags.config(), printer)
        else:
            flags.check_daemon()
            result = answer.remote(lambda client: _ask(client, text, how, options, printer))
    except KeyboardInterrupt:
        return printer.interrupted()
    finally:
        printer.close()
    return printer.result(result)


def _prompt(argument: str, *, raw: bool) -> str:
    piped = read_stdin()
    if not raw:
        piped = piped.removesuffix("\n")
    separator = "\n" if piped and argument and not piped.endswith("\n") else ""
    text = piped + separator + argument
    if not text:
        raise InvalidOptions("there is no prompt", "Give one as an argument, or pipe text in.")
    return text


def _check(how: RunFlags) -> None:
    session = how.go_on or how.session is not None
    given = {"--no-daemon": how.no_daemon, "--raw": how.raw, "--private": how.private}
    others = " and ".join(flag for flag, is_given in given.items() if is_given)
    if session and others:
        raise InvalidOptions(
            f"{'-c' if how.go_on else '--session'} cannot be combined with {others}",
            f"Drop {others}, or start a new session.",
        )
    if session and how.system is not None:
        raise InvalidOptions(
            "--system cannot be combined with -c or --session: a session keeps its system prompt",
            "Drop --system, or start a new session.",
        )
    if how.raw and how.system is not None:
        raise InvalidOptions(
            "--raw cannot be combined with --system: raw text has no system prompt", "Drop --raw or --system."
        )


def _messages(text: str, how: RunFlags) -> tuple[Message, ...]:
    system = (Message("system", how.system),) if how.system is not None else ()
    return (*system, Message("user", text))


def _request(text: str, how: RunFlags, options: Options) -> Request:
    prompt = TextPrompt(text) if how.raw else ChatPrompt(_messages(text, how))
    return Request(prompt=prompt, options=options)


async def _ask(client: Client, text: str, how: RunFlags, options: Options, printer: Printer) -> Result:
    if how.raw:
        return await answer.show(client.generate(text, raw=True, options=options), printer)
    if how.private:
        stream = client.generate(messages=_messages(text, how), options=options)
        return await answer.show(stream, printer)
    session = await _session(client, how, options, printer)
    return await answer.show(client.chat(session, text, options=options), printer)


async def _session(client: Client, how: RunFlags, options: Options, printer: Printer) -> str:
    if how.session is not None:
        return how.session
    if how.go_on:
        session = await answer.last_session(client, "Start one first: `localspec run PROMPT` without -c.")
        if how.stats:
            note(f"session {session}")
        return session
    opened = await answer.show(client.open(system=how.system, options=options), printer)
    if how.stats:
        note(f"{pairing_line(opened.pairing)}; session {opened.session}")
    return opened.session
