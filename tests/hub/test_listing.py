"""A hub's answers are checked before they are used."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import HubUnavailable, LocalspecError, ModelInvalid
from localspec.hub.listing import MAX_FILE, MAX_FILES, HubFile, parse_listing

COMMIT, OID, DIGEST = "c" * 40, "0" * 40, "f" * 64


def parsed(*siblings: dict[str, Any], **fields: Any) -> tuple[HubFile, ...]:
    return parse_listing("org/x", json.dumps({"sha": COMMIT, "siblings": siblings, **fields}).encode()).files


def small(name: str, size: Any = 1, oid: Any = OID) -> dict[str, Any]:
    return {"rfilename": name, "size": size, "blobId": oid}


def large(name: str, size: Any = 1, digest: Any = DIGEST) -> dict[str, Any]:
    return {**small(name, size), "lfs": {"sha256": digest, "size": size, "pointerSize": 130}}


def test_small_files_go_by_gits_checksum_and_large_ones_by_their_own() -> None:
    found = parsed(small("config.json"), large("a/model.gguf", 7), lastModified="yesterday")
    assert found == (HubFile("config.json", 1, OID), HubFile("a/model.gguf", 7, DIGEST))


UNSAFE = (
    *(
        "../x.gguf",
        "a/../../x.gguf",
        "/etc/passwd",
        "a//b",
        "./x",
        "a/.",
        "",
        "..",
        "a/",
        "a\\..\\x",
        "C:x.gguf",
    ),
    *("x\0.gguf", "x\n.gguf", "x\x1b[2J.gguf", "x|y", "a" * 256, "a/" * 600 + "a"),
)


@pytest.mark.parametrize(
    ("siblings", "fields", "sentence"),
    [
        *(([small("good.json"), large(name)], {}, "lists a file with an unsafe path") for name in UNSAFE),
        *(([small("x", size)], {}, "with the invalid size") for size in (None, -1, MAX_FILE + 1)),
        *(
            ([large("x.gguf", digest=checksum)], {}, "without a valid checksum")
            for checksum in ("", "../../../x", "F" * 64, "f" * 63, "f" * 40)
        ),
        *(([small("x", oid=oid)], {}, "without a valid checksum") for oid in (None, "..", DIGEST)),
        *(([], {"sha": commit}, "has no commit id") for commit in ("main", "../../x", "", "c" * 41)),
        ([small(f"{n}.json") for n in range(MAX_FILES + 1)], {}, f"has {MAX_FILES + 1} files"),
    ],
    ids=itertools.count(),
)
def test_a_listing_that_lies_is_refused(
    siblings: list[dict[str, Any]], fields: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ModelInvalid, match=sentence):
        parsed(*siblings, **fields)


@pytest.mark.parametrize(
    "name", ["model.gguf", "Q4_K_M/model-00001-of-00002.gguf", "模型.gguf", "a b.gguf", "...x"]
)
def test_other_names_are_taken(name: str) -> None:
    assert parsed(large(name))[0].name == name


@pytest.mark.parametrize(
    "answer", [b"", b"<html>login</html>", b"[]", b'{"siblings": []}', b'"' * 3, b"[" * 9999]
)
def test_what_is_no_listing_is_no_hubs(answer: bytes) -> None:
    with pytest.raises(HubUnavailable, match="is not a hub's list of files"):
        parse_listing("org/x", answer)


@pytest.mark.slow
@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(
    st.sampled_from(["sha", "siblings", "rfilename", "size", "blobId", "lfs", "sha256"]), inner
) | st.lists(inner)))  # fmt: skip
def test_any_answer_is_a_listing_or_a_sentence(answer: Any) -> None:
    try:
        parse_listing("org/x", json.dumps(answer).encode())
    except LocalspecError as error:
        assert error.remedy
