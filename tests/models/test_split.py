"""Split GGUF models: one model, loaded by its first part, or refused with the missing part."""

from __future__ import annotations

from pathlib import Path

import pytest

import localspec
from localspec.errors import ModelInvalid
from localspec.models.gguf import MISSING_PART, read_header, split_of
from tests import random_ggufs
from tests.models import ggufs
from tests.models.finding import describe, find_model


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A model in three files."""
    return random_ggufs.write_llama(tmp_path / "toy.gguf", layers=2, parts=3)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """The same in one file."""
    return random_ggufs.write_llama(tmp_path / "whole.gguf", layers=2)[0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a-00002-of-00003.gguf", ("a", 2, 3)),
        ("a-00001-of-00002-00001-of-00001.gguf", ("a-00001-of-00002", 1, 1)),
        ("-00001-of-00001.gguf", ("", 1, 1)),
        ("a-00004-of-00003.gguf", None),
        ("a-00000-of-00003.gguf", None),
        ("a-1-of-3.gguf", None),
        ("a-00001-of-00003.gguf.part", None),
        ("a.gguf", None),
    ],
)
def test_a_part_is_known_by_its_name(name: str, expected: tuple[str, int, int] | None) -> None:
    split = split_of(Path(name))
    assert (split and (split.stem, split.number, split.total)) == expected


def test_the_header_is_that_of_the_whole_model(parts: list[Path], whole: Path) -> None:
    split, joined = read_header(parts[0]), read_header(whole)
    assert split.parameters == joined.parameters and split.quantisation == joined.quantisation
    assert {tensor.name for tensor in split.tensors} == {tensor.name for tensor in joined.tensors}
    assert split.tokenizer_fp == joined.tokenizer_fp
    assert split.size == sum(part.stat().st_size for part in parts)


def test_a_missing_part_is_named(parts: list[Path]) -> None:
    parts[1].unlink()
    model = describe("toy", parts[0])
    assert model.problem == f"part 2 of 3 is missing: there is no file {parts[1]}"
    assert model.remedy == MISSING_PART
    assert model.size == parts[0].stat().st_size + parts[2].stat().st_size


def test_a_damaged_part_is_named(parts: list[Path]) -> None:
    parts[2].write_bytes(parts[2].read_bytes()[:-1])
    assert f"{parts[2]} is not a usable GGUF file: it is truncated" in str(describe("toy", parts[0]).problem)


def test_another_part_leads_to_the_first(parts: list[Path]) -> None:
    with pytest.raises(ModelInvalid, match="is part 2 of 3 of a model") as caught:
        read_header(parts[1])
    assert str(parts[0]) in caught.value.remedy


def test_a_claim_of_very_many_parts_ends_at_once(tmp_path: Path) -> None:
    path = ggufs.write(tmp_path, ggufs.small(), "toy-00001-of-99999.gguf")
    assert "part 2 of 99999 is missing" in str(describe("toy", path).problem)


def test_llama_cpp_computes_the_same_from_the_parts(parts: list[Path], whole: Path) -> None:
    texts = []
    for path in (whole, find_model("toy", (str(whole.parent),))):
        with localspec.load(str(path), draft="none", backend="llama_cpp") as engine:
            chunks = engine.generate("def f(", max_tokens=12, temperature=0.0)
            texts.append("".join(chunk.text for chunk in chunks))
    assert texts[0] == texts[1] and texts[0]
