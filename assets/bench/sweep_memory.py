"""The n-gram memory's recall by table size and by orders of n-grams.

Texts are learned one after the other, like requests; then the memory predicts, token by token, the next one
in the last texts and in the first ones, and in texts that it never saw.

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
TESTED = 12
"""texts of each kind whose tokens are predicted"""
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
    """(the share of tokens predicted correctly, the share of predictions that are correct)."""
    (table,) = memory.tables(None)
    tried = offered = right = 0
    for text in texts:
        for at in range(memory.orders[0], len(text)):
            found = table.find(memory.hashes_of(text[at - memory.orders[0] : at]))
            tried += 1
            if found is not None:
                offered += 1
                right += found.token == text[at]
    return right / tried, right / max(offered, 1)


def row(texts: list[list[int]], orders: tuple[int, ...] = ORDERS[0], bits: int = MAX_BITS) -> str:
    """Learn all texts but the last ones, then predict; one line of the table."""
    unseen, learned = texts[-TESTED:], texts[:-TESTED]
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(Path(folder), "0" * 16, lambda token: b" ", orders=orders, max_bits=bits)
        for text in learned:
            memory.learn(Lesson(text, None, "sweep"))
            while memory.work():
                pass
        (table,) = memory.tables(None)
        entries = len(table.entries().tokens)
        kinds = (learned[-TESTED:], learned[:TESTED], unseen)
        found = [recall(memory, kind) for kind in kinds]
        memory.close()
    shares = "  ".join(f"{share:6.1%} {precision:6.1%}" for share, precision in found)
    return f"{entries:9,} entries  {shares}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200_000, help="number of tokens to learn")
    tokens = parser.parse_args().tokens
    texts = lessons(tokens)
    print(
        f"{sum(map(len, texts)):,} tokens; share predicted and precision: last learned, first learned, unseen"
    )
    for bits in BITS:
        print(f"2^{bits}  {16 * 2**bits / 2**20:8.2f} MiB  {row(texts, bits=bits)}", flush=True)
    for orders in ORDERS:
        print(f"orders {orders!s:22} {row(texts, orders)}", flush=True)


if __name__ == "__main__":
    main()
