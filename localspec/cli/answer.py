"""One answer of a model, from the daemon or from an engine in this process, sent to the same printer.

The flags of every command with a model are declared here once, with the shell completions of a word being
typed. An error gives no completions.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from cyclopts import Group, Parameter
from msgspec.structs import replace

from localspec._version import __version__
from localspec.cli.output import Printer, note, warnings_as_notes
from localspec.config import (
    Config,
    DaemonConfig,
    HttpConfig,
    environment_options,
    load_config,
    override,
    plain_key,
)
from localspec.config import find as find_setting
from localspec.config import settings as all_settings
from localspec.errors import InvalidOptions, SessionNotFound
from localspec.home import here, plain, workspace_of
from localspec.models.catalogue import BUNDLED
from localspec.protocol.messages import Completions, ModelProgress, SpeculationDegraded, StreamDelta
from localspec.protocol.options import Options, ProposerName, check_value, choices, meanings, parse_options
from localspec.protocol.requests import Degraded, Delta, EngineConfig, Progress, Request, Result
from localspec.wording import one_line

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from localspec.client import Client, Event
    from localspec.client import Stream as RemoteStream
    from localspec.models.pair import Pair
    from localspec.protocol.messages import ModelDescription

T = TypeVar("T")
SHOWN_TITLE = 60
STDIN = Path("-")
LONGEST_TEXT = 16 << 20
"""bytes of a text that is read; the daemon accepts fewer in one message"""
NO_PATHS = ("auto", "bundled", "none")
"""names of models that are no paths"""


def models(_context: CompletionContext) -> list[str]:
    """The names of models that can be used."""
    return _names(lambda model: model.problem is None)


def listed(_context: CompletionContext) -> list[str]:
    """The names of all models, also of those that cannot be used."""
    return _names(lambda _model: True)


def _names(is_meant: Callable[[ModelDescription], bool]) -> list[str]:
    """The names of models; only changed files are read."""
    from localspec.models.index import read_disk

    meant = filter(is_meant, read_disk(load_config().model_dirs).models)
    return _typeable({"bundled", *(name for model in meant for name in (model.names or (model.id,)))})


def _typeable(names: set[str]) -> list[str]:
    """The names without control characters, which would command a terminal."""
    return sorted(name for name in names if one_line(name) == name)


def drafts(context: CompletionContext) -> list[str]:
    """The values for a draft model."""
    return ["auto", "none", *models(context)]


def pulled(_context: CompletionContext) -> list[str]:
    """The names of models that `models pull` downloaded."""
    from localspec.hub import records

    return _typeable({each.name for each in records.read()})


def settings(context: CompletionContext) -> Iterator[tuple[str, str]]:
    """The names of settings with their meanings; also whole keys once a word is begun."""
    for setting in all_settings():
        yield setting.name, setting.meaning
        if context.incomplete and setting.table:
            yield setting.key, setting.meaning


def values(context: CompletionContext) -> list[str]:
    """Return the possible values of the setting whose key was typed before: for ``model`` and ``draft`` the
    names of models, for others their choices. The list is empty for a setting without choices."""
    setting = find_setting(context["key"].raw or "")
    of_models = {"model": models, "draft": drafts}.get(setting.name)
    return list(choices(setting.struct, setting.name)) if of_models is None else of_models(context)


def sessions(_context: CompletionContext) -> Iterator[tuple[str, str]]:
    """The sessions of a running daemon with their titles; no daemon is started."""
    for session in remote(lambda client: client.sessions(), start=False):
        yield session.session, one_line(session.title or "")[:SHOWN_TITLE]


def from_here(options: Options) -> Options:
    """``options`` with absolute paths and the workspace of this directory, for the daemon in another one.

    Raises :class:`InvalidOptions` for a configuration that is not valid, also if a daemon runs with an
    earlier one.
    """
    load_config()
    values = {f: v for f in options.__struct_fields__ if (v := getattr(options, f)) is not None}
    for name in ("model", "draft"):
        if name in values and values[name] not in NO_PATHS:
            from localspec.models.library import absolute  # loads all that reads models

            values[name] = absolute(values[name])
    if given := values.get("workspace"):
        values["workspace"] = plain(os.path.abspath(os.path.expanduser(given)))
    elif given is None and (workspace := workspace_at(here())) is not None:
        values["workspace"] = workspace
    return parse_options(values)


def workspace_at(directory: Path) -> str | None:
    """The workspace of a directory: its git repository."""
    root = workspace_of(directory)
    return None if root is None else plain(str(root))


def read_stdin() -> str:
    """The piped text; empty if stdin is a terminal or closed. Raises :class:`InvalidOptions`."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    try:
        return _text_of(sys.stdin.buffer.read(LONGEST_TEXT + 1), "stdin")
    except OSError:
        return ""  # closed: as good as empty


def read_text(path: Path) -> str:
    """The text of a file; ``-`` is stdin. Raises :class:`InvalidOptions`."""
    if path == STDIN:
        return read_stdin()
    try:
        with path.open("rb") as file:
            return _text_of(file.read(LONGEST_TEXT + 1), str(path))
    except OSError as error:
        raise InvalidOptions(
            f"{path} cannot be read: {error.strerror}", "Give a readable text file."
        ) from None


def _text_of(data: bytes, name: str) -> str:
    if len(data) > LONGEST_TEXT:
        raise InvalidOptions(f"{name} has more than {LONGEST_TEXT >> 20} MiB", "Give a shorter text.")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidOptions(f"{name} is not UTF-8 text", "Convert it, for example with iconv.") from None


def is_empty_pipe() -> bool:
    """Return True if stdin is a pipe; its text must have been read, and be empty."""
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, AttributeError):
        return False


def chosen(options: Options, config: Config) -> tuple[Options, EngineConfig, Pair]:
    """The options over the configured ones, and the pair that they choose with the settings to load it."""
    from localspec.engine.load import choose_here
    from localspec.models.library import Sections

    sections = Sections(config)
    merged = sections.merged(options)
    model, draft, backend = merged.model or BUNDLED, merged.draft or "auto", merged.backend or "auto"
    engine = sections.engine(model)
    return merged, engine, choose_here(model, draft, config.model_dirs, backend=backend, config=engine)


def local(request: Request, config: Config, printer: Printer, *, whole: bool = False) -> Result:
    """Load the model in this process, answer, and free it. With ``whole``, no text is printed while it is
    generated."""
    from localspec.engine.engine import Stream
    from localspec.engine.load import load_engine

    began = time.monotonic()
    options, engine_config, pair = chosen(request.options, config)
    with (
        warnings_as_notes(),
        load_engine(
            pair,
            config=engine_config,
            progress=lambda stage, fraction: printer.progress(f"loading the {stage} model", fraction),
            memory=True,
        ) as engine,
    ):
        printer.loaded_s = time.monotonic() - began
        sequence = engine.submit(replace(request, options=options))
        stream = Stream(engine, sequence)
        try:
            for event in stream.events():
                if isinstance(event, Delta) and not whole:
                    printer.delta(event)
                elif isinstance(event, Progress):
                    printer.progress("reading the prompt", event.fraction)
                elif isinstance(event, Degraded):
                    printer.degraded(event.source, event.to, event.reason)
        except KeyboardInterrupt:
            stream.close()
            printer.partial = next((event for event in sequence.events if isinstance(event, Result)), None)
            raise
        return stream.result


def remote(ask: Callable[[Client], Awaitable[T]], *, start: bool = True) -> T:
    """Run ``ask`` on a connection to the daemon; with ``start``, start the daemon if none runs."""
    return asyncio.run(_connected(ask, start=start))


async def _connected(ask: Callable[[Client], Awaitable[T]], *, start: bool) -> T:
    from localspec.client import connect

    started: list[bool] = []

    def on_start(why: str) -> None:
        note(f"localspec: restarting the daemon: {why}." if why else "localspec: starting the daemon.")
        started.append(True)

    async with await connect(start=start, on_start=on_start) as client:
        if started and (problem := (await client.status()).history_problem):
            note(f"localspec: {problem}")
        if start and (warning := _not_replaced(client)):
            note(f"localspec: {warning}")
        return await ask(client)


def _not_replaced(client: Client) -> str:
    """The reason why the daemon should be replaced, and why it was not; empty if it is up to date."""
    if not client.replaceable:
        return ""
    version = client.welcome.server.version
    versions = f"the daemon is localspec {version}, this command is {__version__}"
    why = versions if client.outdated else "config.toml has changed since the daemon started"
    kept = client.kept_for or "config.toml cannot be read"
    return f"{why}; {kept}. It is replaced when it is idle, or at once by `localspec daemon restart`."


async def last_session(client: Client, remedy: str) -> str:
    """The id of the last used session; raises :class:`SessionNotFound`, with ``remedy``."""
    sessions = await client.sessions(limit=1)
    if not sessions:
        raise SessionNotFound("there is no stored session to continue", remedy)
    return sessions[0].session


async def show(stream: RemoteStream[T], printer: Printer) -> T:
    """Print the events of a stream and return its result. On Ctrl-C, cancel the request in the daemon first.

    The result so far is then ``printer.partial``.
    """
    try:
        async for event in stream.events():
            _show(event, printer)
        result = await stream.result()
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):  # the daemon may be gone as well: nothing left to cancel
            end: object = await stream.cancel()
            end = end.result if isinstance(end, Completions) else end
            printer.partial = end if isinstance(end, Result) else None
        raise
    printer.loaded_s += stream.loaded_s or 0.0
    return result


def _show(event: Event, printer: Printer) -> None:
    if isinstance(event, StreamDelta):
        printer.delta(event)
    elif isinstance(event, ModelProgress):
        printer.progress(f"loading the {event.stage} model", event.fraction)
    elif isinstance(event, SpeculationDegraded):
        printer.degraded(event.source, event.to, event.reason)
    else:
        printer.progress(event.stage, event.fraction)


ModelName = Annotated[str | None, Parameter(name=["--model", "-m"], completer=models)]
DraftName = Annotated[str | None, Parameter(completer=drafts)]
BackendName = Literal["auto", "llama_cpp", "mlx"]
AsJson = Annotated[bool, Parameter(name="--json", help="Print one JSON object.")]

MODEL = Group("Model", sort_key=1)
SAMPLING = Group("Sampling", sort_key=2)
SPECULATION = Group("Speculation", sort_key=3)

PROPOSERS = f"Source of draft tokens. {'; '.join(f'{name}: {what}' for name, what in meanings().items())}."


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelFlags:
    """See :class:`localspec.protocol.options.Options` for the ranges."""

    model: Annotated[str | None, Parameter(name=["--model", "-m"], group=MODEL, completer=models)] = None
    "Model to answer with: a name of `localspec models list`, or a path."
    draft: Annotated[str | None, Parameter(group=MODEL, completer=drafts)] = None
    "Draft model: a name, a path, `none` or `auto`; otherwise the configured one, or `auto` with -m."
    backend: Annotated[BackendName | None, Parameter(group=MODEL)] = None
    "Backend that runs the model: llama_cpp for GGUF files, mlx for MLX directories."
    max_tokens: Annotated[int | None, Parameter(group=SAMPLING)] = None
    "Maximum tokens of the answer; 0 only reads the prompt. Default: the rest of the context, 256 to fill in."
    temperature: Annotated[float | None, Parameter(group=SAMPLING)] = None
    "0 is greedy; otherwise the configured value, the model's own, or 0.7."
    top_k: Annotated[int | None, Parameter(group=SAMPLING)] = None
    "Sample among the k most probable tokens; 0: all."
    top_p: Annotated[float | None, Parameter(group=SAMPLING)] = None
    "Sample among the fewest tokens with this total probability."
    min_p: Annotated[float | None, Parameter(group=SAMPLING)] = None
    "Drop tokens less probable than this share of the most probable one."
    repeat_penalty: Annotated[float | None, Parameter(group=SAMPLING)] = None
    "Above 1: make tokens that occurred before less probable."
    seed: Annotated[int | None, Parameter(group=SAMPLING)] = None
    "A seed gives the same text, with any proposer."
    stop: Annotated[tuple[str, ...], Parameter(group=SAMPLING)] = ()
    "End the answer before this text; may be repeated."
    proposer: Annotated[ProposerName | None, Parameter(group=SPECULATION, help=PROPOSERS)] = None
    k: Annotated[int | None, Parameter(name="-k", group=SPECULATION)] = None
    "Maximum draft tokens per round, 1 to 20."
    exactness: Annotated[Literal["auto", "strict", "fast"] | None, Parameter(group=SPECULATION)] = None
    "At temperature 0 or with a seed. strict: plain decoding's text to the byte; auto: where that is free."
    opt: Annotated[tuple[str, ...], Parameter(name="--opt")] = ()
    "Any other setting of `localspec config show`, such as remember=false."

    def options(self) -> Options:
        """The options of the flags, validated; raises :class:`InvalidOptions`."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "opt"}
        values = {name: value for name, value in given.items() if value not in (None, ())}
        for name, value in values.items():
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            check_value(Options, name, value, said=flag)
        options = parse_options(values).over(environment_options())
        changed = override(Config(options=options), self._pairs()).options
        return from_here(changed)

    def config(self) -> Config:
        """The configuration with the settings of ``--opt``; its options are those of :meth:`options`."""
        config = load_config()
        # Here they would count as the file's, and the file's draft as the one beside --opt model=….
        return replace(override(config, self._pairs()), options=config.options)

    def check_daemon(self) -> None:
        """Raise :class:`InvalidOptions` for settings that a request to the daemon cannot change."""
        for key in map(plain_key, self._pairs()):
            name, change = key.rpartition(".")[2], f"Run `localspec config set {key} VALUE`"
            if name in (*DaemonConfig.__struct_fields__, *HttpConfig.__struct_fields__):
                raise InvalidOptions(f"{key} is a setting of the daemon, not of a request", f"{change}.")
            if name in EngineConfig.__struct_fields__:
                remedy = f"{change}, or add --no-daemon."
                raise InvalidOptions(f"{key} cannot be changed for one request", remedy)

    def _pairs(self) -> dict[str, str]:
        """The keys as typed, and their values."""
        pairs: dict[str, str] = {}
        for item in self.opt:
            key, equals, text = item.partition("=")
            if not equals:
                raise InvalidOptions(f"--opt {item!r} has no value", "Write --opt key=value.")
            pairs[key] = text
        return pairs
