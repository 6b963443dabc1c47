"""One worker per model, however it is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localspec.daemon.workers.pool import choose_pair
from localspec.daemon.workers.worker import Key
from localspec.models.library import places_of
from localspec.models.model import model_at
from localspec.models.pair import Room
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import Raw, raw
from tests.mlx_pair import in_both_formats, mlx_model
from tests.models.ggufs import DRAFT, TARGET, small


def key(model: str, draft: str = "none", backend: str = "auto", *, dirs: tuple[str, ...] = ()) -> Key:
    """The places of the models that are chosen, and the backend."""
    pair = choose_pair(Key(model, draft, backend), dirs, Room())
    return Key(pair.target.place, "none" if pair.draft is None else pair.draft.place, pair.backend)


def test_names_and_paths_of_a_file_are_one(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    file = tmp_path / "deep" / "one.gguf"
    file.write_bytes(small())
    (tmp_path / "link.gguf").symlink_to(file)
    expected = Key(str(file), "none", "llama_cpp")
    dirs = (str(tmp_path / "deep"),)
    for name in ("one", str(file), f"{tmp_path}/deep/../deep/one.gguf", f"{tmp_path}/link.gguf"):
        for backend in ("auto", "llama_cpp"):
            assert key(name, backend=backend, dirs=dirs) == expected


def test_a_place_whose_bytes_are_no_text_can_be_shown(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    (Path(os.fsdecode(folder)) / "one.gguf").write_bytes(small())
    dirs = (os.fsdecode(folder),)
    assert key("one", dirs=dirs).model == f"{tmp_path}/caf\ufffd/one.gguf"
    assert places_of("one", dirs) == {key("one", dirs=dirs).model}


def test_a_named_draft_is_resolved_beside_its_target(tmp_path: Path) -> None:
    assert key(str(TARGET), "stdlib-1m").draft == key(str(TARGET), str(DRAFT)).draft == str(DRAFT)
    both = tmp_path / "twin.gguf", tmp_path / "twin"
    assert in_both_formats(tmp_path, "twin", "stdlib-1m") == both
    for target, draft in zip((TARGET, mlx_model("stdlib-6m")), both, strict=True):
        assert key(str(target), "twin", dirs=(str(tmp_path),)).draft == str(draft)


def test_the_draft_that_is_chosen_is_reckoned_with_and_may_be_left_out() -> None:
    auto, named, plain = (
        choose_pair(Key("bundled", draft, "llama_cpp"), (), Room()) for draft in ("auto", "stdlib-1m", "none")
    )
    assert auto.needs == named.needs and named.least[0].draft > auto.least[0].draft == plain.needs.draft == 0
    assert auto.needs.total >= plain.needs.total + auto.needs.draft
    assert auto.least == plain.least and plain.least[0] == plain.needs and auto.needs.sequences == 1
    assert auto.draft == named.draft == model_at(DRAFT)
    assert places_of("bundled", ()) == {str(TARGET)}


async def pids(client: Raw, *options: dict[str, str]) -> set[int]:
    """The workers there are after these requests."""
    for number, option in enumerate(options):
        answer = await client.call(number, "generate", prompt="x", options=option)
        assert "result" in answer, answer
    return {model["pid"] for model in (await client.result("s", "daemon/status"))["models"]}


@pytest.mark.slow
async def test_the_daemon_starts_one_worker_for_all_names(start: StartDaemon, tmp_path: Path) -> None:
    (tmp_path / "one.gguf").write_bytes(small())
    os.link(tmp_path / "one.gguf", tmp_path / "other.gguf")
    async with raw(start()) as client:
        # At the same moment, and one after the other.
        for number, name in enumerate(("one.gguf", "./one.gguf", f"../{tmp_path.name}/one.gguf")):
            await client.ask(number, "generate", prompt="x", options={"model": f"{tmp_path}/{name}"})
        assert all(["result" in await client.response(number) for number in range(3)])
        assert len(await pids(client)) == 1
        same = [str(tmp_path / "one.gguf"), f"{tmp_path}/../{tmp_path.name}/one.gguf"]
        models = [{"model": name} for name in same]
        assert len(await pids(client, *models, *models)) == 1
        assert len(await pids(client, {"model": str(tmp_path / "other.gguf")})) == 2
