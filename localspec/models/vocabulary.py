"""The vocabulary of a model, read from its files: for its fingerprint, and to find whether another model can
draft for it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from localspec.errors import ModelInvalid, TokenizerMismatch
from localspec.models.directory import TokenTexts, is_directory_model, read_tokenizer
from localspec.models.gguf import GgufHeader, quote_beginning, read_header

Decoder = Callable[[str], bytes]
Fit = Literal["exact", "compatible"]

FITS: dict[Fit, str] = {"exact": "same vocabulary", "compatible": "compatible vocabularies"}
MAX_SIZE_DIFFERENCE = 128
FIRST_COMPARED = 5

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_NO_LATIN_1 = 0xFFFF
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")

FIM_PREFIXES = (
    *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>"),
    *("<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"),
)
"""texts of the FIM prefix token in families of models (llama.cpp's src/llama-vocab.cpp)"""
CODESTRALS = b"[PREFIX]"
"""the FIM prefix of Codestral; other Mistral models have the token, too, untrained"""
_PREFIXES = frozenset(each.encode() for text in FIM_PREFIXES for each in (text, text.replace("▁", " ")))
_PREFIXES |= {CODESTRALS}


def _gpt2_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes, as byte-level BPE files write them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


ALPHABET = _gpt2_alphabet()
_AS_LATIN_1 = dict.fromkeys(range(256), _NO_LATIN_1) | {ord(char): byte for char, byte in ALPHABET.items()}
"""a stand-in's byte as the character of that number; other characters map to one that fails to encode"""


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


class Tokens(NamedTuple):
    """A vocabulary as it is compared: the bytes of all real tokens by id, and the number of tokens in a row
    of logits."""

    texts: Mapping[int, bytes]
    size: int


def read_tokens(path: Path) -> Tokens:
    """Read a model's vocabulary for comparison; raises :class:`ModelError`, also where it has none."""
    if is_directory_model(path):
        read = read_tokenizer(path)
        texts = _tokens(read)
        tokens = Tokens(texts, read.size or len(texts))
    else:
        header = read_header(path)
        tokens = Tokens(gguf_tokens(header), header.n_tokens)
    if not tokens.texts:
        raise ModelInvalid(f"{path} has no vocabulary")
    return tokens


def vocab_fp(tokens: Mapping[int, bytes]) -> str:
    """The fingerprint of a vocabulary: sha256 over (id, bytes) of its real tokens, 16 hex digits. It is
    equal for GGUF and tokenizer.json."""
    digest = hashlib.sha256()
    for token, text in tokens.items():
        digest.update(b"%d:%d:" % (token, len(text)))
        digest.update(text)
    return digest.hexdigest()[:16]


def gguf_tokens(header: GgufHeader) -> dict[int, bytes]:
    """The real tokens of a GGUF file by id, without padding and unused ids."""
    texts = header.metadata.get("tokenizer.ggml.tokens") or ()
    types = header.metadata.get("tokenizer.ggml.token_type") or (NORMAL,) * len(texts)
    own, added = _decoders(of_bytes=header.metadata.get("tokenizer.ggml.model") == "gpt2")
    return {
        token: added(text) if kind in (CONTROL, USER_DEFINED) else own(text)
        for token, (text, kind) in enumerate(zip(texts, types, strict=False))
        if kind != UNUSED and not _is_padding(token, text)
    }


def directory_tokens(path: Path) -> dict[int, bytes]:
    """The real tokens of a model directory by id, in order, without padding and ids that the model cannot
    produce. Raises :class:`ModelInvalid` where its ``tokenizer.json`` is missing or invalid."""
    return _tokens(read_tokenizer(path))


def _tokens(texts: TokenTexts) -> dict[int, bytes]:
    own, added = _decoders(of_bytes=texts.byte_level)
    tokens = {token: (text, own) for token, text in texts.own.items()}
    tokens |= {token: (text, added) for token, text in texts.added.items()}
    return {
        token: decode(text)
        for token, (text, decode) in sorted(tokens.items())
        if (texts.size is None or token < texts.size) and not _is_padding(token, text)
    }


def _decoders(*, of_bytes: bool) -> tuple[Decoder, Decoder]:
    """The functions that give the bytes of a model's own tokens, and of those added to it as literal text.
    With SentencePiece the spaces of the latter, too, may be written as ▁: converters differ."""
    return (byte_level, str.encode) if of_bytes else (sentencepiece, sentencepiece)


def _is_padding(token: int, text: str) -> bool:
    """True if this only fills an id that no token has, as llama.cpp's converter writes it."""
    return text.startswith("[PAD") and text == f"[PAD{token}]"


def check_pair(target: Tokens, draft: Tokens) -> Fit:
    """Compare two vocabularies; raise :class:`TokenizerMismatch` naming the first difference. The rule for
    those that differ is that of llama.cpp (common/speculative.cpp) for sizes and texts: a difference of at
    most 128, and equal text for every id from 5 on. A draft model reads the target's tokens by id: which of
    them its own tokenizer would add does not matter."""
    if target.texts == draft.texts:
        return "exact"
    check_sizes(target.size, draft.size)
    wanted, found = target.texts.get, draft.texts.get
    for token in range(FIRST_COMPARED, min(target.size, draft.size)):
        if wanted(token) != found(token):
            differs = (
                f"token {token} is {_show_token(found(token))}, the target's is {_show_token(wanted(token))}"
            )
            raise TokenizerMismatch(f"the draft model's {differs}")
    return "compatible"


def check_sizes(target: int, draft: int) -> None:
    """Raise :class:`TokenizerMismatch` where the numbers of tokens alone rule a pair out."""
    if abs(target - draft) > MAX_SIZE_DIFFERENCE:
        raise TokenizerMismatch(f"the draft model's vocabulary has {draft} tokens, the target's {target}")


def _show_token(text: bytes | None) -> str:
    return "unused" if text is None else quote_beginning(text)


class VocabularySummary(NamedTuple):
    """A vocabulary's fingerprint, and the texts of FIM prefix tokens that it has."""

    fp: str | None = None
    prefixes: frozenset[bytes] = frozenset()


def summarise_vocabulary(tokens: dict[int, bytes]) -> VocabularySummary:
    return VocabularySummary(vocab_fp(tokens) if tokens else None, _PREFIXES.intersection(tokens.values()))


def fills_gaps(vocabulary: VocabularySummary, name: str) -> bool:
    """True if a model of this name was trained to fill gaps, as far as its vocabulary shows."""
    of_codestral = CODESTRALS in vocabulary.prefixes and "codestral" in name.lower()
    return of_codestral or bool(vocabulary.prefixes - {CODESTRALS})
