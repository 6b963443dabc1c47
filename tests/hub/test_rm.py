"""``localspec models rm``: what was pulled goes, what another program has stays."""

from __future__ import annotations

import json
from pathlib import Path

import pexpect
import pytest
from huggingface_hub import hf_hub_download, scan_cache_dir
from huggingface_hub.utils import WeakFileLock

from localspec.models.bundled import bundled_model
from tests.cli.harness import LONG
from tests.hub.conftest import REPO, Puller, mlx_directory, model
from tests.hub.server import Hub, sha256
from tests.waiting import DEADLINE_S

Q4, Q8 = model(), model(1)


@pytest.fixture
def tiny(hub: Hub) -> Hub:
    hub.add(REPO, {"README.md": b"A tiny one.", "tiny-7b-q4_k_m.gguf": Q4, "tiny-7b-q8_0.gguf": Q8})
    return hub


def removed(cli: Puller, *names: str) -> tuple[list[str], int]:
    done = cli.json("models", "rm", *names, "--yes")
    return done["removed"], done["freed_bytes"]


def refused(cli: Puller, name: str) -> dict[str, str]:
    done = cli("models", "rm", name, "--yes", "--json")
    assert done.returncode != 0
    error: dict[str, str] = json.loads(done.stdout)["error"]
    return error


def test_what_was_pulled_is_removed_and_nothing_of_it_stays(cli: Puller, tiny: Hub) -> None:
    cli.json("models", "pull", REPO)
    assert removed(cli, f"{REPO}:Q4_K_M") == ([f"{REPO}:Q4_K_M"], len(Q4))
    assert cli.files() == [] and not cli.folder().exists()
    assert refused(cli, f"{REPO}:Q4_K_M")["code"] in ("model_not_found", "model_invalid")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *(REPO, REPO.lower(), "tiny-7b-q4_k_m", "tiny-7b-q4_k_m.gguf", "the path"),
        *("tiny", "tiny-7b-q4", "tiny:7b", "TINY-7B-Q4_K_M", "org/tiny"),
    ],
)
def test_it_goes_by_every_name_or_the_beginning_of_one(cli: Puller, tiny: Hub, name: str) -> None:
    path = cli.json("models", "pull", REPO)["path"]
    assert removed(cli, path if name == "the path" else name) == ([f"{REPO}:Q4_K_M"], len(Q4))


@pytest.mark.slow
def test_the_other_quantisation_stays(cli: Puller, tiny: Hub) -> None:
    cli.json("models", "pull", REPO)
    other = Path(cli.json("models", "pull", f"{REPO}:Q8_0")["path"])
    assert removed(cli, f"{REPO}:Q4_K_M")[1] == len(Q4)
    assert other.read_bytes() == Q8 and [path.name for path in other.parent.iterdir()] == [other.name]
    assert not scan_cache_dir(cli.cache).warnings
    assert removed(cli, REPO) == ([f"{REPO}:Q8_0"], len(Q8)) and cli.files() == []


def test_what_another_program_downloaded_beside_it_stays(cli: Puller, tiny: Hub) -> None:
    theirs = hf_hub_download(REPO, "README.md", cache_dir=cli.cache, endpoint=tiny.url)
    cli.json("models", "pull", REPO)
    removed(cli, REPO)
    assert Path(theirs).read_bytes() == b"A tiny one."


def test_what_another_commit_needs_stays(cli: Puller, tiny: Hub) -> None:
    theirs = hf_hub_download(REPO, "tiny-7b-q4_k_m.gguf", cache_dir=cli.cache, endpoint=tiny.url)
    tiny.repositories[REPO].files["README.md"] = b"Now with more words."
    ours = cli.json("models", "pull", REPO)["path"]
    assert ours != theirs
    assert removed(cli, f"{REPO}:Q4_K_M")[1] == 0
    assert Path(theirs).read_bytes() == Q4 and not Path(ours).exists()


@pytest.mark.slow
def test_what_was_here_before_is_not_ours(cli: Puller, tiny: Hub) -> None:
    theirs = hf_hub_download(REPO, "tiny-7b-q4_k_m.gguf", cache_dir=cli.cache, endpoint=tiny.url)
    assert cli.json("models", "pull", REPO)["path"] == theirs
    error = refused(cli, theirs)
    assert error["code"] == "not_pulled" and "it is in Hugging Face" in error["message"]
    assert (
        error["remedy"]
        == f"Remove it from the hub's cache: `hf cache rm hf://models/{REPO}/tiny-7b-q4_k_m.gguf`."
    )
    assert Path(theirs).read_bytes() == Q4


@pytest.mark.slow
def test_what_another_program_downloads_right_now_is_not_ours(cli: Puller, tiny: Hub) -> None:
    lock = cli.cache / ".locks" / cli.folder().name / f"{sha256(Q4)}.lock"
    lock.parent.mkdir(parents=True)
    with WeakFileLock(lock):
        assert cli("models", "pull", REPO).returncode == 75
    theirs = hf_hub_download(REPO, "tiny-7b-q4_k_m.gguf", cache_dir=cli.cache, endpoint=tiny.url)
    assert refused(cli, theirs)["code"] == "not_pulled" and Path(theirs).read_bytes() == Q4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bundled", "stdlib-1m", str(bundled_model("stdlib-6m"))])
def test_the_bundled_pair_stays(cli: Puller, name: str) -> None:
    assert refused(cli, name)["code"] == "not_pulled"
    assert bundled_model("stdlib-6m").exists() and bundled_model("stdlib-1m").exists()


def test_what_nobody_has_is_told(cli: Puller, tiny: Hub) -> None:
    assert "none so far" in refused(cli, "no-such-model")["remedy"]
    cli.json("models", "pull", REPO)
    error = refused(cli, "no-such-model")
    assert error["code"] == "model_not_found" and f"{REPO}:Q4_K_M" in error["remedy"]


@pytest.mark.slow
def test_a_download_that_was_broken_off_is_removed_too(cli: Puller, tiny: Hub) -> None:
    tiny.cuts["tiny-7b-q4_k_m.gguf"] = [1_000_000, *[0] * 20]
    assert cli("models", "pull", REPO).returncode == 69
    (partial,) = cli.partials()
    size = partial.stat().st_size
    assert size > 0 and removed(cli, REPO) == ([f"{REPO}:Q4_K_M"], size)
    assert cli.files() == [] and not cli.folder().exists()


def test_a_download_of_another_program_goes_on(cli: Puller, tiny: Hub) -> None:
    cli.json("models", "pull", REPO)
    theirs = cli.folder() / "blobs" / f"{sha256(Q8)}.12345678.incomplete"
    theirs.write_bytes(b"some of it")
    removed(cli, REPO)
    assert theirs.read_bytes() == b"some of it"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-7b-q4_k_m", "tiny-7b-q4", "org/tiny"])
def test_what_is_damaged_goes_by_its_names_too(cli: Puller, tiny: Hub, name: str) -> None:
    path = Path(cli.json("models", "pull", REPO)["path"])
    path.resolve().write_bytes(Q4[:1000])
    remedy = cli.json("models", "show", "tiny-7b-q4")["model"]["remedy"]
    again = f"`localspec models pull {REPO}:Q4_K_M`"
    assert remedy == f"Remove it: `localspec models rm tiny-7b-q4_k_m`; then download it again: {again}."
    assert removed(cli, name)[0] == [f"{REPO}:Q4_K_M"]


@pytest.mark.slow
def test_the_beginning_of_anothers_name_is_refused_as_well(cli: Puller, tiny: Hub) -> None:
    path = Path(cli.json("models", "pull", REPO)["path"])
    other = cli.home / "mine" / "tiny-70b.gguf"
    other.parent.mkdir()
    other.write_bytes(model(2))
    config = cli.home / "config" / "config.toml"
    config.write_text(f'model_dirs = ["{other.parent}"]\n{config.read_text()}')
    error = refused(cli, "tiny")
    assert error["code"] == "model_ambiguous" and f"{REPO}:Q4_K_M, tiny:70b" in error["message"]
    assert path.exists() and removed(cli, "tiny:7b")[0] == [f"{REPO}:Q4_K_M"] and other.exists()


@pytest.mark.slow
def test_what_was_broken_off_goes_by_the_beginning_of_its_name(cli: Puller, tiny: Hub) -> None:
    for file, name in (("q4_k_m", "Q4_K_M"), ("q8_0", "Q8_0")):
        tiny.cuts[f"tiny-7b-{file}.gguf"] = [1_000_000, *[0] * 20]
        assert cli("models", "pull", f"{REPO}:{name}").returncode == 69
    error = refused(cli, "tiny-7b")
    assert error["code"] == "model_ambiguous" and f"{REPO}:Q4_K_M, {REPO}:Q8_0" in error["message"]
    assert removed(cli, "tiny-7b-q8")[0] == [f"{REPO}:Q8_0"]
    assert removed(cli, "org/tiny-7b-gguf:q4")[0] == [f"{REPO}:Q4_K_M"]
    assert cli.files() == []


def test_a_directory_for_mlx_goes_whole(cli: Puller, hub: Hub) -> None:
    hub.add("org/Tiny-4bit", mlx_directory())
    cli.json("models", "pull", "org/Tiny-4bit", "--mlx")
    assert removed(cli, "org/tiny-4bit")[1] == sum(map(len, mlx_directory().values()))
    assert cli.files() == []


def test_a_cache_that_the_person_cleared_is_no_obstacle(cli: Puller, tiny: Hub) -> None:
    path = Path(cli.json("models", "pull", REPO)["path"])
    (cli.folder() / "refs" / "main").unlink()
    path.unlink()
    (cli.folder() / "blobs" / sha256(Q4)).unlink()
    assert removed(cli, REPO)[0] == [f"{REPO}:Q4_K_M"]


def test_a_cache_in_disorder_is_left_alone(cli: Puller, tiny: Hub) -> None:
    path = Path(cli.json("models", "pull", REPO)["path"])
    (path.parent / "broken.gguf").symlink_to("../../blobs/nowhere")
    error = refused(cli, REPO)
    assert "so nothing was removed" in error["message"] and path.read_bytes() == Q4


def test_what_was_pulled_is_written_down_once(cli: Puller, tiny: Hub) -> None:
    for _ in range(2):
        cli.json("models", "pull", REPO)
    record = cli.home / "data" / "pulled.json"
    (pulled,) = json.loads(record.read_text())
    assert pulled["name"] == f"{REPO}:Q4_K_M" and record.stat().st_mode & 0o777 == 0o600
    record.write_text("damaged")
    assert "pulled.json cannot be read" in refused(cli, REPO)["message"]


def test_shells_complete_what_was_pulled(cli: Puller, tiny: Hub) -> None:
    cli.json("models", "pull", REPO)
    offered = cli.process("__complete", "models", "rm", "").stdout.splitlines()
    assert f"{REPO}:Q4_K_M" in offered and "bundled" not in offered


@pytest.mark.slow
def test_it_asks_first(cli: Puller, tiny: Hub) -> None:
    path = Path(cli.json("models", "pull", REPO)["path"])
    done = cli("models", "rm", REPO)
    assert done.returncode == 2 and "--yes" in done.stderr and path.exists()
    for answer, code, there in (("n", 1, True), ("y", 0, False)):
        command, *arguments = (*cli.command, "models", "rm", REPO)
        terminal = pexpect.spawn(
            command,
            arguments,
            env=cli.environment,
            timeout=DEADLINE_S,
            encoding="utf-8",
            dimensions=(24, 200),
        )
        terminal.expect(r"Remove org/Tiny-7B-GGUF:Q4_K_M \(3\.2 MB\) from .*\[y/N\]")
        terminal.sendline(answer)
        terminal.expect(pexpect.EOF)
        terminal.close()
        assert (terminal.exitstatus, path.exists()) == (code, there)


@pytest.mark.slow
def test_a_loaded_model_is_unloaded_first_and_one_at_work_is_left_alone(cli: Puller, hub: Hub) -> None:
    hub.add(REPO, {"stdlib-6m-q8_0.gguf": bundled_model("stdlib-6m").read_bytes()})
    path = cli.json("models", "pull", REPO)["path"]
    try:
        process = cli.begin(*LONG, "-m", path, "--draft", "none", "--stream-json")
        error = refused(cli, REPO)
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
        assert error["code"] == "engine_busy" and Path(path).exists()
        cli.json("models", "load", "-m", path, "--draft", "none", "--keep-alive", "0")
        assert len(cli.status()["models"]) == 1
        removed(cli, REPO)
        assert cli.status()["models"] == [] and cli.files() == []
    finally:
        cli("daemon", "stop")


@pytest.mark.slow
def test_a_directory_that_is_not_whole_was_never_loaded(cli: Puller, hub: Hub) -> None:
    hub.add("org/Tiny-4bit", mlx_directory())
    hub.cuts["config.json"] = [10, *[0] * 20]
    assert cli("models", "pull", "org/Tiny-4bit", "--mlx").returncode == 69
    try:
        assert cli("daemon", "start").returncode == 0
        assert removed(cli, "org/tiny-4bit")[0] == ["org/Tiny-4bit"] and cli.files() == []
    finally:
        cli("daemon", "stop")


@pytest.mark.slow
def test_who_drafts_is_told_by_its_place(cli: Puller, hub: Hub, tmp_path: Path) -> None:
    """Here a model that was pulled has the name of the bundled draft."""
    hub.add(REPO, {"stdlib-1m.gguf": model()})
    path = cli.json("models", "pull", REPO)["path"]
    target = tmp_path / "target.gguf"
    target.write_bytes(bundled_model("stdlib-6m").read_bytes())
    try:
        cli.json("models", "load", "-m", "bundled", "--backend", "llama_cpp", "--keep-alive", "0")
        cli.json("models", "load", "-m", str(target), "--draft", path, "--keep-alive", "0")
        drafts = {model["path"]: model["draft_path"] for model in cli.status()["models"]}
        bundled = {str(bundled_model("stdlib-6m")): str(bundled_model("stdlib-1m"))}
        assert drafts == bundled | {str(target): str(Path(path).resolve())}
        assert removed(cli, path)[0]
        assert {model["path"] for model in cli.status()["models"]} == bundled.keys()
    finally:
        cli("daemon", "stop")
