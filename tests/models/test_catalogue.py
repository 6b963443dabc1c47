"""Which models there are: by name, by path, and in a listing that nothing can spoil."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import ModelNotFound
from localspec.models.catalogue import bundled_dir, describe, find_model, list_models
from localspec.protocol.messages import ModelDescription, ModelList
from tests.models import ggufs


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
    models = list_models((str(folder),))
    assert msgspec.json.decode(msgspec.json.encode(ModelList(tuple(models))), type=ModelList)
    return {model.id: model for model in models}


# --- finding one -------------------------------------------------------------------------------


def test_bundled_is_the_bundled_target() -> None:
    assert find_model("bundled") == ggufs.TARGET


def test_the_bundled_models_have_names() -> None:
    assert find_model("stdlib-1m") == ggufs.DRAFT


def test_the_bundled_models_are_in_the_checkout() -> None:
    assert bundled_dir() == Path(__file__).resolve().parents[2] / "assets" / "models"


def test_a_path_is_taken_as_it_is(shelf: Path) -> None:
    assert find_model(str(shelf / "good.gguf")) == shelf / "good.gguf"


def test_a_relative_path_becomes_absolute(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shelf)
    assert find_model("good.gguf") == shelf / "good.gguf"
    assert find_model("./deep/er/nested.gguf") == shelf / "deep" / "er" / "nested.gguf"


def test_the_home_directory_may_be_written_as_a_tilde(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(shelf))
    assert find_model("~/good.gguf") == shelf / "good.gguf"


def test_an_id_is_searched_in_the_directories(shelf: Path) -> None:
    assert find_model("nested", [str(shelf)]) == shelf / "deep" / "er" / "nested.gguf"


def test_a_file_in_a_directory_does_not_take_a_bundled_models_place(shelf: Path) -> None:
    ggufs.write(shelf, ggufs.small(), "stdlib-6m.gguf")
    assert find_model("stdlib-6m", [str(shelf)]) == ggufs.TARGET


@pytest.mark.parametrize(
    ("name", "near"), [("bundeld", "bundled"), ("stdlib6m", "stdlib-6m"), ("nestd", "nested")]
)
def test_a_wrong_name_is_answered_with_the_nearest(shelf: Path, name: str, near: str) -> None:
    with pytest.raises(ModelNotFound, match=f"there is no model named '{name}'; did you mean '{near}'"):
        find_model(name, [str(shelf)])


def test_a_name_like_none_of_ours_gets_no_suggestion() -> None:
    with pytest.raises(ModelNotFound, match="there is no model named 'qqqqqqqq'$"):
        find_model("qqqqqqqq")


@pytest.mark.parametrize("name", ["nowhere.gguf", "/nowhere/at/all", "~no-such-user/x.gguf", "a\0b.gguf"])
def test_a_path_to_nothing_is_not_found(name: str) -> None:
    with pytest.raises(ModelNotFound, match="there is no file"):
        find_model(name)


@pytest.mark.parametrize("name", ["n" * 5000, "a\0b", "\ud800", "../" * 2000])
def test_a_strange_name_is_not_found(name: str) -> None:
    with pytest.raises(ModelNotFound):
        find_model(name)


# --- listing all -------------------------------------------------------------------------------


def test_the_bundled_pair_is_listed_first() -> None:
    target, draft = list_models()
    assert (target.id, target.path) == ("stdlib-6m", str(ggufs.TARGET))
    assert (draft.id, draft.path) == ("stdlib-1m", str(ggufs.DRAFT))
    assert target.vocab_fp == draft.vocab_fp is not None
    assert target.fim and draft.fim
    assert target.problem is draft.problem is None


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
    )


def test_every_gguf_file_is_listed_at_any_depth(shelf: Path) -> None:
    expected = {"stdlib-6m", "stdlib-1m", "good", "nested", "empty", "cut", "folder", "dangling"}
    assert set(listed(shelf)) == expected


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("empty", "it is empty"),
        ("cut", "it is truncated"),
        ("folder", "is a directory"),
        ("dangling", "there is no file"),
    ],
)
def test_a_broken_file_is_listed_with_its_problem(shelf: Path, name: str, problem: str) -> None:
    assert problem in (listed(shelf)[name].problem or "")


def test_a_broken_file_is_listed_with_its_size(shelf: Path) -> None:
    models = listed(shelf)
    assert models["cut"].size == len(ggufs.small()) - 1
    assert models["dangling"].size == models["folder"].size == 0


def test_a_pipe_does_not_hold_up_the_listing(shelf: Path) -> None:
    os.mkfifo(shelf / "pipe.gguf")
    assert "not a plain file" in (listed(shelf)["pipe"].problem or "")


def test_a_file_name_that_is_no_text_is_listed_readably(shelf: Path) -> None:
    for content, name in ((ggufs.small(), b"a\xff.gguf"), (b"", b"b\xff.gguf")):
        Path(os.fsdecode(os.path.join(os.fsencode(shelf), name))).write_bytes(content)
    models = listed(shelf)
    assert models["a\ufffd"].problem is None
    assert "b\ufffd.gguf" in (models["b\ufffd"].problem or "")


@pytest.mark.parametrize("folder", ["/nowhere/at/all", "~no-such-user/models", "a\0b", "n" * 5000, "\ud800"])
def test_a_directory_that_is_not_there_adds_nothing(folder: str) -> None:
    assert [model.id for model in list_models((folder,))] == ["stdlib-6m", "stdlib-1m"]


def test_a_file_in_place_of_a_directory_adds_nothing(shelf: Path) -> None:
    assert set(listed(shelf / "good.gguf")) == {"stdlib-6m", "stdlib-1m"}


def test_directories_that_contain_themselves_end(shelf: Path) -> None:
    (shelf / "deep" / "again").symlink_to(shelf, target_is_directory=True)
    assert "nested" in listed(shelf)


# --- describing one ----------------------------------------------------------------------------


def described(folder: Path, *values: bytes) -> ModelDescription:
    return describe("x", ggufs.write(folder, ggufs.gguf(values)))


def test_a_file_without_a_vocabulary_has_no_fingerprint(tmp_path: Path) -> None:
    assert described(tmp_path).vocab_fp is None


@pytest.mark.parametrize("marker", ["<|fim_prefix|>", "<fim_prefix>", "<PRE>", "<｜fim▁begin｜>"])
def test_fill_in_the_middle_is_known_by_its_usual_texts(tmp_path: Path, marker: str) -> None:
    assert described(tmp_path, *ggufs.vocabulary(["a", marker])).fim
    assert not described(tmp_path, *ggufs.vocabulary(["a", marker + "."])).fim


def test_fill_in_the_middle_is_known_by_its_id(tmp_path: Path) -> None:
    assert described(tmp_path, ggufs.uint32("tokenizer.ggml.fim_pre_token_id", 1)).fim


@pytest.mark.parametrize(
    "context",
    [ggufs.string("toy.context_length", "many"), ggufs.value("toy.context_length", ggufs.BOOL, b"\1")],
)
def test_a_context_that_is_no_number_is_unknown(tmp_path: Path, context: bytes) -> None:
    model = described(tmp_path, ggufs.string("general.architecture", "toy"), context)
    assert (model.context, model.problem) == (None, None)


def test_the_largest_context_a_file_can_claim_can_be_sent(tmp_path: Path) -> None:
    claim = ggufs.value("toy.context_length", ggufs.UINT64, struct.pack("<Q", 2**64 - 1))
    model = described(tmp_path, ggufs.string("general.architecture", "toy"), claim)
    assert b"18446744073709551615" in msgspec.json.encode(model)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@settings(deadline=5000, max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=3), st.integers(0, 600))
def test_any_damaged_file_can_be_described_and_sent(
    scratch: Path, flips: list[tuple[int, int]], length: int
) -> None:
    damaged = bytearray(ggufs.small())
    for place, byte in flips:
        damaged[place % len(damaged)] = byte
    model = describe("x", ggufs.write(scratch, bytes(damaged[:length])))
    assert msgspec.json.decode(msgspec.json.encode(model), type=ModelDescription) == model
