"""``localspec models rm``: what was pulled is removed, what another program downloaded stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download, scan_cache_dir
from huggingface_hub.utils import WeakFileLock

from localspec.models.catalogue import bundled_model
from tests.cli.harness import LONG, ended
from tests.hub.conftest import Q4, Q8, REPO, Puller, mlx_directory
from tests.hub.server import Hub, sha256
from tests.waiting import DEADLINE_S

NAME = f"{REPO}:Q4_K_M"


def removed(cli: Puller, *names: str) -> tuple[list[str], int]:
    done = cli.json("models", "rm", *names, "--yes")
    return done["removed"], done["freed_bytes"]


def download(cli: Puller, hub: Hub, file: str) -> Path:
    """The path of a file that another program downloads into the cache."""
    return Path(hf_hub_download(REPO, file, cache_dir=cli.cache, endpoint=hub.url))


@pytest.mark.parametrize(
    "name",
    [
        *(NAME, REPO.lower(), "tiny-7b-q4_k_m", "tiny-7b-q4_k_m.gguf", "the path"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("tiny", "tiny:7b", "org/tiny")),
    ],
)
def test_a_pulled_model_is_removed_by_every_name(cli: Puller, tiny: Hub, name: str) -> None:
    path = str(cli.pull(REPO))
    assert removed(cli, path if name == "the path" else name) == ([NAME], len(Q4))
    assert cli.files() == [] and not cli.folder().exists()
    error = cli.refusal("rm", NAME, "--yes")
    assert error["code"] == "model_not_found" and "none so far" in error["remedy"]


def test_other_quantisations_and_files_of_other_programs_stay(cli: Puller, tiny: Hub) -> None:
    readme = download(cli, tiny, "README.md")
    cli.pull(REPO)
    other = cli.pull(f"{REPO}:Q8_0")
    (cli.folder() / "blobs" / f"{sha256(Q8)}.wheel").touch()  # as a download that was killed leaves it
    partial = cli.folder() / "blobs" / f"{sha256(Q8)}.12345678.incomplete"
    partial.write_bytes(b"some of it")
    assert removed(cli, NAME)[1] == len(Q4)
    assert other.read_bytes() == Q8 and {*other.parent.iterdir()} == {readme, other}
    (scanned,) = scan_cache_dir(cli.cache).repos
    assert [*scanned.refs] == ["main"]
    assert removed(cli, REPO) == ([f"{REPO}:Q8_0"], len(Q8))
    assert {*cli.folder().glob("blobs/*")} == {readme.resolve(), partial}


def test_content_that_another_commit_needs_stays(cli: Puller, tiny: Hub) -> None:
    other = download(cli, tiny, "tiny-7b-q4_k_m.gguf")
    tiny.repositories[REPO].files["README.md"] = b"Now with more words."
    path = cli.pull(REPO)
    assert path != other
    assert removed(cli, NAME)[1] == 0
    assert other.read_bytes() == Q4 and not path.exists()


@pytest.mark.parametrize("downloading", [False, True])
def test_a_download_of_another_program_is_refused(cli: Puller, tiny: Hub, downloading: bool) -> None:
    if downloading:
        lock = cli.cache / ".locks" / cli.folder().name / f"{sha256(Q4)}.lock"
        lock.parent.mkdir(parents=True)
        with WeakFileLock(lock):
            assert cli("models", "pull", REPO).returncode == 75
    path = download(cli, tiny, "tiny-7b-q4_k_m.gguf")
    assert cli.pull(REPO) == path
    error = cli.refusal("rm", str(path), "--yes")
    assert error["code"] == "not_pulled" and "it is in Hugging Face" in error["message"]
    assert path.read_bytes() == Q4


def test_a_directory_for_mlx_is_removed_whole(cli: Puller, hub: Hub) -> None:
    hub.add("org/Tiny-4bit", mlx_directory())
    cli.pull("org/Tiny-4bit", "--mlx")
    assert removed(cli, "org/tiny-4bit")[1] == sum(map(len, mlx_directory().values()))
    assert not cli.folder("org/Tiny-4bit").exists()


def test_a_cache_that_was_cleared_is_no_obstacle(cli: Puller, tiny: Hub) -> None:
    path = cli.pull(REPO)
    for gone in (cli.folder() / "refs" / "main", path, cli.folder() / "blobs" / sha256(Q4)):
        gone.unlink()
    assert removed(cli, REPO) == ([NAME], 0)


def test_a_model_is_recorded_once_and_completed_by_shells(cli: Puller, tiny: Hub) -> None:
    for _ in range(2):
        cli.pull(REPO)
    record = cli.home / "data" / "pulled.json"
    (pulled,) = json.loads(record.read_text())
    assert pulled["name"] == NAME and record.stat().st_mode & 0o777 == 0o600
    offered = cli.process("__complete", "models", "rm", "").stdout.splitlines()
    assert NAME in offered and "bundled" not in offered
    record.write_text("damaged")
    assert "pulled.json cannot be read" in cli.refusal("rm", REPO, "--yes")["message"]


@pytest.mark.slow
def test_it_asks_first(cli: Puller, tiny: Hub) -> None:
    path = cli.pull(REPO)
    done = cli("models", "rm", REPO)
    assert done.returncode == 2 and "--yes" in done.stderr and path.exists()
    for answer, code, there in (("n", 1, True), ("y", 0, False)):
        terminal = cli.terminal("models", "rm", REPO)
        terminal.expect(r"Remove org/Tiny-7B-GGUF:Q4_K_M \(3\.2 MB\) from .*\[y/N\], then Enter")
        terminal.sendline(answer)
        assert (ended(terminal), path.exists()) == (code, there)


@pytest.mark.slow
def test_a_loaded_model_is_unloaded_first_and_a_running_one_is_kept(cli: Puller, hub: Hub) -> None:
    hub.add(REPO, {"stdlib-6m-q8_0.gguf": bundled_model("stdlib-6m").read_bytes()})
    path = str(cli.pull(REPO))
    try:
        process = cli.begin(*LONG, "-m", path, "--draft", "none", "--stream-json")
        error = cli.refusal("rm", REPO, "--yes")
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
        assert error["code"] == "engine_busy" and Path(path).exists()
        cli.json("models", "load", "-m", path, "--draft", "none", "--keep-alive", "0")
        assert len(cli.status()["models"]) == 1
        removed(cli, REPO)
        assert cli.status()["models"] == [] and cli.files() == []
    finally:
        cli("daemon", "stop")
