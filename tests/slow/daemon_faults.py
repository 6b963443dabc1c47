"""Faults of the daemon, its disk, its queue and its clock."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import time

from tests.daemon.harness import Frame, Raw, code, gone, raw
from tests.slow.scene import LONG, PROMPT, QUESTION, SHORT, Scene
from tests.waiting import until

ORPHAN_S = 1.0


async def chat(scene: Scene, client: Raw, options: Frame) -> str:
    """A chat whose first answer has come to a random moment; returns the session."""
    session: str = (await client.call("open", "session/open", options=options))["result"]["session"]
    await client.ask("victim", "chat/send", session=session, content=QUESTION)
    await client.notice("stream/delta")
    await scene.moment()
    return session


async def check_history(scene: Scene, session: str, received: str) -> None:
    """After a restart: the file is sound, the question is there, the answer is what was generated first."""
    with contextlib.closing(sqlite3.connect(scene.home / "data" / "history.sqlite")) as history:
        assert history.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    async with raw(scene.daemon) as client:
        content = (await client.call("get", "session/get", session=session))["result"]["messages"]
        assert (content[0]["role"], content[0]["content"]) == ("user", QUESTION)
        answer = content[1]["content"] if len(content) > 1 else ""
        assert answer.startswith(received) or received.startswith(answer), (answer, received)
        tables = (await client.call("memory", "memory/stats"))["result"]["tables"]
        assert all(table["quarantined"] == [] for table in tables)


def _received(client: Raw) -> str:
    deltas = [f["params"] for f in client.seen if f.get("method") == "stream/delta"]
    return "".join(delta["text"] for delta in deltas if delta["request"] == "victim")


async def daemon_is_killed(scene: Scene, client: Raw) -> None:
    session = await chat(scene, client, LONG)
    workers = scene.daemon.workers()
    scene.daemon.stop(signal.SIGKILL)
    killed = time.monotonic()
    await until(lambda: all(map(gone, workers)), "no worker is left")
    assert time.monotonic() - killed < ORPHAN_S, "orphans lived too long"
    with contextlib.suppress(Exception):  # the connection ends in whatever way
        while True:
            await client.next()
    scene.start()
    await check_history(scene, session, _received(client))


async def learnt(scene: Scene) -> int:
    """Return the number of tokens that the memory was taught."""
    async with raw(scene.daemon) as client:
        tables = (await client.call("memory", "memory/stats"))["result"]["tables"]
        return sum(table["tokens"] for table in tables)


async def daemon_is_stopped(scene: Scene, client: Raw) -> None:
    before = await learnt(scene)
    session = await chat(scene, client, LONG)
    workers = scene.daemon.workers()
    scene.daemon.process.send_signal(signal.SIGTERM)
    result = (await client.response("victim"))["result"]
    assert result["finish_reason"] in ("cancelled", "context_full", "stop")
    assert await client.close_code() == 1001
    await until(lambda: scene.daemon.process.poll() is not None, "the daemon has ended")
    assert scene.daemon.process.poll() == 0 and all(map(gone, workers))
    scene.start()
    await check_history(scene, session, result["text"])
    assert await learnt(scene) > before, "what was said is not remembered"


async def disk_is_full(scene: Scene, client: Raw) -> None:
    """A file system of a few megabytes for history and memory, filled up to the last byte."""
    small = await asyncio.to_thread(lambda: Scene(scene.rng.getrandbits(32), data_on_tmpfs=True))
    try:
        async with raw(small.daemon) as other:
            session = (await other.call("open", "session/open", options=SHORT))["result"]["session"]
            assert "result" in await other.call("chat", "chat/send", session=session, content="Hello")
            ballast = small.home / "data" / "ballast"
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            refused = await other.call("full", "chat/send", session=session, content="x" * 40_000)
            assert code(refused) == "disk_full", refused
            for id in ("one", "two"):  # the memory cannot learn, the model can answer
                await small.answer(other, id, {**SHORT, "workspace": str(small.home / f"{id}")})
            ballast.unlink()
            assert "result" in await other.call("again", "chat/send", session=session, content="Hello again")
            messages = (await other.call("get", "session/get", session=session))["result"]["messages"]
            assert [m["content"] for m in messages if m["role"] == "user"] == ["Hello", "Hello again"]
    finally:
        await asyncio.to_thread(small.close)


async def queue_is_full(scene: Scene, client: Raw) -> None:
    """A thousand requests at once: each gets one answer, or the error that the queue is full."""
    counts = {"result": 0, "queue_full": 0}
    await scene.answer(client, "warm", SHORT)

    async def ask_many() -> None:
        async with raw(scene.daemon) as many:
            for id in range(32):
                options = {**SHORT, "max_tokens": 2}
                await many.ask(id, "generate", prompt=PROMPT, raw=True, options=options)
            for id in range(32):
                answer = await many.response(id)
                if "result" not in answer:
                    assert code(answer) == "queue_full", answer
                counts["result" if "result" in answer else "queue_full"] += 1
            assert many.unclaimed == {}

    await asyncio.gather(*(ask_many() for _ in range(32)))
    assert sum(counts.values()) == 32 * 32 and counts["result"] >= 256, counts


async def clock_jumps(scene: Scene, client: Raw) -> None:
    """The wall clock goes wrong by days, to and fro, in the middle of an answer."""
    worker = await scene.begin(client)
    for days in (400, -400, 0):
        scene.clock.write_text(str(days * 86400.0))
        await scene.answer(client, f"jump {days}", SHORT)
    await client.notify("$/cancelRequest", id="victim")
    answer = await client.response("victim")
    assert answer["result"]["finish_reason"] == "cancelled", answer
    assert (await scene.worker(client)).pid == worker.pid, "the model was unloaded"
