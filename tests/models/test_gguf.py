"""Reading well-formed files with the bounded reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader

from localspec.errors import ModelInvalid
from localspec.models.gguf import KEPT_ARRAYS, MAX_LAYERS, GgufHeader, Tensor, read_header
from tests.models import ggufs


@pytest.fixture(scope="module", params=[ggufs.DRAFT, ggufs.TARGET], ids=lambda path: path.stem)
def bundled(request: pytest.FixtureRequest) -> tuple[GgufHeader, Any]:
    """Return one file as read by our reader and by the gguf package's."""
    return read_header(request.param), GGUFReader(request.param)


def test_values_are_those_that_the_gguf_package_reads(bundled: tuple[GgufHeader, Any]) -> None:
    header, reader = bundled
    fields = {name: f for name, f in reader.fields.items() if not name.startswith("GGUF.")}
    assert list(header.metadata) == list(fields)
    for name, found in header.metadata.items():
        expected = fields[name].contents()
        is_array = isinstance(expected, list)
        assert found == (tuple(expected) if name in KEPT_ARRAYS else None if is_array else expected), name


def test_tensors_are_those_that_the_gguf_package_reads(bundled: tuple[GgufHeader, Any]) -> None:
    header, reader = bundled
    assert header.tensors == tuple(
        Tensor(t.name, tuple(t.shape.tolist()), t.tensor_type.value, t.data_offset - reader.data_offset)
        for t in reader.tensors
    )


@pytest.mark.parametrize(("kind", "name"), [(ggufs.Q4_K, "Q4_K"), (ggufs.UNKNOWN_TYPE, "type 999")])
def test_the_quantisation_is_the_type_of_most_weights(tmp_path: Path, kind: int, name: str) -> None:
    tensors = [ggufs.tensor("norm", (64,), ggufs.F32), ggufs.tensor("weight", (256,), kind, 256)]
    path = ggufs.write(tmp_path, ggufs.gguf(tensors=tensors, data=b"\0" * 400))
    assert read_header(path).quantisation == name


def test_the_files_own_type_goes_first(tmp_path: Path) -> None:
    header = ggufs.gguf([ggufs.uint32("general.file_type", 15)], [ggufs.tensor("w", (32,), 8)], bytes(34))
    assert read_header(ggufs.write(tmp_path, header)).quantisation == "Q4_K_M"


def test_arrays_that_are_not_used_are_stepped_over(tmp_path: Path) -> None:
    metadata = read_header(ggufs.write(tmp_path, ggufs.small())).metadata
    assert metadata["tokenizer.ggml.merges"] is None
    assert metadata["tokenizer.ggml.token_type"] == (1, 1, 1)


def test_short_arrays_of_numbers_are_kept(tmp_path: Path) -> None:
    """They may hold a number for each layer."""
    values = [ggufs.ints("toy.layers", [1, 2, 3]), ggufs.ints("toy.rows", range(MAX_LAYERS + 1))]
    metadata = read_header(ggufs.write(tmp_path, ggufs.gguf(values)), texts=False).metadata
    assert metadata == {"toy.layers": (1, 2, 3), "toy.rows": None}


def test_text_that_is_no_utf8_is_read_with_replacements(tmp_path: Path) -> None:
    damaged = ggufs.gguf([ggufs.string("general.name", "abc")]).replace(b"abc", b"a\xffc")
    assert read_header(ggufs.write(tmp_path, damaged)).metadata["general.name"] == "a\ufffdc"


def test_the_alignment_of_the_file_places_its_data(tmp_path: Path) -> None:
    values, tensors = [ggufs.uint32("general.alignment", 128)], [ggufs.tensor("weight", (8,))]
    header = ggufs.start(1, 1) + values[0] + tensors[0]
    padded = header + b"\0" * (-len(header) % 128)
    assert read_header(ggufs.write(tmp_path, padded + b"\0" * 32)).tensors[0].shape == (8,)
    with pytest.raises(ModelInvalid, match="1 bytes past its end"):
        read_header(ggufs.write(tmp_path, padded + b"\0" * 31))


def test_experts_are_found_without_counting_the_layers_for_each_tensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a model of 1,500 tensors took 1.7 s more to load, and one of 65,000 an hour."""
    counted: list[GgufHeader] = []

    def count(header: GgufHeader) -> int:
        counted.append(header)
        return 2

    monkeypatch.setattr(GgufHeader, "layers", property(count))
    tensors = tuple(Tensor(f"blk.{i}.ffn_up.weight", (1,), 0, 0) for i in range(2))
    assert not GgufHeader({}, tensors, 0).has_experts
    assert GgufHeader({}, (*tensors, Tensor("blk.1.ffn_up_exps.weight", (1,), 0, 0)), 0).has_experts
    assert len(counted) <= 2


def test_there_are_no_more_layers_than_tensors() -> None:
    """Plans try each number of layers."""
    tensors = tuple(Tensor(f"blk.{n}.attn_q.weight", (1,), 0, 0) for n in (0, 999_999))
    assert GgufHeader({}, tensors, 0).layers == 2
