"""``localspec run`` and ``localspec complete``: one prompt or one gap, one answer."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Group, Parameter
from msgspec.structs import replace

from localspec.cli import answer
from localspec.cli.completers import sessions
from localspec.cli.flags import NO_FLAGS, SAMPLING, ModelFlags
from localspec.cli.output import ask_yes_or_no, can_ask, note
from localspec.cli.printer import Printer
from localspec.client import Client
from localspec.config import load_config
from localspec.errors import ContextExceeded, InvalidOptions, LocalspecError
from localspec.hub.default import LARGER, LATER, QUESTION, TOY, MissingModel, missing
from localspec.models.catalogue import AUTO, CATALOGUE
from localspec.models.library import is_here
from localspec.protocol.messages import ChatSend
from localspec.protocol.options import Options, check_value, parse_options
from localspec.protocol.requests import ChatPrompt, Delta, FimPrompt, Message, Request, Result, TextPrompt
from localspec.wording import pairing_sentence

if TYPE_CHECKING:
    from localspec.hub.choice import DownloadChoice

LONGEST_CHECKED = 4000
"""characters of a grammar that is checked in this process: a longer one could use up its stack"""
FORM = Group("Form of the answer", sort_key=0)
TextFile = Annotated[Path, Parameter(allow_leading_hyphen=True)]
"""a file that is read as text; ``-``: stdin"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AnswerFlags:
    json: bool = False
    "Print one JSON object at the end instead of text."
    stats: bool = False
    "Print two lines of statistics to stderr, and the id of the session if there is one."
    no_daemon: bool = False
    "Load the model in this process; there is no session then."
    yes: bool = False
    "Ask nothing: get a missing default model."


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunFlags(AnswerFlags):
    file: Annotated[tuple[Path, ...], Parameter(name=["--file", "-f"], allow_leading_hyphen=True)] = ()
    "Text before the prompt; -: stdin."
    system: str | None = None
    "System prompt."
    raw: bool = False
    "Continue the text as it is, without the chat template."
    stream_json: bool = False
    "Print one JSON event a line as the answer comes."
    go_on: Annotated[bool, Parameter(name=["--continue", "-c"])] = False
    "Continue the last session."
    session: Annotated[str | None, Parameter(completer=sessions)] = None
    "Continue the session of this id, which --stats prints."
    private: bool = False
    "Store no history, and learn nothing from this request."
    yes: bool = False
    "Ask nothing: get a missing model, call any tool."
    tools: tuple[Path, ...] = ()
    "Tools to call: FILE.py or FILE.json (MCP)."
    schema: Annotated[TextFile | None, Parameter(group=FORM)] = None
    "File with a JSON schema: the answer is JSON that matches it."
    grammar: Annotated[TextFile | None, Parameter(group=FORM)] = None
    "File with a grammar of the answer: GBNF (.gbnf), or Lark."
    regex: Annotated[str | None, Parameter(group=FORM)] = None
    "Regular expression that the whole answer matches."
    choice: Annotated[str | None, Parameter(group=FORM)] = None
    "Texts, separated by commas, of which the answer is one."
    think: Annotated[int | None, Parameter(group=SAMPLING)] = None
    "Most tokens of thoughts; 0: none."

    def check(self) -> None:
        """Raise :class:`InvalidOptions` for flags that exclude each other."""
        if self.go_on and self.session is not None:
            raise InvalidOptions(
                "-c cannot be combined with --session: both name a session", "Drop one of them."
            )
        kept = "-c" if self.go_on else "--session" if self.session is not None else None
        given = {"--no-daemon": self.no_daemon, "--raw": self.raw, "--private": self.private}
        others = " and ".join(flag for flag, is_given in given.items() if is_given)
        if kept and others:
            raise InvalidOptions(
                f"{kept} cannot be combined with {others}", f"Drop {others}, or start a new session."
            )
        if kept and self.system is not None:
            message = f"--system cannot be combined with {kept}: a session keeps its system prompt"
            raise InvalidOptions(message, "Drop --system, or start a new session.")
        if self.tools and (self.raw or self.no_daemon):
            given_flag = "--raw" if self.raw else "--no-daemon"
            raise InvalidOptions(f"--tools cannot be combined with {given_flag}", f"Drop {given_flag}.")
        if self.tools and not (self.yes or can_ask()):
            message = "stdin is not a terminal, so calls of tools cannot be confirmed"
            raise InvalidOptions(message, "Add --yes to make them all.")
        if self.raw and self.system is not None:
            message = "--raw cannot be combined with --system: raw text has no system prompt"
            raise InvalidOptions(message, "Drop --raw or --system.")

    def constrain_options(self, options: Options) -> Options:
        """``options`` with the form of the answer and its thoughts; raises :class:`InvalidOptions`."""
        check_value(Options, "think", self.think, said="--think")
        form: dict[str, object] = {"regex": self.regex, "think": self.think}
        form["grammar"] = self.grammar and answer.read_text(self.grammar)
        if self.schema is not None:
            try:
                form["schema"] = msgspec.json.decode(answer.read_text(self.schema))
            except msgspec.DecodeError as error:
                raise InvalidOptions(f"{self.schema} is not JSON: {error}", "Give a JSON schema.") from None
        if self.grammar is not None and self.grammar.suffix == ".gbnf":
            form["grammar_syntax"] = "gbnf"
        form["choice"] = None if self.choice is None else self.choice.split(",")
        parsed = parse_options({name: value for name, value in form.items() if value is not None})
        if parsed.has_form:
            from localspec.constraints.constraint import check_form  # without loading it for other answers

            check_form(parsed, LONGEST_CHECKED)
        return parsed.over(options)

    def messages(self, text: str) -> tuple[Message, ...]:
        system = (Message("system", self.system),) if self.system is not None else ()
        return (*system, Message("user", text))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CompleteFlags(AnswerFlags):
    prefix_file: TextFile | None = None
    "Text before the gap; without it, stdin."
    suffix_file: TextFile | None = None
    "Text after the gap; without it, nothing."
    language: str | None = None
    "The text's language, such as python; without it, guessed from --path."
    path: str | None = None
    "Path of the text's file: its name is given to the model, and its repository's n-gram memory learns it."


NO_RUN_FLAGS, NO_COMPLETE_FLAGS = RunFlags(), CompleteFlags()


def run(*prompt: str, how: RunFlags = NO_RUN_FLAGS, flags: ModelFlags = NO_FLAGS) -> int:
    """Answer a prompt; returns the exit code.

    Parameters
    ----------
    prompt
        The prompt; several words are joined by spaces.
    """
    text = _prompt(" ".join(prompt), how)
    how.check()
    options = flags.options()
    if how.private:
        options = replace(options, remember=False)
    constrained = how.constrain_options(options)
    if not how.go_on and how.session is None:  # a session has its model
        _prepare(options, yes=how.yes, quiet=how.json or how.stream_json)
    printer = Printer(as_json=how.json, events=how.stream_json, stats=how.stats)

    async def ask(client: Client) -> Result:
        if how.tools:
            from localspec.cli.tools import Terminal, open_tools  # loads all families of markup

            printer.messages.extend(how.messages(text))
            async with open_tools(how.tools) as box:
                terminal = Terminal(client, box, printer, constrained, yes=how.yes)
                if how.private:
                    return await terminal.converse(text)
                async with _open_session(client, how, options, printer) as session:
                    return await terminal.converse(text, session)
        if how.raw:
            return await answer.show(client.generate(text, raw=True, options=constrained), printer)
        if how.private:  # without a session, which the daemon would keep if this process were killed
            messages = how.messages(text)
            return await answer.show(client.generate(messages=messages, options=constrained), printer)
        async with _open_session(client, how, options, printer) as session:
            turn = ChatSend(session=session, content=text, options=constrained)
            return await answer.show(client.chat(turn), printer)

    request = Request(
        prompt=TextPrompt(text) if how.raw else ChatPrompt(how.messages(text)), options=constrained
    )
    return _answer(request, how, flags, printer, ask)


def complete(*, how: CompleteFlags = NO_COMPLETE_FLAGS, flags: ModelFlags = NO_FLAGS) -> int:
    """Fill in the middle; returns the exit code."""
    prompt = FimPrompt(
        prefix=answer.read_text(how.prefix_file) if how.prefix_file else answer.read_stdin(),
        suffix=answer.read_text(how.suffix_file) if how.suffix_file else "",
        path=None if how.path is None else os.path.abspath(how.path),
        language=how.language,
        tidy=True,
        invoked=True,
    )
    if not prompt.prefix and how.prefix_file is None:
        raise InvalidOptions("there is no prefix", "Give --prefix-file, or pipe text in.")
    options = flags.options()
    _prepare(options, yes=how.yes, quiet=how.json)
    printer = Printer(as_json=how.json, stats=how.stats)

    async def ask(client: Client) -> Result:
        where = {name: getattr(prompt, name) for name in ("language", "path") if getattr(prompt, name)}
        stream = client.complete(prompt.prefix, prompt.suffix, options=options, trigger="invoked", **where)
        return (await answer.show(stream, printer)).result

    source = "run" if prompt.path is None else f"file:{prompt.path}"
    request = Request(prompt=prompt, options=options, source=source, priority="completion")
    return _answer(request, how, flags, printer, ask)


def _answer(
    request: Request,
    how: AnswerFlags,
    flags: ModelFlags,
    printer: Printer,
    ask: Callable[[Client], Awaitable[Result]],
) -> int:
    """Answer a request here, or ``ask`` the daemon, and print the result; returns the exit code."""
    try:
        if how.no_daemon:
            from localspec.cli.local import answer_here  # loads the engine

            result = answer_here(request, flags.config(), printer)
        else:
            flags.check_daemon()
            result = answer.remote(ask)
        if isinstance(request.prompt, FimPrompt):
            printer.delta(Delta(result.text, ()))
    except KeyboardInterrupt:
        return printer.print_interrupted()
    finally:
        printer.close()
    return printer.result(result)


def _prepare(options: Options, *, yes: bool, quiet: bool) -> None:
    """Download the default model if these options need it and it is not here: after a question, or with
    ``yes`` without one. ``quiet``: no question, as a program reads the output. Where it cannot be downloaded,
    one line says why, and the bundled model answers."""
    config = load_config()
    model = options.model or config.options.model or AUTO
    if model != AUTO:
        may_pull = yes and config.auto_pull != "off" and model in CATALOGUE
        if may_pull and not is_here(model, config.model_dirs):
            MissingModel(agreed=True, name=model).obtain(_fetch)
        return
    wanted = missing(options, yes=yes)
    if wanted is None:
        return
    if not wanted.agreed and (wanted.refused or quiet or not can_ask()):
        note(f"localspec: {TOY}")
        return
    if not wanted.agreed and not ask_yes_or_no(QUESTION, otherwise=True):
        wanted.decline()
        note(LATER)
        return
    try:
        wanted.obtain(_fetch)
        note(LARGER)
    except LocalspecError as error:
        note(f"localspec: the bundled model answers: {error.message}.")


def _fetch(plan: DownloadChoice, *notes: str) -> None:
    from localspec.cli.pull import fetch  # loads the hub's client

    fetch(plan, *notes)


def _prompt(argument: str, how: RunFlags) -> str:
    """The text of the files, then of stdin, unless another flag reads that, then the argument."""
    is_read = answer.STDIN in (*how.file, how.schema, how.grammar)
    piped = "" if is_read else answer.read_stdin()
    if argument and not (piped or is_read) and answer.is_empty_pipe():
        remedy = "Look at the command before the pipe; for the prompt alone: localspec run … < /dev/null."
        raise InvalidOptions("the pipe to stdin is empty", remedy)
    piped = "".join(map(answer.read_text, how.file)) + piped
    if not how.raw:
        piped = piped.removesuffix("\n")
    separator = "\n" if piped and argument and not piped.endswith("\n") else ""
    text = piped + separator + argument
    if not text:
        raise InvalidOptions("there is no prompt", "Give one as an argument, or pipe text in.")
    return text


@asynccontextmanager
async def _open_session(
    client: Client, how: RunFlags, options: Options, printer: Printer
) -> AsyncIterator[str]:
    """The session of a run; a new one is deleted if its first message is refused."""
    remark = None
    if how.session is not None:
        session = how.session
    elif how.go_on:
        session = await answer.last_session(client, "Start one first: `localspec run PROMPT` without -c.")
        remark = f"session {session}"
    else:
        opened = await answer.show(client.open(system=how.system, once=True, options=options), printer)
        session, remark = opened.session, f"{pairing_sentence(opened.pairing)}; session {opened.session}"
    if how.stats and remark is not None:
        note(remark)
    try:
        yield session
    except (InvalidOptions, ContextExceeded):
        is_answered = any(message.role == "assistant" for message in printer.messages)
        if not (how.go_on or how.session or is_answered):
            await client.delete_session(session)
        raise
