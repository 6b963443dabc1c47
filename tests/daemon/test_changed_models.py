"""A pair that was chosen is what a worker opens; its files may be gone by then. With real workers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from localspec.config import Config
from localspec.daemon.metrics import Metrics
from localspec.daemon.relay.outbox import Events
from localspec.daemon.workers.pool import COMMAND, Pool, chosen
from localspec.daemon.workers.worker import Key
from localspec.errors import ModelInvalid, ModelNotFound
from localspec.models.pair import Pair, Room
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options
from localspec.protocol.requests import Request, TextPrompt
from tests.daemon.test_pool import ignore
from tests.engine.test_load import in_disguise
from tests.models.ggufs import DRAFT
from tests.waiting import run, soon

CONFIG = Config(engine=EngineConfig(n_ctx=256, parallel=1, threads=1))


class Recorder:
    """Chooses as the daemon does, and records the choices; ``removes`` what was chosen."""

    def __init__(self, *, removes: bool = False) -> None:
        self.removes = removes
        self.pairs: list[Pair] = []

    def __call__(self, key: Key, model_dirs: tuple[str, ...], room: Room) -> Pair:
        pair = chosen(key, model_dirs, room)
        self.pairs.append(pair)
        if self.removes:
            os.remove(pair.target.path)
        return pair


async def load(choosing: Recorder, path: Path) -> str:
    """Load with that choice; returns the place of what is loaded."""
    pool = Pool(CONFIG, Metrics(), Events(), COMMAND._replace(choose=choosing))
    try:
        async with pool.lease(Key(str(path), "none", "auto"), ignore) as (worker, *_):
            return worker.pair.target.place
    finally:
        await pool.close()


def test_a_file_that_is_gone_after_the_choice_is_not_found(tmp_path: Path) -> None:
    path = Path(shutil.copy(DRAFT, tmp_path / "m.gguf"))
    with pytest.raises(ModelNotFound, match=f"there is no file {path}"):
        run(load(Recorder(removes=True), path))


@pytest.mark.slow
async def test_the_pair_that_was_chosen_is_what_a_worker_opens() -> None:
    choosing = Recorder()
    pool = Pool(CONFIG, Metrics(), Events(), COMMAND._replace(choose=choosing))
    try:
        async with pool.lease(Key("bundled", "auto", "llama_cpp"), ignore) as lease:
            assert choosing.pairs == [lease.pair] and lease.draft == lease.worker.drafts[0].number
            assert [each.pair for each in lease.worker.drafts] == choosing.pairs
    finally:
        await pool.close()


@pytest.mark.slow
async def test_a_draft_that_cannot_be_loaded_leaves_its_target_at_work(tmp_path: Path) -> None:
    broken = in_disguise(tmp_path / "broken.gguf")
    pool = Pool(CONFIG, Metrics(), Events())
    try:
        async with pool.lease(Key("bundled", "auto", "auto"), ignore) as lease:
            request = Request(prompt=TextPrompt("def f("), options=Options(max_tokens=40, temperature=0.0))
            job = lease.worker.submit(request, ignore, draft=lease.draft)
            with pytest.raises(ModelInvalid, match="cannot load"):
                async with pool.lease(Key("bundled", str(broken), "auto"), ignore):
                    pass
            result = await soon(job.end)
            assert (result.draft, result.completion_tokens) == ("stdlib-1m", 40)
    finally:
        await pool.close()
