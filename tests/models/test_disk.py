"""All stores at once: each model once, described as it is now, with its names; broken ones are reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import localspec
from localspec.models.index import Disk, read_disk
from localspec.models.model import place_of
from localspec.protocol.messages import ModelDescription
from tests.models import directories, ggufs
from tests.models.disk import FLAT, LM_STUDIO, OLLAMA, Home, Toy
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


# --- once each ---------------------------------------------------------------------------------


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


# --- as it is now ------------------------------------------------------------------------------


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


# --- what cannot be read -----------------------------------------------------------------------


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


# --- finding one -------------------------------------------------------------------------------


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
    home.ollama("toy", "7b", home.writer.content(Toy("toy", type="Q8_0")))
    with localspec.load("toy:7", draft="none") as engine:
        stream = engine.generate("def f(", max_tokens=3, temperature=0.0)
        assert "".join(chunk.text for chunk in stream) and stream.result.model == "toy:7b"


def test_however_it_is_named_a_model_has_one_place(home: Home) -> None:
    files: dict[str, bytes | None] = {
        f"toy-0000{n}-of-00002.gguf": part for n, part in enumerate(home.writer.split(Toy("t"), 2), 1)
    }
    snapshot = home.hub("org/Toy-GGUF", {**files, "single.gguf": small()})
    (home.root / "link").symlink_to(snapshot, target_is_directory=True)
    first = snapshot / "toy-00001-of-00002.gguf"
    # Its parts are found by its name: it does not become that of a blob.
    for path in (find_model("toy"), home.root / "link" / first.name):
        assert place_of(path) == str(snapshot.resolve() / first.name)
    single = find_model("single")
    assert place_of(single) == place_of(single.resolve()) and single.name == "single.gguf"
