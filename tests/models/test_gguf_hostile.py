"""Damaged and hostile files: only a ModelError comes out, quickly, and little memory is taken."""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import ModelError, ModelInvalid, ModelNotFound
from localspec.models import gguf
from localspec.models.gguf import read_header
from tests.models import ggufs
from tests.mutation import FLIPS, flipped, little_memory

HUGE, MOST = 2**63, 2**64 - 1
GIGABYTE = 10**9


def refused(folder: Path, content: bytes) -> str:
    with pytest.raises(ModelInvalid) as caught:
        read_header(ggufs.write(folder, content))
    return caught.value.message


# --- files that are no GGUF at all -------------------------------------------------------------


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


# --- content that lies -------------------------------------------------------------------------


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


# --- bounds ------------------------------------------------------------------------------------


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


# --- truncation and flipped bytes --------------------------------------------------------------


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
