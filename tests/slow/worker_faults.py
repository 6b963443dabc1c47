"""Faults of a worker."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil

from tests.daemon.harness import Raw, code, gone
from tests.slow.scene import MB, PROMPT, SHORT, Scene, Skipped, Strike
from tests.waiting import until

CRASHED = ("engine_crashed", "out_of_memory")
PIDFD_GETFD = 438


def by_signal(number: signal.Signals) -> Strike:
    async def strike(scene: Scene, client: Raw) -> None:
        worker = await scene.begin(client)
        worker.send_signal(number)
        struck = time.monotonic()
        answer = await client.response("victim")
        assert code(answer) == "engine_crashed" and number.name in answer["error"]["message"], answer
        assert time.monotonic() - struck < 1.0
        await until(lambda: gone(worker), "the worker is gone")

    return strike


async def worker_stops(scene: Scene, client: Raw) -> None:
    """SIGSTOP: no heartbeats any more, as on a machine that hangs in a driver."""
    worker = await scene.begin(client)
    worker.suspend()
    answer = await client.response("victim")
    assert code(answer) == "engine_crashed" and "hung" in answer["error"]["message"], answer
    await until(lambda: gone(worker), "the worker is gone")


async def idle_worker_stops(scene: Scene, client: Raw) -> None:
    await scene.answer(client, "before", SHORT)
    worker = await scene.worker(client)
    worker.suspend()
    answer = await client.call("victim", "generate", prompt=PROMPT, raw=True, options=SHORT)
    assert code(answer) == "engine_crashed" and "hung" in answer["error"]["message"], answer


@asynccontextmanager
async def loading(scene: Scene, client: Raw) -> AsyncIterator[psutil.Process]:
    """The bundled model is being loaded: inside is a random moment of that. Then its client is answered."""
    await client.call("unload", "models/unload", model="bundled")
    others = {process.pid for process in scene.daemon.workers()}
    await client.ask("victim", "generate", prompt=PROMPT, raw=True, options=SHORT)
    born: list[psutil.Process] = []

    def is_born() -> bool:
        # Not before it has become a program of its own: until then the daemon's thread is lent to it.
        new = [process for process in scene.daemon.workers() if process.pid not in others]
        born[:] = [process for process in new if "localspec.worker" in process.cmdline()]
        return bool(born)

    await until(is_born, "a worker is started")
    await scene.moment()
    yield born[0]
    answer = await client.response("victim")
    assert code(answer) == "engine_crashed", answer
    await until(lambda: gone(born[0]), "the worker is gone")


async def loading_worker_dies(scene: Scene, client: Raw) -> None:
    async with loading(scene, client) as worker:
        worker.kill()


async def loading_worker_stops(scene: Scene, client: Raw) -> None:
    async with loading(scene, client) as worker:
        worker.suspend()


async def memory_ends(scene: Scene, client: Raw) -> None:
    """Not a byte more for a worker at work."""
    worker = await scene.begin(client)
    worker.rlimit(psutil.RLIMIT_AS, (1, -1))
    await client.notify("$/cancelRequest", id="victim")
    many = "".join(f"value_{scene.rng.random()} = " for _ in range(60))
    await client.ask("more", "generate", prompt=many, raw=True, options=SHORT)
    for id in ("victim", "more"):
        answer = await client.response(id)
        assert "result" in answer or code(answer) in CRASHED, answer
    # It may have survived: nobody is to be answered by what is left of it.
    await client.call("gone", "models/unload", model="bundled")
    await until(lambda: gone(worker), "the worker is gone")


async def no_memory_to_load(scene: Scene, client: Raw) -> None:
    """The daemon's children inherit a limit that no model can be loaded under."""
    daemon = psutil.Process(scene.daemon.process.pid)
    await client.call("unload", "models/unload", model="bundled")
    # Of what is written to: address space is mostly what its threads may want one day.
    before = daemon.rlimit(psutil.RLIMIT_DATA)
    daemon.rlimit(psutil.RLIMIT_DATA, (daemon.memory_info().data + 32 * MB, before[1]))
    try:
        answer = await client.call("victim", "generate", prompt=PROMPT, raw=True, options=SHORT)
    finally:
        daemon.rlimit(psutil.RLIMIT_DATA, before)
    assert "result" not in answer, answer
    error = answer["error"]["data"]
    assert error["code"] in (*CRASHED, "model_invalid", "model_too_large", "internal"), answer
    assert error["message"] and error["remedy"]


def _socket_of(worker: psutil.Process) -> socket.socket:
    """A copy of a worker's end of its socket, out of its own table of files."""
    number = int(worker.cmdline()[-1])
    if not hasattr(os, "pidfd_open"):
        raise Skipped("no file of another process can be had here")
    handle = os.pidfd_open(worker.pid)
    try:
        copy = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, handle, number, 0)
    finally:
        os.close(handle)
    if copy < 0:
        raise Skipped(f"no file of another process can be had here: {os.strerror(ctypes.get_errno())}")
    return socket.socket(fileno=copy)


async def frame_is_damaged(scene: Scene, client: Raw) -> None:
    worker = await scene.begin(client)
    with _socket_of(worker) as wire:
        wire.sendall(scene.rng.choice((b"\xff" * 64, b"\x05\0\0\0hello", b"\x01\0\0\0\xc1", b"\0\0\0\0")))
    answer = await client.response("victim")
    assert code(answer) == "engine_crashed", answer
    await until(lambda: gone(worker), "the worker is gone")


async def socket_is_closed(scene: Scene, client: Raw) -> None:
    worker = await scene.begin(client)
    with _socket_of(worker) as wire:
        wire.shutdown(socket.SHUT_RDWR)
    answer = await client.response("victim")
    assert code(answer) == "engine_crashed", answer
    await until(lambda: gone(worker), "the worker is gone")
