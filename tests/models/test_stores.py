"""The layout of each program's store, and the models found in it; nothing is ever written there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from localspec.models import stores
from localspec.models.stores import StoredModel, repository_of, scan_folder, scan_hub, scan_ollama, stores_of
from tests.models.disk import HUB, OLLAMA, Home

Scan = Callable[[Path], Iterator[StoredModel]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty home of a user on Linux."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("OLLAMA_MODELS")
    return Home(tmp_path)


def ids(scan: Scan, root: Path) -> list[str]:
    return [found.id for found in scan(root) if found.problem is None]


def problems(scan: Scan, root: Path) -> dict[str, str]:
    return {found.id: found.problem for found in scan(root) if found.problem is not None}


def roots(name: str) -> list[Path]:
    return [store.root for store in stores_of() if store.name == name]


XDG = {"XDG_CACHE_HOME": "/x"}
HUBS = {"HF_HOME": "/h", "HUGGINGFACE_HUB_CACHE": "/old"}


@pytest.mark.parametrize(
    ("name", "system", "environ", "root"),
    [
        ("huggingface", "linux", {"HF_HUB_CACHE": ""}, ".cache/huggingface/hub"),
        ("huggingface", "darwin", {}, ".cache/huggingface/hub"),
        ("huggingface", "linux", XDG, "/x/huggingface/hub"),
        ("huggingface", "linux", XDG | {"HF_HOME": "/h"}, "/h/hub"),
        ("huggingface", "linux", HUBS, "/old"),
        ("huggingface", "linux", HUBS | {"HF_HUB_CACHE": "/new"}, "/new"),
        ("llama.cpp", "linux", {}, ".cache/llama.cpp"),
        ("llama.cpp", "linux", XDG, "/x/llama.cpp"),
        ("llama.cpp", "darwin", {}, "Library/Caches/llama.cpp"),
        ("llama.cpp", "linux", {"LLAMA_CACHE": "/own"}, "/own"),
        ("ollama", "darwin", {}, ".ollama/models"),
        ("ollama", "linux", {"OLLAMA_MODELS": "/m"}, "/m"),
    ],
)
def test_a_store_is_where_its_program_looks(
    home: Home, monkeypatch: pytest.MonkeyPatch, name: str, system: str, environ: dict[str, str], root: str
) -> None:
    monkeypatch.setattr("sys.platform", system)
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    assert roots(name) == [home.root / root]


def test_a_user_without_a_home_has_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", Mock(side_effect=KeyError))
    assert "ollama" in [store.name for store in stores.stores_of()]


def test_ollamas_models_are_the_users_and_the_services_on_linux(home: Home) -> None:
    assert roots("ollama") == [home.root / ".ollama" / "models", stores.SERVICE]


def test_lm_studios_directory_is_that_of_its_settings(home: Home) -> None:
    assert roots("lmstudio") == [home.root / ".lmstudio" / "models"]
    home.file(".lmstudio/settings.json", json.dumps({"downloadsFolder": "/big/disk"}).encode())
    assert roots("lmstudio") == [Path("/big/disk")]
    for broken in (b"{", b'{"downloadsFolder": 3}', b"\xff"):
        home.file(".lmstudio/settings.json", broken)
        assert roots("lmstudio") == [home.root / ".lmstudio" / "models"]


def test_of_a_split_model_the_first_part_stands_for_all(home: Home) -> None:
    for number in (3, 2):
        home.file(f"m/big-{number:05}-of-00003.gguf", b"")
    (found,) = scan_folder(home.root / "m")
    assert found == StoredModel(home.root / "m" / "big-00001-of-00003.gguf", "big")


def test_links_to_directories_are_followed_once(home: Home) -> None:
    home.file("disk/publisher/a.gguf", b"")
    (home.root / "m").mkdir()
    for name in ("one", "two"):
        (home.root / "m" / name).symlink_to(home.root / "disk", target_is_directory=True)
    (home.root / "disk" / "self").symlink_to("self")
    assert ids(scan_folder, home.root / "m") == ["a"]


def test_a_directory_with_very_much_in_it_is_searched_in_part(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        home.file(f"m/{number}/a-{number}.gguf", b"")
    monkeypatch.setattr("localspec.models.stores.MAX_ENTRIES", 12)
    assert "has more than 12 files" in problems(scan_folder, home.root / "m")["m"]
    assert ids(scan_folder, home.root / "m") == ["a-0", "a-1", "a-2", "a-3"]


def test_a_root_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    loop = tmp_path / "manifests"
    loop.symlink_to("manifests")
    for scan, root in ((scan_folder, loop), (scan_hub, loop), (scan_ollama, loop), (scan_ollama, tmp_path)):
        with pytest.raises(OSError):
            list(scan(root))


def test_a_snapshot_has_its_repositorys_name(home: Home) -> None:
    snapshot = home.hub("mlx-community/Toy-1B-4bit", {"config.json": b"{}", "model.safetensors": b""})
    (found,) = scan_hub(home.root / HUB)
    assert (found.path, found.id, found.hint) == (snapshot, "Toy-1B-4bit", "mlx-community/Toy-1B-4bit")
    assert repository_of(snapshot) == "mlx-community/Toy-1B-4bit"
    assert repository_of(home.root) is None


def test_a_file_is_known_by_its_blobs_digest(home: Home) -> None:
    home.hub("org/Toy-GGUF", {"toy-q4_0.gguf": b"GGUF"})
    (found,) = scan_hub(home.root / HUB)
    assert (found.id, found.hint, len(found.digest or "")) == ("toy-q4_0", "org/Toy-GGUF", 64)
    assert found.path.is_symlink()  # its name is the file's, not the blob's


def test_of_a_file_in_several_snapshots_it_is_that_of_main(home: Home) -> None:
    home.hub("org/Toy-GGUF", {"a.gguf": b"new", "deep/b.gguf": b"b"}, revision="b" * 40)
    (home.root / HUB / "models--org--Toy-GGUF" / "refs" / "main").unlink()
    home.hub("org/Toy-GGUF", {"a.gguf": b"old", "c.gguf": b"c"}, revision="a" * 40)
    main = home.root / HUB / "models--org--Toy-GGUF" / "refs" / "main"
    for revision in ("a" * 40, "b" * 40):
        main.write_text(revision)
        found = {each.id: each.path for each in scan_hub(home.root / HUB)}
        assert found["a"].parent.name == revision
        assert set(found) == {"a", "b", "c"}  # what one snapshot has alone is there as well


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_pipe_in_place_of_the_revision_is_not_waited_for(home: Home) -> None:
    home.hub("org/Toy-GGUF", {"a.gguf": b"1"})
    main = home.root / HUB / "models--org--Toy-GGUF" / "refs" / "main"
    main.unlink()
    os.mkfifo(main)
    assert ids(scan_hub, home.root / HUB) == ["a"]
    main.unlink()
    main.symlink_to("/dev/zero")
    assert ids(scan_hub, home.root / HUB) == ["a"]


def test_an_older_snapshot_serves_where_the_newer_is_not_all_there(home: Home) -> None:
    home.hub("org/Toy-GGUF", {"a.gguf": b"old"}, revision="a" * 40)
    (home.root / HUB / "models--org--Toy-GGUF" / "refs" / "main").unlink()
    home.hub("org/Toy-GGUF", {"a.gguf": None}, revision="b" * 40)
    newer, older = scan_hub(home.root / HUB)
    assert newer.problem is not None and older.problem is None
    assert (newer.path.parent.name, older.path.parent.name) == ("b" * 40, "a" * 40)


def test_incomplete_downloads_of_the_hub_are_reported(home: Home) -> None:
    home.hub("org/Gone-GGUF", {"gone.gguf": None})
    home.file(HUB / "datasets--org--words" / "snapshots" / "a" / "a.gguf", b"")
    home.file(HUB / "version.txt", b"1")
    found = problems(scan_hub, home.root / HUB)
    assert list(found) == ["gone"] and "not completed" in found["gone"]
    assert not ids(scan_hub, home.root / HUB)
    (gone,) = scan_hub(home.root / HUB)
    assert gone.remedy == "Download it again: `localspec models pull org/Gone-GGUF`."


def test_a_manifest_leads_to_its_blob(home: Home) -> None:
    home.ollama("toy", "7b", b"GGUF", template=f"sha256:{'0' * 64}")
    (found,) = scan_ollama(home.root / OLLAMA)
    assert (found.id, found.path.name) == ("toy:7b", f"sha256-{found.digest}")


def test_models_of_others_have_their_makers_name(home: Home) -> None:
    path = home.ollama("toy", "7b", b"GGUF")
    for place in ("registry.ollama.ai/maker", "hf.co/maker"):
        target = home.root / OLLAMA / "manifests" / place / "own" / "1b"
        target.parent.mkdir(parents=True)
        target.write_bytes(path.read_bytes())
    found = ids(scan_ollama, home.root / OLLAMA)
    assert found == ["hf.co/maker/own:1b", "toy:7b", "maker/own:1b"]


@pytest.mark.parametrize(
    ("digest", "problem"),
    [
        ("sha256:../../../etc/passwd", "no GGUF file"),
        ("sha256:" + "0" * 63, "no GGUF file"),
        ("md5:" + "0" * 64, "no GGUF file"),
        ("sha256:" + "0" * 64, "is missing"),
        ("SHA256-" + "0" * 64, "no GGUF file"),
    ],
)
def test_a_digest_that_is_none_leads_nowhere(home: Home, digest: str, problem: str) -> None:
    home.manifest("toy", "7b", {"model": digest})
    (home.root / OLLAMA / "blobs").mkdir()
    assert problem in problems(scan_ollama, home.root / OLLAMA)["toy:7b"]


def test_what_ollama_keeps_otherwise_is_reported(home: Home) -> None:
    home.manifest("cloud", "big", {})
    home.manifest("tensors", "7b", {"tensor": f"sha256:{'0' * 64}"})
    found = problems(scan_ollama, home.root / OLLAMA)
    assert "Ollama's servers" in found["cloud:big"] and "single tensors" in found["tensors:7b"]
