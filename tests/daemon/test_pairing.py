"""A draft model chosen automatically: the daemon's memory budget and its processes."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from localspec.config import Config, DaemonConfig
from localspec.daemon.workers.identity import key_of_pair
from localspec.daemon.workers.pool import Pool, chosen
from localspec.daemon.workers.worker import Key
from localspec.errors import ModelInvalid
from localspec.models.candidates import Room
from localspec.units import MB
from tests.daemon.test_pool import ignore, pool_of
from tests.models.test_candidates import model

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


async def load(pool: Pool, path: Path, draft: str = "auto") -> None:
    async with pool.lease(Key(str(path), draft, "auto"), ignore):
        pass


def loaded(pool: Pool) -> set[str]:
    return {Path(worker.key.model).stem for worker, _ in pool.loaded()}


def test_what_is_weighed(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    found = chosen(Key("target", "auto", "auto"), disk.dirs, Room())
    assert key_of_pair(found) == Key(str(disk.target), str(disk.draft), "llama_cpp")
    assert [needs.total // MB for needs in (found.needs, found.least)] == [PROCESS + 300, PROCESS + 200]


async def test_an_idle_model_makes_room_for_a_target_whose_draft_has_none(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    async with disk.pool(PROCESS + 250) as pool:
        await load(pool, disk.other)
        await load(pool, disk.target)
        assert loaded(pool) == {"target"}


async def test_a_draft_that_was_left_out_takes_nobodys_place(tmp_path: Path) -> None:
    """An echo has none: 20 MB less than a process are left beside the pair, 80 MB more beside the target."""
    disk = Disk(tmp_path)
    async with disk.pool(2 * PROCESS + 290) as pool:
        await load(pool, disk.target)
        await load(pool, disk.little)
        assert loaded(pool) == {"target", "little"}


async def test_without_a_draft_chosen_or_not_wanted_it_is_one_process(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    async with disk.pool(2000) as pool:
        for draft in ("none", "auto", "none"):
            await load(pool, disk.little, draft)
        assert len(pool.loaded()) == 1
        await load(pool, disk.target, str(disk.draft))
        for draft in ("auto", "none"):
            await load(pool, disk.target, draft)
        assert len(pool.loaded()) == 2


async def test_a_worker_without_a_draft_gives_way_to_one_with_it(tmp_path: Path) -> None:
    """One in use ends after its requests; new ones without a draft go to the other."""
    disk, none = Disk(tmp_path), Key(str(tmp_path / "target.gguf"), "none", "auto")
    async with disk.pool(2000) as pool:
        await load(pool, disk.target, "none")
        async with pool.lease(none, ignore) as plain:
            await load(pool, disk.target, str(disk.draft))
            assert plain.outdated and plain.usable
            async with pool.lease(none, ignore) as other:
                assert other is not plain
        await load(pool, disk.target, "none")
        assert pool.idle_left_s(plain) == 0.0
        await load(pool, disk.little, "none")
        await load(pool, disk.little, str(disk.draft))
        assert sum(worker.key.model == str(disk.little) for worker, _ in pool.loaded()) == 1


async def test_a_draft_that_cannot_be_loaded_replaces_none_at_work(tmp_path: Path) -> None:
    disk, none = Disk(tmp_path), Key(str(tmp_path / "target.gguf"), "none", "auto")
    async with disk.pool(2000) as pool, pool.lease(none, ignore) as plain:
        with pytest.raises(ModelInvalid):
            await load(pool, disk.target, str(weighing(tmp_path, "broken", 1_000, 100)))
        assert not plain.outdated
