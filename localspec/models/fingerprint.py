"""``vocab_fp``: one number for what a model's token ids mean, equal for GGUF and tokenizer.json."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from localspec.models.gguf import GgufHeader

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def _gpt2_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes, as byte-level BPE files write them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


ALPHABET = _gpt2_alphabet()
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level(text: str) -> bytes:
    """The bytes of a byte-level BPE token as its file writes it."""
    try:
        return bytes(ALPHABET[char] for char in text)
    except KeyError:
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
    decode = byte_level if header.metadata.get("tokenizer.ggml.model") == "gpt2" else sentencepiece
    return [
        (token, text.encode() if kind in (CONTROL, USER_DEFINED) else decode(text))
        for token, (text, kind) in enumerate(zip(texts, types, strict=False))
        if kind != UNUSED and text != f"[PAD{token}]"
    ]
