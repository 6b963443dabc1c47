"""Methods of the n-gram memory, run by the command `localspec memory`: the daemon has neither numpy nor a
tokenizer, and a worker would have to load a model first."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from asyncio.subprocess import PIPE, Process
from typing import TypeVar

import msgspec

from localspec import home, process
from localspec.daemon.daemon import Daemon
from localspec.daemon.methods.generation import absolute
from localspec.daemon.relay import Exchange, Receiver
from localspec.errors import Gone, InvalidOptions, LocalspecError, from_dict
from localspec.protocol import messages
from localspec.protocol.messages import Forgotten, MemoryStats, Primed
from localspec.protocol.options import Options

COMMAND = process.python("localspec", "memory")

T = TypeVar("T")


class Failure(msgspec.Struct):
    error: dict[str, str] | None = None


async def stats(daemon: Daemon, exchange: Exchange, params: messages.NoParams) -> MemoryStats:
    return await _run(daemon, exchange, MemoryStats, "stats")


async def forget(daemon: Daemon, exchange: Exchange, params: messages.MemoryForget) -> Forgotten:
    arguments = ["--yes"]
    if params.workspace is not None:
        arguments.append(f"--workspace={absolute(params.workspace)}")
    if params.source is not None:
        await daemon.pool.forget(params.source)
        arguments.append(f"--source={params.source}")
    if len(arguments) == 1:
        arguments.append("--all")
    return await _run(daemon, exchange, Forgotten, "forget", *arguments)


async def forget_chat(daemon: Daemon, source: str) -> None:
    """Forget what was learnt from a deleted chat, if there are tables. Neither a cancel nor the loss of the
    client ends this: a deleted chat cannot be deleted again."""
    tables = (home.data_dir() / "memory").rglob("*.ngm")
    if not await asyncio.to_thread(any, tables):
        return
    try:
        await _run(daemon, Receiver(), Forgotten, "forget", "--yes", f"--source={source}")
    except LocalspecError as error:
        error.remedy = (
            "The chat itself is deleted. Forget what was learnt from it with "
            f"`localspec memory forget --yes --source {source}`."
        )
        raise


async def prime(daemon: Daemon, exchange: Exchange, params: messages.MemoryPrime) -> Primed:
    options = await asyncio.to_thread(daemon.pool.sections.merge_options, Options())
    arguments = [f"--model={options.model}", "--stdin"]
    if params.workspace is not None:
        arguments.append(f"--workspace={absolute(params.workspace)}")
    else:
        for text in params.texts:
            absolute(text.path)
    paths = [absolute(path) for path in params.paths]
    if not paths and not params.texts:
        raise InvalidOptions("there is nothing to learn: no paths and no texts", "Give paths or texts.")
    return await _run(
        daemon, exchange, Primed, "prime", *arguments, *paths, input=msgspec.json.encode(params.texts)
    )


async def _run(daemon: Daemon, exchange: Receiver, type: type[T], *arguments: str, input: bytes = b"") -> T:
    """Run the command, one at a time; returns its result. A cancel ends it, and keeps what was learnt."""
    if any("\0" in argument for argument in arguments):
        raise InvalidOptions("a path or name contains a NUL character", "Remove the NUL character.")
    async with contextlib.AsyncExitStack() as turn:
        async with exchange.wait_while_needed("the request was cancelled before it began"):
            await turn.enter_async_context(daemon.memory_turn)
        command = (*COMMAND, *arguments, "--json")
        running = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, start_new_session=True, **process.surroundings()
        )
        with exchange.call_on_cancel(lambda: _interrupt(running)):
            output, _ = await running.communicate(input)
    if exchange.cancelled and running.returncode:
        raise Gone("the request was cancelled; its work until then is kept", "Send it again to do the rest.")
    try:
        if failure := msgspec.json.decode(output, type=Failure).error:
            raise from_dict(failure)
        return msgspec.json.decode(output, type=type)
    except msgspec.MsgspecError:
        raise LocalspecError(
            "the process that the daemon started for the n-gram memory failed",
            "See its error with `localspec daemon logs`.",
        ) from None


def _interrupt(running: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        running.send_signal(signal.SIGINT)
