"""The bounded reader of GGUF files; a hostile one gives only a ModelError, quickly, in little memory."""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import ModelError, ModelInvalid, ModelNotFound
from localspec.models import gguf
from localspec.models.gguf import KEPT_ARRAYS, MAX_LAYERS, GgufHeader, Tensor, read_header
from tests.models import ggufs
from tests.mutation import FLIPS, flipped, little_memory


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


def test_there_are_no_more_layers_than_tensors() -> None:
    """Plans try each number of layers."""
    tensors = tuple(Tensor(f"blk.{n}.attn_q.weight", (1,), 0, 0) for n in (0, 999_999))
    assert GgufHeader({}, tensors, 0).layers == 2


HUGE, MOST = 2**63, 2**64 - 1
GIGABYTE = 10**9


def refused(folder: Path, content: bytes) -> str:
    with pytest.raises(ModelInvalid) as caught:
        read_header(ggufs.write(folder, content))
    return caught.value.message


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"there is no file .*none\.gguf"):
        read_header(tmp_path / "none.gguf")


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    """A pipe without waiting for its writer."""
    os.mkfifo(tmp_path / "pipe.gguf")
    for path in (tmp_path / "pipe.gguf", Path("/dev/zero")):
        with pytest.raises(ModelInvalid, match="not a plain file"):
            read_header(path)
    with pytest.raises(ModelInvalid, match="is a directory"):
        read_header(tmp_path)


def test_a_path_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    for path in (loop, tmp_path / ("n" * 5000), tmp_path / "a\0b"):
        with pytest.raises(ModelInvalid, match="cannot be read"):
            read_header(path)


def one(kind: int, payload: bytes) -> bytes:
    """A file with one value of any type."""
    return ggufs.gguf([ggufs.value("a", kind, payload)])


def weighed(
    shape: Sequence[int], data: int = 32, kind: int = ggufs.F32, *, offset: int = 0, align: int | None = None
) -> bytes:
    """A file with one tensor, and so many bytes behind its header."""
    values = [] if align is None else [ggufs.uint32("general.alignment", align)]
    return ggufs.gguf(values, [ggufs.tensor("weight", shape, kind, offset)], b"\0" * data)


def long(kind: int, length: int, key: str = "list", payload: bytes = b"") -> bytes:
    """A file with one array that states a length."""
    return ggufs.gguf([ggufs.array(key, kind, length, payload)])


TOO_LONG = 2_000_001, HUGE, MOST
NOT_ITEMS = ggufs.text("a") + struct.pack("<Q", MOST)
FLOAT = struct.pack("<f", 1.0)
LIES: list[tuple[bytes, str]] = [
    (b"", "it is empty"),
    *((each, "does not start with the letters GGUF") for each in (b"G", b"GGU", b"GGML" + b"\0" * 99)),
    (b"PK\x03\x04" * 20, "does not start with the letters GGUF"),
    *((ggufs.start(0, 0, version=n), f"its version is {n};") for n in (0, 1, 4, 2**32 - 1)),
    # Counts and lengths.
    *((ggufs.start(*n), f"it states {n[0]} tensors") for n in ((HUGE, 0), (0, HUGE), (0, MOST), (65_537, 0))),
    (ggufs.start(0, 60_000), "truncated inside its header"),
    *((ggufs.start(0, 1) + struct.pack("<Q", n), f"a string of {n} bytes") for n in (2**16, HUGE, MOST)),
    *((one(ggufs.STRING, struct.pack("<Q", n)), f"a string of {n} bytes") for n in (2**31, HUGE, MOST)),
    *((long(ggufs.UINT8, n), f"an array of {n} items") for n in TOO_LONG),
    *((long(ggufs.UINT64, n), f"an array of {n} items") for n in TOO_LONG),
    *((long(ggufs.STRING, n), f"an array of {n} items") for n in TOO_LONG),
    (long(ggufs.STRING, 2, payload=NOT_ITEMS), ""),
    (long(ggufs.STRING, 2, "tokenizer.ggml.tokens", NOT_ITEMS), ""),
    # Types.
    (one(ggufs.ARRAY, struct.pack("<IQ", ggufs.ARRAY, 1) * 1000), "an array of the unknown type 9"),
    *((one(n, b"\0" * 8), f"unknown type {n}") for n in (13, 255, 2**32 - 1)),
    *((long(n, 1, payload=b"\0" * 8), f"unknown type {n}") for n in (13, 255, 2**32 - 1)),
    (ggufs.gguf([ggufs.uint32("a", 1), ggufs.uint32("a", 2)]), "two values for the key 'a'"),
    (ggufs.gguf([ggufs.uint32("a" * 60_000, 1)] * 2), f"two values for the key '{'a' * 100}'…"),
    *(
        (ggufs.gguf([claim]), f"{key} is not a list of")
        for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type")
        for claim in (
            ggufs.uint32(key, 5),
            ggufs.string(key, "abc"),
            ggufs.array(key, ggufs.FLOAT32, 1, FLOAT),
        )
    ),
    # The alignment.
    *(
        (ggufs.gguf([ggufs.uint32("general.alignment", n)]), f"its alignment is {n},")
        for n in (0, 3, 33, 2**32 - 1)
    ),
    *(
        (
            ggufs.gguf([ggufs.value("general.alignment", kind, payload)]),
            f"its alignment has the value type {kind}",
        )
        for kind, payload in ((ggufs.BOOL, b"\1"), (ggufs.STRING, ggufs.text("32")))
    ),
    (weighed((1,), 64, align=2**31), "past its end"),
    # Tensors.
    (weighed((8,), 31), "tensor 'weight' ends 1 bytes past its end"),
    (weighed((512,), 287, ggufs.Q4_K), "ends 1 bytes past its end"),
    (weighed((264,), 32, ggufs.UNKNOWN_TYPE), "ends 1 bytes past its end"),  # a bit for each weight at least
    *((weighed((8,), offset=n), "past its end") for n in (32, HUGE, MOST, 2**64 - 32)),
    *(
        (weighed(shape, kind=kind), "has the invalid shape")
        for kind in (ggufs.F16, ggufs.Q4_K, ggufs.UNKNOWN_TYPE)
        for shape in ((2**32, 2**32), (2**63, 2), (MOST,) * 4, (2**16,) * 4, (0,), (MOST, 0))
    ),
    *((weighed((1,) * n, 0), f"has {n} dimensions") for n in (0, 5)),
]


@pytest.mark.parametrize(("content", "sentence"), LIES, ids=itertools.count())
def test_a_lie_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    assert sentence in refused(tmp_path, content)


def test_a_text_that_a_huge_file_does_hold_is_refused_without_reading_it(tmp_path: Path) -> None:
    claim = ggufs.value("name", ggufs.STRING, struct.pack("<Q", 5 * GIGABYTE))
    path = ggufs.write(tmp_path, ggufs.start(0, 1) + claim)
    os.truncate(path, 6 * GIGABYTE)
    with little_memory(), pytest.raises(ModelInvalid):
        read_header(path)


def test_a_header_longer_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "MAX_HEADER", 1_000_000)
    values = [ggufs.string(f"text {n}", "x" * 100_000) for n in range(11)]
    assert "longer than 1000000 bytes" in refused(tmp_path, ggufs.gguf(values))


def test_a_small_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = ggufs.small()
    read_header(ggufs.write(tmp_path, whole))
    for length in range(len(whole)):
        assert refused(tmp_path, whole[:length]), length


@settings(deadline=5000, max_examples=400)
@given(flips=FLIPS)
def test_flipped_bytes_of_a_small_file_give_a_header_or_a_model_error(
    scratch: Path, flips: list[tuple[int, int]]
) -> None:
    read_or_refuse(ggufs.write(scratch, flipped(ggufs.small(), flips)))


@settings(deadline=5000, max_examples=200)
@given(rest=st.binary(max_size=200), counts=st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_random_bytes_after_the_counts_give_a_header_or_a_model_error(
    scratch: Path, rest: bytes, counts: tuple[int, int]
) -> None:
    read_or_refuse(ggufs.write(scratch, ggufs.start(*counts) + rest))


def read_or_refuse(path: Path) -> None:
    try:
        header = read_header(path)
    except ModelError:
        return
    assert header.size == path.stat().st_size
    assert header.parameters <= 8 * header.size


def test_the_bytes_on_a_gpu_are_those_of_the_last_layers_and_the_output(tmp_path: Path) -> None:
    names = ["token_embd.weight", "output.weight", "output_norm.weight", *(f"blk.{i}.a" for i in range(3))]
    tensors = [ggufs.tensor(name, (4, 2), ggufs.F32, 32 * i) for i, name in enumerate(names)]
    path = tmp_path / "m.gguf"
    path.write_bytes(ggufs.gguf([], tensors, b"\0" * 32 * len(names)))
    header = read_header(path)
    assert [header.bytes_of_last(n) // 32 for n in (0, 1, 2, 3, 4, 999)] == [0, 2, 3, 4, 5, 5]
