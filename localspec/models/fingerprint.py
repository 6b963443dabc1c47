"""``vocab_fp``: a hash of the texts of a model's token ids, equal for GGUF and tokenizer.json."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from localspec.models.gguf import GgufHeader
from localspec.models.tokenizer_json import read_tokenizer

Decoder = Callable[[str], bytes]

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def _gpt2_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes, as byte-level BPE files write them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


ALPHABET = _gpt2_alphabet()
_NO_LATIN_1 = 0xFFFF
_AS_LATIN_1 = dict.fromkeys(range(256), _NO_LATIN_1) | {ord(char): byte for char, byte in ALPHABET.items()}
"""a stand-in's byte as the character of that number; other characters map to one that fails to encode"""
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level(text: str) -> bytes:
    """The bytes of a byte-level BPE token as its file writes it."""
    try:
        return text.translate(_AS_LATIN_1).encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def sentencepiece(text: str) -> bytes:
    """The bytes of a SentencePiece token as its file writes it."""
    byte = BYTE_TOKEN.fullmatch(text)
    if byte:
        return bytes.fromhex(byte[1])
    return text.replace("▁", " ").encode()


def vocab_fp(tokens: Iterable[tuple[int, bytes]]) -> str:
    """The fingerprint of a vocabulary: sha256 over (id, bytes) of its real tokens, 16 hex digits."""
    digest = hashlib.sha256()
    for token, text in tokens:
        digest.update(b"%d:%d:" % (token, len(text)))
        digest.update(text)
    return digest.hexdigest()[:16]


def gguf_tokens(header: GgufHeader) -> list[tuple[int, bytes]]:
    """The real tokens of a GGUF file, without padding and unused ids."""
    texts = header.metadata.get("tokenizer.ggml.tokens") or ()
    types = header.metadata.get("tokenizer.ggml.token_type") or (NORMAL,) * len(texts)
    own, added = _decoders(of_bytes=header.metadata.get("tokenizer.ggml.model") == "gpt2")
    return [
        (token, added(text) if kind in (CONTROL, USER_DEFINED) else own(text))
        for token, (text, kind) in enumerate(zip(texts, types, strict=False))
        if kind != UNUSED and not _is_padding(token, text)
    ]


def directory_tokens(path: Path) -> list[tuple[int, bytes]]:
    """The real tokens of a model directory by id, without padding and ids that the model cannot produce.

    Raises :class:`ModelInvalid` where its ``tokenizer.json`` is missing or invalid.
    """
    texts = read_tokenizer(path)
    own, added = _decoders(of_bytes=texts.byte_level)
    tokens = {token: (text, own) for token, text in texts.own.items()}
    tokens |= {token: (text, added) for token, text in texts.added.items()}
    return [
        (token, decode(text))
        for token, (text, decode) in sorted(tokens.items())
        if token < texts.size and not _is_padding(token, text)
    ]


def _decoders(*, of_bytes: bool) -> tuple[Decoder, Decoder]:
    """The functions that give the bytes of a model's own tokens, and of those added to it as literal text.

    With SentencePiece the spaces of the latter, too, may be written as ▁: converters differ.
    """
    return (byte_level, str.encode) if of_bytes else (sentencepiece, sentencepiece)


def _is_padding(token: int, text: str) -> bool:
    """True if this only fills an id that no token has, as llama.cpp's converter writes it."""
    return text.startswith("[PAD") and text == f"[PAD{token}]"
