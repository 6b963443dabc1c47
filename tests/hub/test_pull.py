"""``localspec models pull``: the real command against a real server that speaks the hub's API."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import hf_hub_download, scan_cache_dir

from localspec.models.catalogue import CATALOGUE, Entry
from tests.hub.conftest import Q4, Q8, REPO, Puller, model
from tests.hub.server import Hub, Refusal, sha256


def test_a_model_comes_whole_into_the_shared_cache(cli: Puller, tiny: Hub) -> None:
    tiny.etag = "../../../../.config/autostart/x"  # no value of an answer is a path
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
    assert default == "To have it answer without -m: localspec config set model tiny:7b"
    scanned = scan_cache_dir(cli.cache)
    assert not scanned.warnings and [repo.repo_id for repo in scanned.repos] == [REPO]
    assert hf_hub_download(REPO, path.name, cache_dir=cli.cache, local_files_only=True) == str(path)
    tiny.repositories[REPO].files["README.md"] = b"Now with more words."
    second = cli.pull(REPO)
    assert second != path and second.resolve() == path.resolve() and tiny.ranges_of(Q4) == [None]


def test_without_links_the_snapshot_has_the_file(
    cli: Puller, tiny: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object, **flags: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.symlink", refuse)
    path = cli.pull(REPO)
    assert path.read_bytes() == Q4 and not path.is_symlink()
    assert cli.pull(REPO) == path and tiny.ranges_of(Q4) == [None]
    assert cli("models", "rm", REPO, "--yes").returncode == 0 and cli.files() == []


@pytest.mark.parametrize("wanted", [(f"{REPO}:q8_0",), (REPO, "--file", "tiny-7b-q8_0.gguf")])
def test_what_is_named_comes(cli: Puller, tiny: Hub, wanted: tuple[str, ...]) -> None:
    pulled = cli.json("models", "pull", *wanted)
    assert (pulled["quantisation"], pulled["format"], pulled["bytes"]) == ("Q8_0", "gguf", len(Q8))
    assert Path(pulled["path"]).read_bytes() == Q8 and pulled["draft"] is None
    assert not tiny.ranges_of(Q4)


def test_a_split_model_comes_with_all_parts(cli: Puller, hub: Hub) -> None:
    parts = {f"Q4_K_M/a m-0000{n}-of-00002.gguf": model(n) for n in (1, 2)}
    hub.add(REPO, parts)
    path = cli.pull(REPO)
    assert path.name == "a m-00001-of-00002.gguf"
    assert {f"Q4_K_M/{file.name}": file.read_bytes() for file in path.parent.iterdir()} == parts


def test_content_that_cannot_be_used_is_an_error(cli: Puller, tiny: Hub) -> None:
    tiny.altered["tiny-7b-q4_k_m.gguf"] = Q4[:-1] + bytes([Q4[-1] ^ 1])
    error = cli.refusal("pull", REPO)
    assert (error["exit"], error["code"]) == (1, "download_broken") and cli.files() == []
    assert "the downloaded tiny-7b-q4_k_m.gguf is damaged: its checksum is " in error["message"]
    tiny.altered.clear()
    assert cli.pull(REPO).read_bytes() == Q4
    tiny.add("org/Other-GGUF", {"m-q4_k_m.gguf": b"GGUF" + bytes(100)})
    error = cli.refusal("pull", "org/Other-GGUF")
    assert (error["exit"], error["code"]) == (1, "model_invalid")
    assert "was downloaded completely" in error["message"]
    assert cli("models", "rm", "org/Other-GGUF:Q4_K_M", "--yes").returncode == 0


@pytest.mark.parametrize("other", ["link", "partial"])
def test_links_to_other_content_are_replaced(cli: Puller, tiny: Hub, tmp_path: Path, other: str) -> None:
    path, precious = cli.pull(REPO), tmp_path / "precious"
    precious.write_bytes(bytes(len(Q4)))
    path.unlink()
    if other == "partial":
        (cli.folder() / "blobs" / sha256(Q4)).unlink()
        path = cli.folder() / "blobs" / f"{sha256(Q4)}.incomplete"
    path.symlink_to(precious)
    assert cli.pull(REPO).read_bytes() == Q4 and precious.read_bytes() == bytes(len(Q4))


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
    error = cli.refusal("pull", REPO)
    assert error["code"] == code and text in error["remedy"]
    assert error["exit"] == {"hub_busy": 75, "hub_unavailable": 69}.get(code, 1)
    assert "hush" not in str(error) and "me:" not in str(error)


def test_a_full_disk_is_an_error_before_it_begins(
    cli: Puller, tiny: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=len(Q4) - 1))
    error = cli.refusal("pull", REPO)
    assert (error["exit"], error["code"]) == (1, "disk_full") and " are free" in error["message"]
    assert cli.files() == [] and not tiny.ranges_of(Q4)


def secretive(cli: Puller) -> str:
    """Put a name and password into the hub's address; returns what a request has of them."""
    cli.environment["HF_ENDPOINT"] = cli.environment["HF_ENDPOINT"].replace("://", "://me:hush%2Fhush@")
    return f"Basic {base64.b64encode(b'me:hush/hush').decode()}"


@pytest.mark.parametrize("kind", ["password", "token"])
def test_a_secret_goes_to_the_hub_alone(cli: Puller, tiny: Hub, kind: str) -> None:
    sent = secretive(cli) if kind == "password" else "Bearer hush"
    if kind == "token":
        cli.environment["HF_TOKEN"] = "hush"
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
    error = cli.refusal("pull", REPO)
    assert (error["exit"], error["code"]) == (69, "hub_unavailable") and "HF_ENDPOINT" in error["remedy"]
    assert "hush" not in str(error) and "me:" not in str(error)


TARGET, DRAFT = "org/Coder-7B-GGUF", "org/Coder-0.5B-GGUF"


@pytest.mark.parametrize("flag", ["--draft", "--yes"])
def test_a_draft_model_is_offered_and_comes_where_it_is_wanted(
    cli: Puller, tiny: Hub, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    for name, repo, file, content, draft in (
        ("coder:7b", TARGET, "coder-7b-q4_k_m.gguf", Q4, "coder:0.5b"),
        ("coder:0.5b", DRAFT, "coder-0.5b-q8_0.gguf", Q8, None),
    ):
        tiny.add(repo, {file: content})
        entry = Entry(name, "tests", repo, file, len(content), sha256(content), draft=draft)
        monkeypatch.setitem(CATALOGUE, name, entry)
    offered = "coder:0.5b (3.2 MB) can draft for it: localspec models pull coder:0.5b"
    assert offered in cli("models", "pull", TARGET).stderr
    assert cli.json("models", "pull", TARGET, "--no-draft")["draft"] is None
    assert not cli.folder(DRAFT).exists()
    draft_of = cli.json("models", "pull", TARGET, flag)["draft"]
    assert draft_of["pulled"] is True and Path(draft_of["path"]).read_bytes() == Q8
    assert "no draft model is known" in cli("models", "pull", REPO, "--draft").stderr
