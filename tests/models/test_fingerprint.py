"""One number for what token ids mean, whatever the file's format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.models.fingerprint import (
    ALPHABET,
    BYTE,
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    byte_level,
    gguf_tokens,
    sentencepiece,
    vocab_fp,
)
from localspec.models.gguf import read_header
from tests.models import ggufs

STAND_INS = {byte: char for char, byte in ALPHABET.items()}


def of_gguf(path: Path) -> str:
    return vocab_fp(gguf_tokens(read_header(path)))


def of_tokenizer_json(path: Path) -> str:
    content = json.loads(path.read_text("utf-8"))
    texts = {token: byte_level(text) for text, token in content["model"]["vocab"].items()}
    texts |= {token["id"]: token["content"].encode() for token in content["added_tokens"]}
    return vocab_fp(sorted(texts.items()))


def tokens_of(
    folder: Path, tokens: list[str], types: list[int] | None = None, model: str = "gpt2"
) -> list[tuple[int, bytes]]:
    content = ggufs.gguf(ggufs.vocabulary(tokens, types, model))
    return gguf_tokens(read_header(ggufs.write(folder, content)))


def test_the_bundled_pair_has_one_vocabulary() -> None:
    assert of_gguf(ggufs.DRAFT) == of_gguf(ggufs.TARGET)


@pytest.mark.parametrize("path", [ggufs.DRAFT, ggufs.TARGET], ids=lambda path: path.stem)
def test_gguf_and_tokenizer_json_of_one_model_have_one_fingerprint(path: Path) -> None:
    assert of_gguf(path) == of_tokenizer_json(path.parent / "tokenizer.json")


def test_one_other_token_gives_another_fingerprint(tmp_path: Path) -> None:
    content = ggufs.DRAFT.read_bytes()
    assert content.count(ggufs.text("Ġimport")) == 1
    changed = content.replace(ggufs.text("Ġimport"), ggufs.text("Ġimporx"))
    assert of_gguf(ggufs.write(tmp_path, changed)) != of_gguf(ggufs.DRAFT)


lists = st.lists(st.tuples(st.integers(0, 20), st.binary(max_size=4)), max_size=4)


@given(lists, lists)
def test_fingerprints_are_equal_for_equal_tokens_only(
    one: list[tuple[int, bytes]], other: list[tuple[int, bytes]]
) -> None:
    assert (vocab_fp(one) == vocab_fp(other)) == (one == other)


def test_a_fingerprint_stays_what_it_is() -> None:
    # Files on people's disks are keyed by it: printf '0:3:<s>1:4: the' | sha256sum
    assert vocab_fp([(0, b"<s>"), (1, b" the")]) == "21959cc975871374"


@given(st.binary())
def test_byte_level_text_stands_for_any_bytes(data: bytes) -> None:
    assert byte_level("".join(STAND_INS[byte] for byte in data)) == data


def test_byte_level_reads_the_spaces_of_gpt2() -> None:
    assert byte_level("Ġthe") == b" the"
    assert byte_level("Ċ") == b"\n"
    assert byte_level("Ã©") == "é".encode()


def test_byte_level_keeps_what_is_not_of_its_alphabet() -> None:
    assert byte_level("<｜end｜>") == "<｜end｜>".encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("▁the", b" the"), ("<0x0A>", b"\n"), ("<0xff>", b"\xff"), ("é", "é".encode()), ("▁▁", b"  ")],
)
def test_sentencepiece_reads_spaces_and_bytes(text: str, expected: bytes) -> None:
    assert sentencepiece(text) == expected


@pytest.mark.parametrize("text", ["<0xZZ>", "<0x-1>", "<0x+1>", "<0x 1>", "<0x1>", "<0x0A>>"])
def test_sentencepiece_keeps_what_only_resembles_a_byte(text: str) -> None:
    assert sentencepiece(text) == text.encode()


def test_a_gguf_of_sentencepiece_is_read_as_such(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path, ["<s>", "▁a", "<0x0A>"], [CONTROL, NORMAL, BYTE], model="llama")
    assert tokens == [(0, b"<s>"), (1, b" a"), (2, b"\n")]


def test_control_and_added_tokens_are_taken_as_they_are_written(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path, ["<|Ġ|>", "Ġ", "Ġ"], [CONTROL, USER_DEFINED, NORMAL])
    assert tokens == [(0, "<|Ġ|>".encode()), (1, "Ġ".encode()), (2, b" ")]


def test_padding_and_unused_ids_are_not_counted(tmp_path: Path) -> None:
    plain = tokens_of(tmp_path, ["a", "b"], [NORMAL, NORMAL])
    assert tokens_of(tmp_path, ["a", "b", "[PAD2]"], [NORMAL, NORMAL, NORMAL]) == plain
    assert tokens_of(tmp_path, ["a", "b", "x"], [NORMAL, NORMAL, UNUSED]) == plain


def test_a_token_that_only_resembles_padding_is_counted(tmp_path: Path) -> None:
    assert tokens_of(tmp_path, ["[PAD]", "[PADDLE"]) == [(0, b"[PAD]"), (1, b"[PADDLE")]


def test_a_file_without_token_types_has_normal_tokens_only(tmp_path: Path) -> None:
    assert tokens_of(tmp_path, ["Ġa"]) == [(0, b" a")]
