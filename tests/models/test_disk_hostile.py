"""Files in other programs' stores may be anything: one that is broken hides no other model."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import ModelInvalid, ModelNotFound
from localspec.models.index import read_disk
from localspec.models.library import absolute
from localspec.models.model import model_at, place_of
from localspec.models.pair import Room, auto_draft
from localspec.protocol.requests import EngineConfig
from tests.models import ggufs
from tests.models.disk import LM_STUDIO, OLLAMA, Home
from tests.models.finding import find_model
from tests.models.test_disk import by_id, home, small

__all__ = ["home"]


def test_links_that_lead_in_a_circle_cost_themselves_alone(home: Home) -> None:
    home.ollama("good", "7b", small("good"))
    home.hub("org/Fine-7B-GGUF", {"fine-7b.gguf": small("fine")})
    loop = home.root / LM_STUDIO / "org" / "name" / "x.gguf"
    loop.parent.mkdir(parents=True)
    loop.symlink_to(loop)
    blob = home.root / OLLAMA / "blobs" / f"sha256-{'1' * 64}"
    blob.symlink_to(blob)
    home.manifest("looped", "1b", {"model": "1" * 64})
    manifest = home.ollama("away", "1b", small("away"))
    link = manifest.parent / "again"
    link.symlink_to(link)
    for folder in ("models--z--y", "models--a--b"):
        (home.root / ".cache" / "huggingface" / "hub" / folder).mkdir(parents=True)
        (home.root / ".cache" / "huggingface" / "hub" / folder / "blobs").write_bytes(b"no directory")
    found = by_id(read_disk())
    assert {"good:7b", "fine-7b", "away:1b"} <= set(found)
    assert found["x"].problem is not None
    assert find_model("good:7b").name.startswith("sha256-")
    assert auto_draft(model_at(find_model("fine-7b")), (), Room(EngineConfig(n_ctx=64)))[0] is None
    assert place_of(loop) == str(loop)


def test_names_with_slashes_are_names_unless_something_is_there(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.ollama("hf.co/org/name", "Q4_K_M", small("one"))
    home.hub("org/Other-7B-GGUF", {"other-7b.gguf": small("other")})
    monkeypatch.chdir(tmp_path)
    for name in ("hf.co/org/name:Q4_K_M", "org/Other-7B-GGUF"):
        assert absolute(name) == name
        assert find_model(name).is_file()
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "Other-7B-GGUF").mkdir()
    assert absolute("org/Other-7B-GGUF") == str(tmp_path / "org" / "Other-7B-GGUF")
    assert absolute("./nothing") == str(tmp_path / "nothing")
    with pytest.raises(ModelNotFound):
        find_model("org/nothing")


def test_names_that_no_file_can_have_are_refused_or_not_found(home: Home) -> None:
    for name in ("x" * 300, "~nosuch/x.gguf"):
        with pytest.raises(ModelNotFound):
            find_model(absolute(name))


def test_what_is_listed_as_unusable_is_not_loaded(home: Home) -> None:
    pytest.importorskip("llama_cpp")
    from localspec.backends.llama_cpp.backend import LlamaCppBackend

    values = [ggufs.string("general.architecture", "nomic-bert"), *ggufs.vocabulary(["a"])]
    home.ollama("embed", "latest", ggufs.gguf(values, [ggufs.tensor("w", (8,))], b"\0" * 32))
    listed = by_id(read_disk())["embed:latest"]
    assert listed.problem is not None and "embedding model" in listed.problem
    with pytest.raises(ModelInvalid, match="embedding model"):
        LlamaCppBackend(model_at(Path(listed.path)))
