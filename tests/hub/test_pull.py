"""``localspec models pull``: the real command against a real server that speaks the hub's API."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download, scan_cache_dir

from localspec.models.catalogue import CATALOGUE, Entry
from tests.hub.conftest import Q4, Q8, REPO, Puller, model
from tests.hub.server import Hub, Refusal, sha256

EXIT_CODES = {"hub_busy": 75, "hub_unavailable": 69}


def failed(cli: Puller, *arguments: str) -> tuple[int, dict[str, str]]:
    """The exit code and the error object of a pull that must fail."""
    done = cli("models", "pull", *arguments, "--json")
    assert done.returncode != 0, done.stdout
    error = json.loads(done.stdout)["error"]
    assert error["remedy"] and "Traceback" not in done.stderr
    return done.returncode, error


def test_a_model_comes_whole_into_the_shared_cache(cli: Puller, tiny: Hub) -> None:
    done = cli("models", "pull", REPO)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert path.name == "tiny-7b-q4_k_m.gguf" and path.read_bytes() == Q4
    commit = tiny.repositories[REPO].commit
    assert cli.files() == [f"blobs/{sha256(Q4)}", "refs/main", f"snapshots/{commit}/tiny-7b-q4_k_m.gguf"]
    asked = {asked.path.rpartition("/")[0] for asked in tiny.log}
    assert asked == {"/api/models/org", f"/{REPO}/resolve/{commit}", "/blobs"}, "no telemetry"
    assert "Why: Q4_K_M takes " in done.stderr and "localspec: 100% of 3.2 MB" in done.stderr
    run, default = done.stderr.splitlines()[-2:]
    assert run == "To run it: localspec run -m tiny:7b 'Hello'"
    assert default.endswith("still answers without -m. For it: localspec config set model tiny:7b")
    scanned = scan_cache_dir(cli.cache)
    assert not scanned.warnings and [repo.repo_id for repo in scanned.repos] == [REPO]
    assert hf_hub_download(REPO, path.name, cache_dir=cli.cache, local_files_only=True) == str(path)


def test_another_commit_of_the_same_file_is_a_link(cli: Puller, tiny: Hub) -> None:
    first = cli.json("models", "pull", REPO)
    tiny.repositories[REPO].files["README.md"] = b"Now with more words."
    second = cli.json("models", "pull", REPO)
    assert first["path"] != second["path"] and Path(second["path"]).read_bytes() == Q4
    assert tiny.ranges_of(Q4) == [None]


@pytest.mark.parametrize("etag", ["../../../../.config/autostart/x", "e" * 64])
def test_no_value_of_an_answer_is_a_path(cli: Puller, tiny: Hub, etag: str) -> None:
    tiny.etag = etag
    path = Path(cli.json("models", "pull", REPO)["path"])
    assert path.read_bytes() == Q4 and path.resolve() == cli.folder() / "blobs" / sha256(Q4)
    assert len(cli.files()) == 3 and not list(cli.home.rglob("autostart"))


def test_without_links_the_snapshot_has_the_file(
    cli: Puller, tiny: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object, **flags: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.symlink", refuse)
    path = Path(cli.json("models", "pull", REPO)["path"])
    assert path.read_bytes() == Q4 and not path.is_symlink()
    assert cli.json("models", "pull", REPO)["path"] == str(path) and tiny.ranges_of(Q4) == [None]
    assert cli("models", "rm", REPO, "--yes").returncode == 0 and cli.files() == []


def test_a_link_to_another_content_is_replaced(cli: Puller, tiny: Hub) -> None:
    path = Path(cli.json("models", "pull", REPO)["path"])
    other = path.resolve().with_name("e" * 64)
    other.write_bytes(bytes(len(Q4)))
    path.unlink()
    path.symlink_to(other)
    assert Path(cli.json("models", "pull", REPO)["path"]).read_bytes() == Q4


@pytest.mark.parametrize("wanted", [(f"{REPO}:q8_0",), (REPO, "--file", "tiny-7b-q8_0.gguf")])
def test_what_is_named_comes(cli: Puller, tiny: Hub, wanted: tuple[str, ...]) -> None:
    pulled = cli.json("models", "pull", *wanted)
    assert (pulled["quantisation"], pulled["format"], pulled["bytes"]) == ("Q8_0", "gguf", len(Q8))
    assert Path(pulled["path"]).read_bytes() == Q8 and pulled["draft"] is None
    assert not tiny.ranges_of(Q4)


def test_a_split_model_comes_with_all_parts(cli: Puller, hub: Hub) -> None:
    parts = {f"Q4_K_M/a m-0000{n}-of-00002.gguf": model(n) for n in (1, 2)}
    hub.add(REPO, parts)
    path = Path(cli.json("models", "pull", REPO)["path"])
    assert path.name == "a m-00001-of-00002.gguf"
    assert {f"Q4_K_M/{file.name}": file.read_bytes() for file in path.parent.iterdir()} == parts


def test_a_wrong_checksum_is_an_error_and_the_file_is_removed(cli: Puller, tiny: Hub) -> None:
    tiny.altered["tiny-7b-q4_k_m.gguf"] = Q4[:-1] + bytes([Q4[-1] ^ 1])
    code, error = failed(cli, REPO)
    assert (code, error["code"]) == (1, "download_broken")
    assert "the downloaded tiny-7b-q4_k_m.gguf is damaged: its checksum is " in error["message"]
    assert cli.files() == []
    tiny.altered.clear()
    assert Path(cli.json("models", "pull", REPO)["path"]).read_bytes() == Q4


def test_a_complete_file_that_is_no_model_is_an_error(cli: Puller, hub: Hub) -> None:
    hub.add(REPO, {"m-q4_k_m.gguf": b"GGUF" + bytes(100)})
    code, error = failed(cli, REPO)
    assert (code, error["code"]) == (1, "model_invalid") and "was downloaded completely" in error["message"]
    assert cli("models", "rm", f"{REPO}:Q4_K_M", "--yes").returncode == 0


@pytest.mark.parametrize(
    ("part", "refusal", "code", "text"),
    [
        ("/api/models/", Refusal(404, {"X-Error-Code": "RepoNotFound"}), "model_not_found", "ORG/NAME"),
        ("/api/models/", Refusal(401, {"X-Error-Code": "GatedRepo"}), "hub_denied", "HF_TOKEN"),
        ("/api/models/", Refusal(401), "hub_denied", "HF_TOKEN"),
        ("/api/models/", Refusal(429, {"Retry-After": "17"}), "hub_busy", "Try again in 17 seconds"),
        ("/api/models/", Refusal(429, {"Retry-After": "soon\x1b"}), "hub_busy", "in some minutes"),
        ("/api/models/", Refusal(503), "hub_unavailable", "HF_ENDPOINT"),
        ("/api/models/", Refusal(302, {"Location": "http://"}), "hub_unavailable", "HF_ENDPOINT"),
        ("/api/models/", Refusal(302, {"Location": "/api/models/"}), "hub_unavailable", "HF_ENDPOINT"),
        ("/api/models/", Refusal(200), "hub_unavailable", "HF_ENDPOINT"),
        ("/resolve/", Refusal(403), "hub_denied", "HF_TOKEN"),
        ("/resolve/", Refusal(404, {"X-Error-Code": "EntryNotFound"}), "model_not_found", "ORG/NAME"),
        ("/blobs/", Refusal(500), "hub_unavailable", "the same command continues it"),
    ],
)
def test_a_refusal_is_an_error_with_a_remedy_and_without_the_password(
    cli: Puller, tiny: Hub, part: str, refusal: Refusal, code: str, text: str
) -> None:
    secretive(cli)
    tiny.refusals[part] = refusal
    exited, error = failed(cli, REPO)
    assert (error["code"], exited) == (code, EXIT_CODES.get(code, 1)) and text in error["remedy"]
    assert "hush" not in str(error) and "me:" not in str(error)


def lying(hub: Hub, **fields: object) -> None:
    """Change the entry of the file in the listing."""
    listing = hub.add(REPO, {"m-q4_k_m.gguf": Q4}).listing()
    listing["siblings"][0].update(fields)
    hub.listings[REPO] = json.dumps(listing).encode()


def test_a_full_disk_is_an_error_before_it_begins(cli: Puller, hub: Hub) -> None:
    size = 2 * shutil.disk_usage(cli.home).free
    lying(hub, size=size)
    code, error = failed(cli, f"{REPO}:Q4_K_M")
    assert (code, error["code"]) == (1, "disk_full") and " are free" in error["message"]
    assert cli.files() == [] and not hub.ranges_of(Q4)


def test_a_partial_file_that_is_a_link_is_not_written_through(cli: Puller, tiny: Hub, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    blobs = cli.folder() / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{sha256(Q4)}.incomplete").symlink_to(precious)
    assert Path(cli.json("models", "pull", REPO)["path"]).read_bytes() == Q4
    assert precious.read_bytes() == b"mine"


def secretive(cli: Puller) -> str:
    """Put a name and password into the hub's address; returns what a request has of them."""
    cli.environment["HF_ENDPOINT"] = cli.environment["HF_ENDPOINT"].replace("://", "://me:hush%2Fhush@")
    return f"Basic {base64.b64encode(b'me:hush/hush').decode()}"


def test_a_password_in_the_address_goes_to_the_hub_alone(cli: Puller, tiny: Hub) -> None:
    sent = secretive(cli)
    done = cli("models", "pull", REPO)
    assert done.returncode == 0, done.stderr
    assert {(asked.server, asked.token) for asked in tiny.log} == {("hub", sent), ("cdn", None)}
    written = [path for path in cli.home.rglob("*") if path.is_file()]
    assert written and not any(b"hush" in path.read_bytes() for path in written)
    assert "hush" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "address",
    [
        *("http://127.0.0.1:9", "not an address", "ftp://x", "http://x:99999", "http://me:hush@127.0.0.1:9"),
        *("me:hush@127.0.0.1", "http://me:hush@", "ftp://me:hush@x", "http:/me:hush@x", "http://me:hush@[::"),
        *("http://me:hu/hush@127.0.0.1:9", "http://me:hu@hush@127.0.0.1:9", "http://me:hush\n@x y"),
    ],
)
def test_a_wrong_address_is_refused_without_its_password(cli: Puller, address: str) -> None:
    cli.environment["HF_ENDPOINT"] = address
    code, error = failed(cli, REPO)
    assert (code, error["code"]) == (69, "hub_unavailable") and "HF_ENDPOINT" in error["remedy"]
    assert "hush" not in str(error) and "me:" not in str(error)


TARGET, DRAFT = "org/Coder-7B-GGUF", "org/Coder-0.5B-GGUF"


@pytest.fixture
def family(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A repository of the catalogue, and that of its draft model."""
    for name, repo, file, content in (
        ("coder:7b", TARGET, "coder-7b-q4_k_m.gguf", Q4),
        ("coder:0.5b", DRAFT, "coder-0.5b-q8_0.gguf", Q8),
    ):
        hub.add(repo, {file: content})
        draft = "coder:0.5b" if repo == TARGET else None
        entry = Entry(name, "tests", repo, file, len(content), sha256(content), draft=draft)
        monkeypatch.setitem(CATALOGUE, name, entry)
    return hub


def test_the_matching_draft_is_offered_with_its_command(cli: Puller, family: Hub) -> None:
    done = cli("models", "pull", TARGET)
    assert "coder:0.5b (3.2 MB) can draft for it: localspec models pull coder:0.5b" in done.stderr
    assert not cli.folder(DRAFT).exists()
    assert cli.json("models", "pull", TARGET, "--no-draft")["draft"] is None


@pytest.mark.parametrize("flag", ["--draft", "--yes"])
def test_the_draft_comes_too_where_it_is_wanted(cli: Puller, family: Hub, flag: str) -> None:
    pulled = cli.json("models", "pull", TARGET, flag)
    assert pulled["draft"]["pulled"] is True and Path(pulled["draft"]["path"]).read_bytes() == Q8


def test_a_model_without_a_known_draft_is_alone(cli: Puller, tiny: Hub) -> None:
    done = cli("models", "pull", REPO, "--draft")
    assert done.returncode == 0 and "no draft model is known" in done.stderr
