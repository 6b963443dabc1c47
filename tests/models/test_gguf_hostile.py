"""Damaged and hostile files: only a ModelError comes out, quickly, and little memory is taken."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import ModelError, ModelInvalid, ModelNotFound
from localspec.models import gguf
from localspec.models.gguf import read_header
from tests.models import ggufs

HUGE = 2**63
GIGABYTE = 10**9


def refused(folder: Path, content: bytes) -> str:
    with pytest.raises(ModelInvalid) as caught:
        read_header(ggufs.write(folder, content))
    return caught.value.message


# --- files that are no GGUF at all -------------------------------------------------------------


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"there is no file .*none\.gguf"):
        read_header(tmp_path / "none.gguf")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    assert "it is empty" in refused(tmp_path, b"")


@pytest.mark.parametrize("content", [b"G", b"GGU", b"GGML" + b"\0" * 99, b"PK\x03\x04" * 20])
def test_another_format_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "does not start with the letters GGUF" in refused(tmp_path, content)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelInvalid, match="is a directory"):
        read_header(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in this file system")
def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelInvalid, match="not a plain file"):
        read_header(tmp_path / "pipe.gguf")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no devices in this file system")
def test_a_device_is_refused() -> None:
    with pytest.raises(ModelInvalid, match="not a plain file"):
        read_header(Path("/dev/zero"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_refused(tmp_path: Path) -> None:
    path = ggufs.write(tmp_path, ggufs.small())
    path.chmod(0)
    with pytest.raises(ModelInvalid, match="cannot be read"):
        read_header(path)


def test_a_path_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    for path in (loop, tmp_path / ("n" * 5000), tmp_path / "a\0b"):
        with pytest.raises(ModelInvalid, match="cannot be read"):
            read_header(path)


# --- headers that lie --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 4, 2**32 - 1])
def test_an_unknown_version_is_refused(tmp_path: Path, version: int) -> None:
    assert f"its version is {version};" in refused(tmp_path, ggufs.start(0, 0, version=version))


@pytest.mark.parametrize(("n_tensors", "n_values"), [(HUGE, 0), (0, HUGE), (0, 2**64 - 1), (65_537, 0)])
def test_a_huge_count_is_refused(tmp_path: Path, n_tensors: int, n_values: int) -> None:
    assert f"it states {n_tensors} tensors" in refused(tmp_path, ggufs.start(n_tensors, n_values))


def test_a_count_that_the_file_does_not_hold_is_refused(tmp_path: Path) -> None:
    assert "truncated inside its header" in refused(tmp_path, ggufs.start(0, 60_000))


@pytest.mark.parametrize("length", [2**16, HUGE, 2**64 - 1])
def test_a_huge_key_is_refused(tmp_path: Path, length: int) -> None:
    assert f"a string of {length} bytes" in refused(tmp_path, ggufs.start(0, 1) + struct.pack("<Q", length))


@pytest.mark.parametrize("length", [2**31, HUGE, 2**64 - 1])
def test_a_huge_text_is_refused(tmp_path: Path, length: int) -> None:
    claim = ggufs.value("name", ggufs.STRING, struct.pack("<Q", length))
    assert f"a string of {length} bytes" in refused(tmp_path, ggufs.gguf([claim]))


@pytest.mark.parametrize("length", [2_000_001, HUGE, 2**64 - 1])
@pytest.mark.parametrize("kind", [ggufs.UINT8, ggufs.UINT64, ggufs.STRING])
def test_a_huge_array_is_refused(tmp_path: Path, kind: int, length: int) -> None:
    content = ggufs.gguf([ggufs.array("list", kind, length, b"")])
    assert f"an array of {length} items" in refused(tmp_path, content)


@pytest.mark.parametrize("key", ["list", "tokenizer.ggml.tokens"])
def test_a_text_in_an_array_longer_than_the_file_is_refused(tmp_path: Path, key: str) -> None:
    content = ggufs.gguf([ggufs.array(key, ggufs.STRING, 2, ggufs.text("a") + struct.pack("<Q", 2**64 - 1))])
    assert refused(tmp_path, content)


def test_an_array_of_arrays_is_refused(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", ggufs.ARRAY, 1) * 1000
    content = ggufs.gguf([ggufs.value("list", ggufs.ARRAY, inner)])
    assert "an array of the unknown type 9" in refused(tmp_path, content)


@pytest.mark.parametrize("kind", [13, 255, 2**32 - 1])
def test_an_unknown_type_is_refused(tmp_path: Path, kind: int) -> None:
    assert f"unknown type {kind}" in refused(tmp_path, ggufs.gguf([ggufs.value("a", kind, b"\0" * 8)]))
    content = ggufs.gguf([ggufs.array("a", kind, 1, b"\0" * 8)])
    assert f"unknown type {kind}" in refused(tmp_path, content)


@pytest.mark.parametrize("alignment", [0, 3, 33, 2**32 - 1])
def test_an_alignment_that_is_no_power_of_two_is_refused(tmp_path: Path, alignment: int) -> None:
    content = ggufs.gguf([ggufs.uint32("general.alignment", alignment)])
    assert f"its alignment is {alignment}," in refused(tmp_path, content)


def test_an_alignment_larger_than_the_file_leaves_no_room_for_tensors(tmp_path: Path) -> None:
    values = [ggufs.uint32("general.alignment", 2**31)]
    assert "past its end" in refused(tmp_path, ggufs.gguf(values, [ggufs.tensor("weight", (1,))], b"\0" * 64))


@pytest.mark.parametrize(("kind", "payload"), [(ggufs.BOOL, b"\1"), (ggufs.STRING, ggufs.text("32"))])
def test_an_alignment_of_another_type_is_refused(tmp_path: Path, kind: int, payload: bytes) -> None:
    content = ggufs.gguf([ggufs.value("general.alignment", kind, payload)])
    assert f"its alignment has the value type {kind}" in refused(tmp_path, content)


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    assert "two values for the key 'a'" in refused(
        tmp_path, ggufs.gguf([ggufs.uint32("a", 1), ggufs.uint32("a", 2)])
    )
    long = [ggufs.uint32("a" * 60_000, 1)] * 2
    assert refused(tmp_path, ggufs.gguf(long)).endswith(f"two values for the key '{'a' * 100}'…")


@pytest.mark.parametrize("key", ["tokenizer.ggml.tokens", "tokenizer.ggml.token_type"])
def test_a_vocabulary_of_another_type_is_refused(tmp_path: Path, key: str) -> None:
    floats = ggufs.array(key, ggufs.FLOAT32, 1, struct.pack("<f", 1.0))
    for claim in (ggufs.uint32(key, 5), ggufs.string(key, "abc"), floats):
        assert f"{key} is not a list of" in refused(tmp_path, ggufs.gguf([claim]))


# --- tensors that lie --------------------------------------------------------------------------


def test_a_tensor_past_the_end_is_refused_naming_it(tmp_path: Path) -> None:
    content = ggufs.gguf(tensors=[ggufs.tensor("weight", (8,))], data=b"\0" * 31)
    assert "tensor 'weight' ends 1 bytes past its end" in refused(tmp_path, content)


def test_a_quantised_tensor_past_the_end_is_refused(tmp_path: Path) -> None:
    content = ggufs.gguf(tensors=[ggufs.tensor("weight", (512,), ggufs.Q4_K)], data=b"\0" * 287)
    assert "ends 1 bytes past its end" in refused(tmp_path, content)


def test_a_tensor_of_unknown_type_takes_at_least_a_bit_for_each_weight(tmp_path: Path) -> None:
    content = ggufs.gguf(tensors=[ggufs.tensor("weight", (264,), ggufs.UNKNOWN_TYPE)], data=b"\0" * 32)
    assert "ends 1 bytes past its end" in refused(tmp_path, content)


@pytest.mark.parametrize("offset", [32, HUGE, 2**64 - 1, 2**64 - 32])
def test_an_offset_past_the_end_is_refused(tmp_path: Path, offset: int) -> None:
    content = ggufs.gguf(tensors=[ggufs.tensor("weight", (8,), offset=offset)], data=b"\0" * 32)
    assert "past its end" in refused(tmp_path, content)


@pytest.mark.parametrize(
    "shape",
    [(2**32, 2**32), (2**63, 2), (2**64 - 1,) * 4, (2**16, 2**16, 2**16, 2**16), (0,), (2**64 - 1, 0)],
)
@pytest.mark.parametrize("kind", [ggufs.F16, ggufs.Q4_K, ggufs.UNKNOWN_TYPE])
def test_a_shape_whose_product_overflows_or_is_zero_is_refused(
    tmp_path: Path, shape: tuple[int, ...], kind: int
) -> None:
    content = ggufs.gguf(tensors=[ggufs.tensor("weight", shape, kind)], data=b"\0" * 32)
    assert "has the invalid shape" in refused(tmp_path, content)


@pytest.mark.parametrize("dimensions", [0, 5])
def test_no_dimensions_and_too_many_are_refused(tmp_path: Path, dimensions: int) -> None:
    content = ggufs.gguf(tensors=[ggufs.tensor("weight", (1,) * dimensions)])
    assert f"has {dimensions} dimensions" in refused(tmp_path, content)


# --- bounds ------------------------------------------------------------------------------------


def sparse(folder: Path, content: bytes, size: int) -> Path:
    path = ggufs.write(folder, content)
    os.truncate(path, size)
    return path


def peak_memory(path: Path) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(ModelInvalid):
            read_header(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_text_that_a_huge_file_does_hold_is_refused_without_reading_it(tmp_path: Path) -> None:
    claim = ggufs.value("name", ggufs.STRING, struct.pack("<Q", 5 * GIGABYTE))
    assert peak_memory(sparse(tmp_path, ggufs.start(0, 1) + claim, 6 * GIGABYTE)) < 10_000_000


def test_a_header_longer_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "MAX_HEADER", 1_000_000)
    values = [ggufs.string(f"text {n}", "x" * 100_000) for n in range(11)]
    assert "longer than 1000000 bytes" in refused(tmp_path, ggufs.gguf(values))


def test_a_huge_file_of_zeros_is_refused_at_once(tmp_path: Path) -> None:
    assert peak_memory(sparse(tmp_path, ggufs.start(60_000, 60_000), 100 * GIGABYTE)) < 10_000_000


# --- truncation and flipped bytes --------------------------------------------------------------


@pytest.mark.slow
def test_a_small_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = ggufs.small()
    read_header(ggufs.write(tmp_path, whole))
    for length in range(len(whole)):
        assert refused(tmp_path, whole[:length]), length


@pytest.mark.slow
def test_the_bundled_draft_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = ggufs.DRAFT.read_bytes()
    path = ggufs.write(tmp_path, whole)
    read_header(path)
    cuts = {*range(0, 400_000, 5003), *range(400_000, len(whole), 400_009), *range(64), len(whole) - 1}
    for length in sorted(cuts, reverse=True):
        os.truncate(path, length)
        with pytest.raises(ModelInvalid):
            read_header(path)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


flips = st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 255)), min_size=1, max_size=4)


@pytest.mark.slow
@settings(deadline=5000, max_examples=400)
@given(flips=flips)
def test_flipped_bytes_of_a_small_file_give_a_header_or_a_model_error(
    scratch: Path, flips: list[tuple[int, int]]
) -> None:
    damaged = bytearray(ggufs.small())
    for place, byte in flips:
        damaged[place % len(damaged)] = byte
    read_or_refuse(ggufs.write(scratch, bytes(damaged)))


@pytest.mark.slow
@settings(deadline=5000, max_examples=40)
@given(flips=flips)
def test_flipped_bytes_of_the_bundled_draft_give_a_header_or_a_model_error(
    scratch: Path, flips: list[tuple[int, int]]
) -> None:
    damaged = bytearray(ggufs.DRAFT.read_bytes())
    for place, byte in flips:
        damaged[place % 300_000] = byte
    read_or_refuse(ggufs.write(scratch, bytes(damaged)))


@pytest.mark.slow
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
    assert header.file_size == path.stat().st_size
    assert header.parameters <= 8 * header.file_size
