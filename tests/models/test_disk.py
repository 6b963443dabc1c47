"""All stores at once: each model once, described as it is now, with its names; broken ones are reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import localspec
from localspec.errors import ModelNotFound
from localspec.models.index import Disk, read_disk
from localspec.models.model import model_at, place_of
from localspec.models.pair import Room, auto_draft
from localspec.models.paths import absolute
from localspec.protocol.messages import ModelDescription
from localspec.protocol.requests import EngineConfig
from tests import random_ggufs
from tests.models import directories, ggufs
from tests.models.disk import FLAT, LM_STUDIO, OLLAMA, Home
from tests.models.finding import find_model


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty home of the user who runs this."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "user" / OLLAMA))
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "localspec"))
    return Home(tmp_path / "user")


def small(name: str = "toy") -> bytes:
    """Bytes of a model that differ by its name."""
    title = ggufs.string("general.name", name)
    return ggufs.gguf([title, *ggufs.vocabulary([name])], [ggufs.tensor("w", (8,))], data=b"\0" * 32)


def by_id(disk: Disk) -> dict[str, ModelDescription]:
    return {model.id: model for model in disk.models if model.store != "bundled"}


def test_what_two_stores_call_by_one_digest_is_one_model(home: Home) -> None:
    home.hub("org/Toy-7B-GGUF", {"toy-7b-q4_0.gguf": small()})
    home.ollama("toy", "7b", small())
    home.ollama("toy", "latest", small())
    model = by_id(read_disk())["toy-7b-q4_0"]
    assert model.store == "huggingface" and model.names[:4] == ("toy:7b", "toy-7b-q4_0", "toy:latest", "toy")
    assert model.names[4:] == ("org/Toy-7B-GGUF", "org/Toy-7B-GGUF:Q4_0")
    assert [Path(path).name[:7] for path in model.also] == ["sha256-"]
    assert find_model("toy") == find_model("toy:7b") == find_model("toy:latest") == Path(model.path)


def test_a_copy_that_was_cut_short_hides_no_whole_one(home: Home) -> None:
    snapshot = home.hub("org/Toy-7B-GGUF", {"toy-7b-q4_0.gguf": small()})
    blob = (snapshot / "toy-7b-q4_0.gguf").resolve()
    blob.write_bytes(small()[:-1])
    home.ollama("toy", "7b", small())
    models = by_id(read_disk())
    assert "truncated" in str(models["toy-7b-q4_0"].problem) and models["toy:7b"].problem is None
    assert find_model("toy:7b") == Path(models["toy:7b"].path)


def test_hard_and_symbolic_links_are_one_model(home: Home) -> None:
    first = home.file(FLAT / "toy-1b.gguf", small())
    second = home.root / LM_STUDIO / "me" / "toy" / "other-1b.gguf"
    second.parent.mkdir(parents=True)
    second.hardlink_to(first)
    (second.parent / "third.gguf").symlink_to(first)
    model = by_id(read_disk())["toy-1b"]
    assert model.names == ("toy:1b", "toy-1b", "other-1b", "third")
    assert model.also == (str(second), str(second.parent / "third.gguf"))


def test_the_bundled_pair_is_itself_wherever_else_it_is_found(home: Home) -> None:
    link = home.root / LM_STUDIO / "me" / "toy" / "stdlib-6m.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(ggufs.TARGET)
    models = read_disk().models
    assert len(models) == 2 and models[0].also == (str(link),)
    assert models[0].names == ("stdlib-6m", "bundled")


def test_a_model_that_changes_is_read_anew(home: Home) -> None:
    path = home.file(FLAT / "toy.gguf", small()[:-1])
    assert "truncated" in str(by_id(read_disk())["toy"].problem)
    path.write_bytes(small())
    assert by_id(read_disk())["toy"].problem is None
    path.unlink()
    home.file(FLAT / "other.gguf", small())
    assert "toy" not in by_id(read_disk())
    assert str(path) not in (home.root.parent / "localspec" / "cache" / "models.json").read_text()


def test_a_directorys_tokenizer_that_changes_is_read_anew(home: Home) -> None:
    folder = directories.write(home.root / LM_STUDIO.parent, name="models")
    before = by_id(read_disk())["models"]
    tokenizer = directories.tokenizer({"a": 0, "b": 1})
    directories.write(folder.parent, {"tokenizer.json": tokenizer}, name="models")
    after = by_id(read_disk())["models"]
    assert before.vocab_fp != after.vocab_fp


def test_a_damaged_file_of_the_hub_is_removed_before_it_is_downloaded_again(home: Home) -> None:
    snapshot = home.hub("org/Toy-GGUF", {"toy-q4_0.gguf": b"GGUF"})
    blob = os.path.realpath(snapshot / "toy-q4_0.gguf")
    remedy = f"Remove {blob}, then run `localspec models pull org/Toy-GGUF:Q4_0`."
    assert by_id(read_disk())["toy-q4_0"].remedy == remedy


def test_a_store_that_cannot_be_read_is_reported(home: Home) -> None:
    root = home.root / FLAT
    root.parent.mkdir(parents=True)
    root.symlink_to("llama.cpp")
    (store,) = read_disk().stores
    assert (store.name, store.path) == ("llama.cpp", str(root))
    assert "cannot be read: Too many levels" in str(store.problem) and store.remedy


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"layout": 3}', b"\xff" * 10, b'{"layout":"x","models":{}}']
)
def test_a_damaged_index_is_thrown_away(home: Home, tmp_path: Path, content: bytes) -> None:
    home.file(FLAT / "toy.gguf", small())
    before = read_disk()
    index = tmp_path / "localspec" / "cache" / "models.json"
    assert index.stat().st_mode & 0o077 == 0
    index.write_bytes(content)
    assert read_disk() == before == read_disk()
    assert len(index.read_bytes()) > 500


def test_what_pull_takes_is_a_name(home: Home) -> None:
    files: dict[str, bytes | None] = {f"toy-7b-{each}.gguf": small(each) for each in ("q8_0", "Q4_K_M")}
    manifest = home.ollama("toy", "1b", small("another")).read_bytes()
    home.file(OLLAMA / "manifests" / "hf.co" / "org" / "Toy-1B-GGUF" / "Q4_0", manifest)
    snapshot = home.hub("org/Toy-7B-GGUF", files | {"UD-Q2_K/toy-7b-00001-of-00001.gguf": small()})
    for name, file in (("Q8_0", "toy-7b-q8_0.gguf"), ("ud-q2_k", "UD-Q2_K/toy-7b-00001-of-00001.gguf")):
        assert find_model(f"org/toy-7b-gguf:{name}") == snapshot / file
    assert find_model("org/Toy-7B-GGUF").name == "toy-7b-Q4_K_M.gguf"
    assert find_model("org/Toy-1B-GGUF:Q4_0").name.startswith("sha256-")


def test_llama_cpp_answers_from_a_blob(home: Home) -> None:
    (whole,) = random_ggufs.write_llama(home.root.parent / "toy.gguf")
    home.ollama("toy", "7b", whole.read_bytes())
    with localspec.load("toy:7", draft="none") as engine:
        stream = engine.generate("def f(", max_tokens=3, temperature=0.0)
        assert "".join(chunk.text for chunk in stream) and stream.result.model == "toy:7b"


def test_however_it_is_named_a_model_has_one_place(home: Home) -> None:
    parts = random_ggufs.write_llama(home.root.parent / "toy.gguf", parts=2)
    files: dict[str, bytes | None] = {part.name: part.read_bytes() for part in parts}
    snapshot = home.hub("org/Toy-GGUF", {**files, "single.gguf": small()})
    (home.root / "link").symlink_to(snapshot, target_is_directory=True)
    first = snapshot / "toy-00001-of-00002.gguf"
    # Its parts are found by its name: it does not become that of a blob.
    for path in (find_model("toy"), home.root / "link" / first.name):
        assert place_of(path) == str(snapshot.resolve() / first.name)
    single = find_model("single")
    assert place_of(single) == place_of(single.resolve()) and single.name == "single.gguf"


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
