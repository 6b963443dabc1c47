"""The memory's methods and the sources that it learns: the real command, on the files of a real home."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import REAL_DAEMON, DaemonProcess, Raw, code, raw
from tests.memory.hostile_repository import repository
from tests.waiting import until

TEXT = "def scale(value, factor):\n    return value * factor\n" * 3


async def tables(client: Raw) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.result("stats", "memory/stats"))["tables"]
    return found


async def prime(client: Raw, **params: Any) -> dict[str, Any]:
    primed: dict[str, Any] = await client.result("prime", "memory/prime", **params)
    return primed


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("memory/prime", {"paths": ["/no/such/file"]}),
        ("memory/prime", {"texts": [{"path": "untitled", "text": "x"}]}),
        ("memory/forget", {"workspace": "relative"}),
        ("generate", {"prompt": "x", "options": {"workspace": "relative"}}),
    ],
)
async def test_what_makes_no_sense_is_refused(client: Raw, method: str, params: dict[str, Any]) -> None:
    assert code(await client.call(1, method, **params)) == "invalid_options"


async def test_names_that_look_like_flags_are_names(client: Raw) -> None:
    forgotten = await client.call(1, "memory/forget", source="--workspace=/", workspace="/--json")
    assert forgotten["result"] == {"forgotten": 0, "unit": "n-grams"}


@pytest.mark.slow
async def test_a_full_disk_is_a_typed_error(own: DaemonProcess) -> None:
    # A table that is as good as empty has 256 KiB.
    psutil.Process(own.process.pid).rlimit(psutil.RLIMIT_FSIZE, (200_000, psutil.RLIM_INFINITY))
    async with raw(own) as client:
        texts = [{"path": "/x", "text": TEXT}]
        assert code(await client.call(1, "memory/prime", texts=texts)) == "disk_full"
        assert await tables(client) == []


@pytest.mark.slow
async def test_a_damaged_table_is_removed_and_the_log_tells(
    own: DaemonProcess, home: Path, alone: Raw
) -> None:
    await prime(alone, texts=[{"path": "/x", "text": TEXT}])
    (file,) = (home / "data" / "memory").rglob("*.ngm")
    file.write_bytes(b"damaged" + file.read_bytes()[7:])
    await prime(alone, texts=[{"path": "/y", "text": TEXT}])
    (table,) = await tables(alone)
    assert table["sources"].keys() == {"file:/y"}
    await until(lambda: "is not used as n-gram memory" in own.log(), "the log tells")
    assert "scale" not in own.log()


@pytest.mark.slow
async def test_a_cancel_ends_it_and_keeps_what_was_learned(start: StartDaemon, tmp_path: Path) -> None:
    repository(tmp_path)
    for number in range(400):
        (tmp_path / f"{number}.py").write_text(f"{TEXT}# {number}\n" * 50)
    daemon = start()
    async with raw(daemon) as client, raw(daemon) as other:
        await client.ask(1, "memory/prime", paths=[str(tmp_path)])
        await other.ask(2, "memory/prime", paths=[str(tmp_path)])  # waits for the first
        await other.ask(3, "daemon/shutdown", if_idle=True)
        assert code(await other.response(3)) == "engine_busy"
        await until(lambda: any((daemon.home / "data").rglob("*.ngm")), "a table is there")
        await other.notify("$/cancelRequest", id=2)
        assert code(await other.response(2)) == "gone"
        await client.notify("$/cancelRequest", id=1)
        assert code(await client.response(1)) == "gone"
        assert len(await tables(client)) == 1
    await until(lambda: daemon.workers() == [], "no process is left")


async def test_requests_name_their_source(client: Raw) -> None:
    session = (await client.result(1, "session/open"))["session"]
    said = (await client.result(2, "chat/send", session=session, content="source"))["text"]
    assert said == f"chat:{session}"
    assert (await client.result(3, "generate", prompt="source"))["text"] == "run"
    where = {"prefix": "source", "suffix": ""}
    for path, source in ((None, "run"), ("/a.py", "file:/a.py")):
        done = await client.call(4, "completion/inline", **where, path=path)
        assert done["result"]["items"][0]["text"] == source


async def test_a_session_keeps_its_workspace_and_a_private_one_is_not_remembered(client: Raw) -> None:
    for private in (False, True):
        params = {"options": {"workspace": "/work", "remember": True}, "private": private}
        session = (await client.result(1, "session/open", **params))["session"]
        turn = await client.call(2, "chat/send", session=session, content="options")
        options = json.loads(turn["result"]["text"])
        assert (options["workspace"], options["remember"]) == ("/work", not private)
    turn = await client.call(3, "chat/send", session=session, content="options", options={"workspace": ""})
    assert json.loads(turn["result"]["text"])["workspace"] == ""


@pytest.mark.slow
async def test_a_real_daemon_learns_by_source_and_workspace(start: StartDaemon, home: Path) -> None:
    async with raw(start(command=REAL_DAEMON)) as client:
        options = {"max_tokens": 24, "temperature": 0, "workspace": "/project"}
        opened = await client.call(1, "session/open", options=options)
        session = opened["result"]["session"]
        await client.call(2, "chat/send", session=session, content=f"Explain this: {TEXT}")
        for elsewhere in ({"workspace": "/unseen", "remember": False}, {"workspace": ""}):
            await client.call(3, "generate", prompt=TEXT, options=options | elsewhere)
        memory = home / "data" / "memory"
        await until(lambda: len(list(memory.rglob("*.ngm"))) == 2, "both tables are there")
        while len(found := await tables(client)) < 2 or not all(table["sources"] for table in found):
            pass
        assert {table["workspace"]: set(table["sources"]) for table in found} == {
            "/project": {f"chat:{session}"},
            None: {"run"},
        }
        # Forgotten under the eyes of the worker that has it open.
        await client.call(4, "memory/forget")
        assert await tables(client) == []
