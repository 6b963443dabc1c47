"""One number for what token ids mean, whatever the file's format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.models.gguf import read_header
from localspec.models.vocabulary import (
    ALPHABET,
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    byte_level,
    directory_tokens,
    gguf_tokens,
    sentencepiece,
    vocab_fp,
)
from tests.models import directories, ggufs
from tests.models.directories import added

STAND_INS = {byte: char for char, byte in ALPHABET.items()}


def of_gguf(path: Path) -> str:
    return vocab_fp(gguf_tokens(read_header(path)))


def tokens_of(
    folder: Path, tokens: list[str], types: list[int] | None = None, model: str = "gpt2"
) -> list[tuple[int, bytes]]:
    content = ggufs.gguf(ggufs.vocabulary(tokens, types, model))
    return list(gguf_tokens(read_header(ggufs.write(folder, content))).items())


def test_the_bundled_pair_has_one_vocabulary() -> None:
    assert of_gguf(ggufs.DRAFT) == of_gguf(ggufs.TARGET) == "a1a3538f5621ca9e"


def test_one_other_token_gives_another_fingerprint(tmp_path: Path) -> None:
    content = ggufs.DRAFT.read_bytes()
    assert content.count(ggufs.text("Ġimport")) == 1
    changed = content.replace(ggufs.text("Ġimport"), ggufs.text("Ġimporx"))
    assert of_gguf(ggufs.write(tmp_path, changed)) != of_gguf(ggufs.DRAFT)


def test_a_fingerprint_stays_what_it_is() -> None:
    # Files on people's disks are keyed by it: printf '0:3:<s>1:4: the' | sha256sum
    assert vocab_fp({0: b"<s>", 1: b" the"}) == "21959cc975871374"


@given(st.binary())
def test_byte_level_text_stands_for_any_bytes(data: bytes) -> None:
    assert byte_level("".join(STAND_INS[byte] for byte in data)) == data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("▁the", b" the"), ("▁▁", b"  "), ("é", "é".encode()), ("<0x0A>", b"\n"), ("<0xff>", b"\xff")),
        *((text, text.encode()) for text in ("<0xZZ>", "<0x-1>", "<0x+1>", "<0x 1>", "<0x1>", "<0x0A>>")),
    ],
)
def test_sentencepiece_reads_spaces_and_bytes_and_keeps_the_rest(text: str, expected: bytes) -> None:
    assert sentencepiece(text) == expected


@pytest.mark.parametrize(
    ("model", "texts", "types", "expected"),
    [
        ("llama", ["<s>", "▁a", "<0x0A>"], [CONTROL, NORMAL, BYTE], ["<s>", " a", "\n"]),
        ("gpt2", ["<|Ġ|>", "Ġ", "Ġ"], [CONTROL, USER_DEFINED, NORMAL], ["<|Ġ|>", "Ġ", " "]),
        ("gpt2", ["[PAD]", "[PADDLE"], None, ["[PAD]", "[PADDLE"]),
        ("gpt2", ["Ġa"], None, [" a"]),
    ],
    ids=["sentencepiece", "as they are written", "resembles padding", "no types"],
)
def test_tokens_are_read_by_their_types(
    tmp_path: Path, model: str, texts: list[str], types: list[int] | None, expected: list[str]
) -> None:
    found = tokens_of(tmp_path, texts, types, model)
    assert found == [(token, text.encode()) for token, text in enumerate(expected)]


def test_spaces_of_added_sentencepiece_tokens_may_be_written_either_way(tmp_path: Path) -> None:
    old = tokens_of(tmp_path, ["▁▁", "▁<PRE>"], [USER_DEFINED, CONTROL], model="llama")
    assert old == tokens_of(tmp_path, ["  ", " <PRE>"], [USER_DEFINED, CONTROL], model="llama")
    assert old == tokens_of(tmp_path, ["▁▁", "▁<PRE>"], [NORMAL, NORMAL], model="llama")
    assert old == [(0, b"  "), (1, b" <PRE>")]


Vocabulary = Sequence[tuple[str, int]]


def both(
    folder: Path, gguf: Vocabulary, tokenizer: dict[str, Any], *, model: str = "gpt2", **files: object
) -> list[tuple[int, bytes]]:
    """The tokens of one vocabulary, which are the same in both formats."""
    names = {f"{name}.json": content for name, content in files.items()}
    directory = directories.write(folder, {"tokenizer.json": tokenizer, **names})
    tokens = list(directory_tokens(directory).items())
    assert tokens == tokens_of(folder, [text for text, _ in gguf], [kind for _, kind in gguf], model)
    return tokens


def table(vocabulary: Vocabulary, first: int = 0) -> dict[str, int]:
    return {text: first + place for place, (text, _) in enumerate(vocabulary)}


BYTES = [(STAND_INS[byte], NORMAL) for byte in range(256)]
WORDS = [(text, NORMAL) for text in ("Ġthe", "ĠĠĠ", "ĊĊ", "Ã©", "âĤ¬", "ðŁ", "the", "<0x0A>", "‼", "[PAD]")]


def test_byte_level_vocabularies_are_equal(tmp_path: Path) -> None:
    own = BYTES + WORDS
    end = len(own)
    extra = [
        *(("<|end|>", CONTROL), ("<｜fim▁begin｜>", CONTROL), ("    ", USER_DEFINED), ("Ġé", USER_DEFINED)),
        *((f"[PAD{end + 4}]", UNUSED), ("<|far|>", CONTROL), (f"[PAD{end + 6}]", USER_DEFINED)),
    ]
    specials = [added(end, "<|end|>"), added(end + 5, "<|far|>"), added(end + 1, "<｜fim▁begin｜>")]
    others = [added(end + 3, "Ġé", special=False), added(end + 2, "    ", special=False)]
    tokens = both(tmp_path, own + extra, directories.tokenizer(table(own), specials + others))
    assert [text for _, text in tokens[:256]] == [bytes([byte]) for byte in range(256)]
    assert [text for _, text in tokens[256:261]] == [b" the", b"   ", b"\n\n", "é".encode(), "€".encode()]
    assert tokens[-3:] == [(end + 2, b"    "), (end + 3, "Ġé".encode()), (end + 5, b"<|far|>")]


PIECES = [
    *(("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)),
    *((f"<0x{byte:02X}>", BYTE) for byte in range(256)),
    *(
        (text, NORMAL)
        for text in ("▁", "▁▁", "▁the", "the", "é", "▁é", "\n", "\ufffd", "Ġ", "<0xZZ>", "▁<PRE>")
    ),
]
OF_PIECES = [
    *(added(token, text) for token, text in enumerate(("<unk>", "<s>", "</s>"))),
    added(len(PIECES), "▁▁▁", special=False),
    added(len(PIECES) + 1, "<mask>", special=False),
]
END_OF_PIECES = [("   ", USER_DEFINED), ("<mask>", CONTROL), (f"[PAD{len(PIECES) + 2}]", UNKNOWN)]


@pytest.mark.parametrize("kind", ["BPE", "Unigram"])
def test_sentencepiece_vocabularies_are_equal(tmp_path: Path, kind: str) -> None:
    scored = [(text, -float(place)) for place, (text, _) in enumerate(PIECES)]
    own = scored if kind == "Unigram" else table(PIECES)
    tokenizer = directories.tokenizer(own, OF_PIECES, byte_level=False)
    tokens = both(tmp_path, PIECES + END_OF_PIECES, tokenizer, model="llama")
    assert tokens[0] == (0, b"<unk>")
    assert [text for _, text in tokens[3:259]] == [bytes([byte]) for byte in range(256)]
    assert [text for _, text in tokens[259:263]] == [b" ", b"  ", b" the", b"the"]
    assert tokens[-2:] == [(len(PIECES), b"   "), (len(PIECES) + 1, b"<mask>")]


@pytest.mark.parametrize("config", [{"vocab_size": 2}, {"text_config": {"vocab_size": 2}}])
def test_ids_that_the_model_does_not_have_are_not_counted(tmp_path: Path, config: dict[str, Any]) -> None:
    tokenizer = directories.tokenizer({"a": 0, "b": 1}, [added(2, "<image>")])
    assert both(tmp_path, [("a", NORMAL), ("b", NORMAL)], tokenizer, config=config) == [(0, b"a"), (1, b"b")]


def test_added_tokens_of_the_settings_are_counted_too(tmp_path: Path) -> None:
    gguf = [("a", NORMAL), ("<|x|>", CONTROL), ("<|y|>", CONTROL)]
    decoder = {"1": {"content": "<|not x|>"}, "2": {"content": "<|y|>", "special": True}}
    tokenizer = directories.tokenizer({"a": 0}, [added(1, "<|x|>")])
    file = {"added_tokens_decoder": decoder, "model_max_length": 10**30}
    tokens = both(tmp_path, gguf, tokenizer, tokenizer_config=file)
    assert tokens == [(0, b"a"), (1, b"<|x|>"), (2, b"<|y|>")]
