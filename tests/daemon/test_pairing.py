"""A draft model chosen automatically: the daemon's memory budget and its processes."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from localspec.config import Config, DaemonConfig
from localspec.daemon.workers.pool import Pool, choose_pair
from localspec.daemon.workers.worker import Key
from localspec.errors import ModelInvalid
from localspec.models.pair import Room
from localspec.protocol.frames import Loading
from localspec.wording import MB
from tests.daemon.test_pool import ignore, pool_of, submit
from tests.models.test_candidates import model
from tests.waiting import soon, until

PROCESS = 75


def weighing(folder: Path, name: str, parameters: int, megabytes: int, **more: object) -> Path:
    """A model's file of that size, most of which is a hole."""
    path = model(folder, name, parameters, **more)  # type: ignore[arg-type]
    os.truncate(path, megabytes * MB)
    return path


class Disk:
    """A target, the draft that goes with it, and two models that have nothing to do with them."""

    def __init__(self, folder: Path) -> None:
        self.dirs = (str(folder),)
        self.target = weighing(folder, "target", 10_000, 200)
        self.draft = weighing(folder, "draft", 1_000, 100)
        self.other = weighing(folder, "other", 500, 100, words=["a", "b"])
        self.little = weighing(folder, "little", 500, 10, words=["c", "d"])

    def pool(self, megabytes: int) -> AbstractAsyncContextManager[Pool]:
        return pool_of(config=Config(model_dirs=self.dirs, daemon=DaemonConfig(memory_mb=megabytes)))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


async def load(pool: Pool, path: Path, draft: str = "auto") -> None:
    async with pool.lease(Key(str(path), draft, "auto"), ignore):
        pass


def drafts(pool: Pool) -> list[str]:
    return sorted(Path(each.draft.place).stem for worker, _ in pool.list_loaded() for each in worker.drafts)


def loaded(pool: Pool) -> set[str]:
    return {Path(worker.key.model).stem for worker, _ in pool.list_loaded()}


def test_what_is_weighed(disk: Disk) -> None:
    found = choose_pair(Key("target", "auto", "auto"), disk.dirs, Room())
    assert [each.path for each in found.models] == [disk.target, disk.draft]
    assert [needs.total // MB for needs in (found.needs, *found.least[:1])] == [PROCESS + 300, PROCESS + 200]


async def test_an_idle_model_makes_room_for_a_target_whose_draft_has_none(disk: Disk) -> None:
    async with disk.pool(PROCESS + 250) as pool:
        await load(pool, disk.other)
        await load(pool, disk.target)
        assert loaded(pool) == {"target"}


async def test_a_draft_that_was_left_out_takes_no_place(disk: Disk, tmp_path: Path) -> None:
    """20 MB less than a process are left beside the pair, 80 MB more beside the target."""
    disk.draft.rename(tmp_path / "broken.gguf")
    async with disk.pool(2 * PROCESS + 290) as pool:
        await load(pool, disk.target)
        await load(pool, disk.little)
        assert loaded(pool) == {"target", "little"}


async def test_all_drafts_of_a_target_are_in_its_process(disk: Disk, tmp_path: Path) -> None:
    seen, second = set[int | None](), weighing(tmp_path, "second", 1_000, 10)
    async with disk.pool(2000) as pool:
        for draft, name in (("auto", "draft"), ("none", None), (str(second), "second"), ("draft", "draft")):
            async with pool.lease(Key("target", draft, "auto"), ignore) as lease:
                seen.add(lease.worker.pid)
                assert (lease.pair.draft and lease.pair.draft.own_name) == name
                assert (lease.draft is None) == (name is None)
        assert len(seen) == 1 and drafts(pool) == ["draft", "second"]


async def test_a_draft_that_fails_costs_only_the_request_that_named_it(disk: Disk, tmp_path: Path) -> None:
    none, broken = Key("target", "none", "auto"), weighing(tmp_path, "broken", 1_000, 100)
    async with disk.pool(2000) as pool, pool.lease(none, ignore) as (worker, *_):
        job = submit(worker, "stall", [])
        with pytest.raises(ModelInvalid, match="this draft is broken"):
            await load(pool, disk.target, str(broken))
        async with pool.lease(none, ignore) as (same, *_):
            assert same is worker and drafts(pool) == []
        job.cancel()
        assert (await soon(job.end)).finish_reason == "cancelled"


async def test_idle_drafts_leave_before_idle_models(disk: Disk, tmp_path: Path) -> None:
    """The one that was unused for longest first; one in use stays."""
    second = weighing(tmp_path, "second", 1_000, 100)
    async with disk.pool(2 * PROCESS + 450) as pool:
        await load(pool, disk.target, "draft")
        async with pool.lease(Key("target", str(second), "auto"), ignore):
            assert drafts(pool) == ["draft", "second"]
            await load(pool, disk.other, "none")
            assert loaded(pool) == {"target", "other"} and drafts(pool) == ["second"]
        await load(pool, disk.target, "draft")
        assert loaded(pool) == {"target", "other"} and drafts(pool) == ["draft"]


async def test_a_draft_whose_load_was_given_up_is_there_for_the_next_request(
    disk: Disk, tmp_path: Path
) -> None:
    waits = weighing(tmp_path, "waits", 1_000, 100)
    gate, key = tmp_path / "gate", Key("target", str(waits), "auto")
    os.mkfifo(gate)
    async with disk.pool(2000) as pool:
        await load(pool, disk.target, "none")
        seen: list[Loading] = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), pool.lease(key, lambda _, frame: seen.append(frame)):
                raise AssertionError("it was loaded")
        assert [frame.stage for frame in seen] == ["draft"]
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(gate.write_text, "open"))
            await load(pool, disk.target, str(waits))
        assert drafts(pool) == ["waits"]


async def test_a_draft_whose_file_has_changed_is_loaded_anew(disk: Disk) -> None:
    key = Key("target", "draft", "auto")
    async with disk.pool(2000) as pool:
        async with pool.lease(key, ignore) as first:
            pass
        os.truncate(disk.draft, 101 * MB)
        async with pool.lease(key, ignore) as second:
            assert second.worker is first.worker and second.draft != first.draft


async def test_a_draft_that_is_named_and_chosen_at_once_fails_for_the_one_alone(
    disk: Disk, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    disk.draft.rename(tmp_path / "waits-broken.gguf")
    os.mkfifo(gate)
    async with disk.pool(2000) as pool:
        await load(pool, disk.target, "none")
        named = asyncio.create_task(load(pool, disk.target, "waits-broken"))
        await until(lambda: bool(pool.list_loaded()[0][0].drafts), "the named one is loading")
        chosen_one = asyncio.create_task(load(pool, disk.target))
        await asyncio.to_thread(gate.write_text, "open")
        with pytest.raises(ModelInvalid):
            await soon(named)
        await asyncio.to_thread(gate.write_text, "open")
        await soon(chosen_one)
        assert drafts(pool) == []
