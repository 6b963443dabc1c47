"""How large a memory must be: recall by table size, and which orders of n-grams earn their place.

Texts are taught one after the other, as requests would be; then it is asked, token by token, what comes
next in the last ones and in the first ones, and in texts that it never saw.

    python -m assets.bench.sweep_memory [--tokens 200000]
"""

from __future__ import annotations

import argparse
import random
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from localspec.backends.llama_cpp import native
from localspec.backends.llama_cpp.vocabulary import LlamaVocabulary
from localspec.memory.files import MAX_BITS
from localspec.memory.memory import Lesson, Memory
from localspec.models.bundled import BUNDLED_TARGET, bundled_model

LESSON = 1500
"""tokens of a text, as a request with its answer has"""
ASKED = 12
"""texts that are asked about, of each kind"""
BITS = (12, 14, 16, 18, 20, 22)
ORDERS = ((16, 8, 5, 3), (24, 16), (16,), (8, 4), (5, 3), (8, 5, 3), (12, 8, 5, 4, 3, 2))


def lessons(tokens: int) -> list[list[int]]:
    """Texts of the standard library in a random order, tokenised by the bundled model."""
    vocabulary = LlamaVocabulary(native.load_vocabulary(str(bundled_model(BUNDLED_TARGET))))
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    random.Random(0).shuffle(paths)
    texts: list[list[int]] = []
    for path in paths:
        found = vocabulary.encode(path.read_text(encoding="utf-8", errors="replace"), special=False)
        texts += [found[at : at + LESSON] for at in range(0, len(found), LESSON)]
        if sum(map(len, texts)) >= tokens:
            break
    random.Random(1).shuffle(texts)
    return texts


def recall(memory: Memory, texts: Sequence[Sequence[int]]) -> tuple[float, float]:
    """(the share of tokens that are foretold, the share of foretellings that are right)."""
    (table,) = memory.tables(None)
    asked = offered = right = 0
    for text in texts:
        for at in range(memory.orders[0], len(text)):
            found = table.find(memory.hashes_of(text[at - memory.orders[0] : at]))
            asked += 1
            if found is not None:
                offered += 1
                right += found.token == text[at]
    return right / asked, right / max(offered, 1)


def row(texts: list[list[int]], orders: tuple[int, ...] = ORDERS[0], bits: int = MAX_BITS) -> str:
    """Teach all texts but the last ones, then ask; one line of the table."""
    unseen, taught = texts[-ASKED:], texts[:-ASKED]
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(Path(folder), "0" * 16, lambda token: b" ", orders=orders, max_bits=bits)
        for text in taught:
            memory.learn(Lesson(text, None, "sweep"))
            while memory.work():
                pass
        (table,) = memory.tables(None)
        entries = len(table.entries().tokens)
        kinds = (taught[-ASKED:], taught[:ASKED], unseen)
        found = [recall(memory, kind) for kind in kinds]
        memory.close()
    shares = "  ".join(f"{share:6.1%} {precision:6.1%}" for share, precision in found)
    return f"{entries:9,} entries  {shares}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200_000, help="how many are taught")
    tokens = parser.parse_args().tokens
    texts = lessons(tokens)
    print(f"{sum(map(len, texts)):,} tokens; share foretold and precision: last taught, first taught, unseen")
    for bits in BITS:
        print(f"2^{bits}  {16 * 2**bits / 2**20:8.2f} MiB  {row(texts, bits=bits)}", flush=True)
    for orders in ORDERS:
        print(f"orders {orders!s:22} {row(texts, orders)}", flush=True)


if __name__ == "__main__":
    main()
