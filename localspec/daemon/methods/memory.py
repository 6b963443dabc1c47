"""Methods of the n-gram memory, whose files the command `localspec memory` works on.

The daemon has neither numpy nor a tokenizer; a worker has both, but would have to load a model to count
some files. ``localspec memory`` takes a moment, needs no weights, and goes well with whoever has the
files open. What it has to say besides its result goes where the daemon's log goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from typing import TypeVar

import msgspec

from localspec import home, process
from localspec.daemon.daemon import Daemon
from localspec.daemon.relay.exchange import Exchange
from localspec.errors import Gone, InvalidOptions, LocalspecError, from_dict
from localspec.protocol import messages
from localspec.protocol.memory import Forgotten, MemoryStats, Primed
from localspec.protocol.options import Options

COMMAND = process.python("localspec", "memory")

T = TypeVar("T")


class Failure(msgspec.Struct):
    """What the command prints, as far as it tells whether it failed."""

    error: dict[str, str] | None = None


async def stats(daemon: Daemon, exchange: Exchange, params: messages.Nothing) -> MemoryStats:
    return await _run(daemon, exchange, MemoryStats, "stats")


async def forget(daemon: Daemon, exchange: Exchange, params: messages.MemoryForget) -> Forgotten:
    arguments = ["--yes"]
    if params.workspace is not None:
        arguments.append(f"--workspace={absolute(params.workspace)}")
    if params.source is not None:
        await daemon.pool.forget(params.source)
        arguments.append(f"--source={params.source}")
    return await _run(daemon, exchange, Forgotten, "forget", *arguments)


async def forget_chat(daemon: Daemon, source: str) -> None:
    """Forget what a deleted chat taught, if anything was ever learnt from anybody.

    No cancel ends that, and no lost client: nobody can delete a chat again that is no longer there.
    """
    if not await asyncio.to_thread(_has_tables):
        return
    try:
        async with daemon.memory_turn:
            process = await _start("forget", "--yes", f"--source={source}")
            output, _ = await process.communicate()
        _read(output, Forgotten)
    except LocalspecError as error:
        error.remedy = f"The chat itself is deleted. Run `localspec memory forget --yes --source {source}`."
        raise


def _has_tables() -> bool:
    return any((home.data_dir() / "memory").rglob("*.ngm"))


async def prime(daemon: Daemon, exchange: Exchange, params: messages.MemoryPrime) -> Primed:
    sections = daemon.pool.sections
    options = await asyncio.to_thread(sections.merged, Options(workspace=params.workspace))
    arguments = [f"--model={options.model}", "--stdin"]
    if params.workspace is not None:
        arguments.append(f"--workspace={absolute(params.workspace)}")
    else:
        for text in params.texts:
            absolute(text.path)
    paths = [absolute(path) for path in params.paths]
    if not paths and not params.texts:
        raise InvalidOptions("there is nothing to learn", "Give paths, or texts.")
    return await _run(
        daemon, exchange, Primed, "prime", *arguments, *paths, input=msgspec.json.encode(params.texts)
    )


def absolute(path: str) -> str:
    """``path``; raises :class:`InvalidOptions` if where it leads depends on whose directory is meant."""
    if not os.path.isabs(path):
        remedy = "The daemon has a directory of its own: send the whole path."
        raise InvalidOptions(f"{path[:80]!r} is no absolute path", remedy)
    return path


async def _run(daemon: Daemon, exchange: Exchange, type: type[T], *arguments: str, input: bytes = b"") -> T:
    """The command's result; one runs at a time. A cancel ends it, and what was learned stays."""
    if any("\0" in argument for argument in arguments):
        raise InvalidOptions("a path or name has a NUL in it", "No file has such a name.")
    async with contextlib.AsyncExitStack() as turn:
        try:
            async with exchange.waiting():
                await turn.enter_async_context(daemon.memory_turn)
        except TimeoutError:
            raise Gone("cancelled before it began") from None
        process = await _start(*arguments)
        with exchange.cancelled_by(lambda: _interrupt(process)):
            output, _ = await process.communicate(input)
    if exchange.cancelled and process.returncode:
        raise Gone("cancelled; what was learned until then stays learned")
    return _read(output, type)


async def _start(*arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        "--json",
        stdin=PIPE,
        stdout=PIPE,
        start_new_session=True,
        **process.surroundings(),
    )


def _interrupt(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)


def _read(output: bytes, type: type[T]) -> T:
    try:
        if failure := msgspec.json.decode(output, type=Failure).error:
            raise from_dict(failure)
        return msgspec.json.decode(output, type=type)
    except msgspec.MsgspecError:
        raise LocalspecError("`localspec memory` ended without an answer") from None
