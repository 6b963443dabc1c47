"""Models by name, by path, and in a listing that no broken file can spoil."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import ModelInvalid, ModelNotFound
from localspec.models.index import read_disk
from localspec.protocol.messages import ModelDescription, ModelList
from tests.mlx_pair import in_both_formats
from tests.models import directories, ggufs
from tests.models.finding import describe, find_model
from tests.mutation import FLIPS, flipped

BUNDLED_PAIR = ["stdlib-6m", "stdlib-1m"]


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A directory of models, good and broken."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    ggufs.write(tmp_path, ggufs.small(), "good.gguf")
    ggufs.write(tmp_path / "deep" / "er", ggufs.small(), "nested.gguf")
    ggufs.write(tmp_path, b"", "empty.gguf")
    ggufs.write(tmp_path, ggufs.small()[:-1], "cut.gguf")
    ggufs.write(tmp_path, b"no model", "notes.txt")
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "dangling.gguf").symlink_to(tmp_path / "gone.gguf")
    return tmp_path


def listed(folder: Path) -> dict[str, ModelDescription]:
    models = read_disk((str(folder),)).models
    assert [model.id for model in models[:2]] == BUNDLED_PAIR
    assert msgspec.json.decode(msgspec.json.encode(ModelList(tuple(models))), type=ModelList)
    return {model.id: model for model in models}


NESTED = Path("deep", "er", "nested.gguf")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        *(("bundled", ggufs.TARGET), ("stdlib-1m", ggufs.DRAFT), ("nested", NESTED)),
        *((name, "good.gguf") for name in ("{}/good.gguf", "good.gguf", "~/good.gguf")),
        ("./deep/er/nested.gguf", NESTED),
    ],
)
def test_a_name_or_a_path_leads_to_its_model(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, name: str, path: str | Path
) -> None:
    monkeypatch.chdir(shelf)
    monkeypatch.setenv("HOME", str(shelf))
    assert find_model(name.format(shelf), (str(shelf),)) == shelf / path


@pytest.mark.parametrize(
    ("name", "near"), [("bundeld", "bundled"), ("stdlib6m", "stdlib-6m"), ("nestd", "nested")]
)
def test_a_wrong_name_is_answered_with_the_nearest(shelf: Path, name: str, near: str) -> None:
    with pytest.raises(ModelNotFound, match=f"there is no model named '{name}'; did you mean '{near}'"):
        find_model(name, (str(shelf),))


@pytest.mark.parametrize("name", ["nowhere.gguf", "/nowhere/at/all", "~no-such-user/x.gguf", "a\0b.gguf"])
def test_a_path_to_nothing_is_not_found(name: str) -> None:
    with pytest.raises(ModelNotFound, match="there is no file"):
        find_model(name)


@pytest.mark.parametrize("name", ["n" * 5000, "a\0b", "\ud800", "../" * 2000])
def test_a_strange_name_is_not_found(name: str) -> None:
    with pytest.raises(ModelNotFound):
        find_model(name)


def test_the_bundled_pair_is_listed_first() -> None:
    models = read_disk().models
    assert [model.id for model in models] == BUNDLED_PAIR
    assert [model.path for model in models] == [str(path) for path in (ggufs.TARGET, ggufs.DRAFT)]
    assert [model.format for model in models] == ["gguf", "gguf"]
    assert len({model.vocab_fp for model in models}) == 1 and models[0].vocab_fp
    assert all(model.fim and model.problem is None for model in models)


def test_a_model_is_described_alike_in_both_formats(tmp_path: Path) -> None:
    in_both_formats(tmp_path, "twin", "stdlib-6m")
    gguf, mlx = sorted(read_disk((str(tmp_path),)).models[2:], key=lambda model: model.format)
    own = {name: getattr(gguf, name) for name in ("path", "format", "backend", "size", "title", "names")}
    assert gguf.template and msgspec.structs.replace(mlx, **own) == gguf


def test_a_good_file_is_described(shelf: Path) -> None:
    good = listed(shelf)["good"]
    assert good == ModelDescription(
        id="good",
        path=str(shelf / "good.gguf"),
        format="gguf",
        backend="llama_cpp",
        architecture="toy",
        parameters=8,
        quantisation="F32",
        size=len(ggufs.small()),
        context=64,
        vocab_fp=good.vocab_fp,
        store="model_dirs",
        names=("good",),
    )


def test_a_broken_file_is_listed_with_its_problem_and_size(shelf: Path) -> None:
    os.mkfifo(shelf / "pipe.gguf")
    models = listed(shelf)
    for name, problem in (
        ("pipe", "not a plain file"),
        ("empty", "it is empty"),
        ("cut", "it is truncated"),
        ("folder", "is a directory"),
        ("dangling", "there is no file"),
    ):
        assert problem in (models[name].problem or ""), name
    assert models["cut"].size == len(ggufs.small()) - 1
    assert models["dangling"].size == models["folder"].size == 0


def test_a_file_name_that_is_no_text_is_listed_readably(shelf: Path) -> None:
    for content, name in ((ggufs.small(), b"a\xff.gguf"), (b"", b"b\xff.gguf")):
        Path(os.fsdecode(os.path.join(os.fsencode(shelf), name))).write_bytes(content)
    models = listed(shelf)
    assert models["a\ufffd"].problem is None
    assert "b\ufffd.gguf" in (models["b\ufffd"].problem or "")


def test_a_directory_that_is_not_there_adds_nothing() -> None:
    folders = ("/nowhere/at/all", "~no-such-user/models", "a\0b", "n" * 5000, "\ud800")
    assert [model.id for model in read_disk(folders).models] == BUNDLED_PAIR


@pytest.fixture
def library(shelf: Path) -> Path:
    """The shelf, with model directories on it."""
    directories.write(shelf, name="Toy-0.5B")
    directories.write(shelf / "deep", name="nested")
    directories.write(shelf, {"model.safetensors": directories.SMALL[:-1]}, name="cut-directory")
    directories.write(shelf, {"model.safetensors": None}, name="no-weights")
    directories.write(shelf, {"config.json": None}, name="no-configuration")
    return shelf


def test_a_directory_named_like_a_file_is_listed_once(tmp_path: Path) -> None:
    directories.write(tmp_path, name="toy.gguf")
    (model,) = read_disk((str(tmp_path),)).models[2:]
    assert (model.id, model.format, model.problem) == ("toy.gguf", "mlx", None)
    assert find_model(model.path) == tmp_path / "toy.gguf"


@pytest.mark.parametrize("name", ["Toy-0.5B", "{}/Toy-0.5B", "./Toy-0.5B", "./Toy-0.5B/"])
def test_a_directory_is_found_by_its_id_or_path(
    library: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(library)
    assert find_model(name.format(library), (str(library),)) == library / "Toy-0.5B"


@pytest.mark.parametrize("name", ["tmp", "etc", "vmlinuz", "Toy-0.5B", "no-configuration", "good"])
def test_a_plain_name_is_no_path(library: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The daemon's directory is the root, and what lies there takes no model's name."""
    (library / "vmlinuz").touch()
    for place in (Path("/"), library):
        monkeypatch.chdir(place)
        with pytest.raises(ModelNotFound, match=f"there is no model named '{name}'"):
            find_model(name)


@pytest.mark.parametrize("name", [".", "./no-configuration", "folder.gguf"])
def test_a_directory_that_is_no_models_is_refused(
    library: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(library)
    with pytest.raises(ModelInvalid, match="is a directory without a config.json") as caught:
        find_model(name)
    assert "config.json and *.safetensors" in caught.value.remedy


def test_a_folder_that_happens_to_be_here_takes_no_models_place(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories.write(library, name="stdlib-6m")
    monkeypatch.chdir(library)
    assert find_model("stdlib-6m") == ggufs.TARGET
    assert find_model("./stdlib-6m") == library / "stdlib-6m"


def described(folder: Path, *values: bytes) -> ModelDescription:
    return describe("x", ggufs.write(folder, ggufs.gguf(values)))


@pytest.mark.parametrize("marker", ["<|fim_prefix|>", "<fim_prefix>", "<PRE>", "<｜fim▁begin｜>"])
def test_fill_in_the_middle_is_known_by_its_usual_texts_in_both_formats(tmp_path: Path, marker: str) -> None:
    for text in (marker, marker + "."):
        tokenizer = directories.tokenizer({"a": 0}, [directories.added(1, text)])
        path = directories.write(tmp_path, {"tokenizer.json": tokenizer})
        assert described(tmp_path, *ggufs.vocabulary(["a", text])).fim == (text == marker)
        assert describe("x", path).fim == (text == marker)


def test_fill_in_the_middle_is_known_by_its_id(tmp_path: Path) -> None:
    assert described(tmp_path, ggufs.uint32("tokenizer.ggml.fim_pre_token_id", 1)).fim


def test_a_context_that_no_model_can_have_is_not_shown(tmp_path: Path) -> None:
    claim = ggufs.value("toy.context_length", ggufs.UINT64, struct.pack("<Q", 2**64 - 1))
    assert described(tmp_path, ggufs.string("general.architecture", "toy"), claim).context is None


@settings(deadline=5000, max_examples=300)
@given(FLIPS, st.integers(0, 600))
def test_any_damaged_file_can_be_described_and_sent(
    scratch: Path, flips: list[tuple[int, int]], length: int
) -> None:
    model = describe("x", ggufs.write(scratch, flipped(ggufs.small(), flips)[:length]))
    assert msgspec.json.decode(msgspec.json.encode(model), type=ModelDescription) == model


def test_only_codestral_fills_gaps_with_the_tokens_that_all_of_its_makers_have(tmp_path: Path) -> None:
    path = ggufs.write(tmp_path, ggufs.gguf(ggufs.vocabulary(["a", "[PREFIX]", "[SUFFIX]"])))
    assert describe("Codestral-22B", path).fim and not describe("mistral-nemo", path).fim
