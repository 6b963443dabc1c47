"""Training examples as pieces of text, each taught or only read, and the rows they are packed in."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from .atomic import replacing
from .chat import Example
from .errors import RecipeError
from .progress import Progress

TAUGHT = 0x8000  # the bit beside a token's id; ids need no more than 15 bits
OPEN_ROWS = 48  # rows that still take examples while a file is packed
PADDING = 0  # the id of the end of text, never taught as padding

Row = np.ndarray[tuple[int], np.dtype[np.uint16]]
Rows = np.ndarray[tuple[int, int], np.dtype[np.uint16]]


class Packed(NamedTuple):
    """The outcome of a file: its rows, the share of them that is text, and the examples left out."""

    rows: int
    filled: float  # 0 to 1
    taught: float  # 0 to 1, of all tokens
    too_long: int


def encode_examples(tokenizer: Tokenizer, examples: Iterable[Example]) -> Iterator[Row]:
    """Each example's ids with the TAUGHT bit, uint16 [tokens]; pieces are encoded on their own."""
    for example in examples:
        encodings = tokenizer.encode_batch_fast([piece.text for piece in example])
        ids = [
            np.asarray(encoding.ids, dtype=np.uint16) | (TAUGHT if piece.taught else 0)
            for encoding, piece in zip(encodings, example, strict=True)
        ]
        yield np.concatenate(ids).astype(np.uint16)


def pack(examples: Iterable[Row], window: int) -> Iterator[list[Row]]:
    """Groups of whole examples of at most window + 1 tokens: each goes where it leaves least room."""
    room: list[int] = []
    groups: list[list[Row]] = []
    for example in examples:
        size = len(example)
        fitting = [index for index, left in enumerate(room) if left >= size]
        if fitting:
            best = min(fitting, key=room.__getitem__)
            room[best] -= size
            groups[best].append(example)
            continue
        if len(groups) == OPEN_ROWS:
            fullest = min(range(OPEN_ROWS), key=room.__getitem__)
            room.pop(fullest)
            yield groups.pop(fullest)
        room.append(window + 1 - size)
        groups.append([example])
    yield from groups


def write_rows(tokenizer: Tokenizer, examples: Iterable[Example], path: Path, window: int) -> Packed:
    """Write packed rows of window + 1 tokens as little-endian uint16; longer examples are left out."""
    progress = Progress(path.stem)
    rows = text = taught = too_long = 0

    def short_enough() -> Iterator[Row]:
        nonlocal text, taught, too_long
        for ids in encode_examples(tokenizer, examples):
            if len(ids) > window + 1:
                too_long += 1
                continue
            text += len(ids)
            taught += int((ids >= TAUGHT).sum())
            yield ids

    with replacing(path) as partial, partial.open("wb") as file:
        for group in pack(short_enough(), window):
            row = np.full(window + 1, PADDING, dtype="<u2")
            joined = np.concatenate(group)
            row[: len(joined)] = joined
            file.write(row.tobytes())
            rows += 1
            if progress.due:
                progress.show(f"{text / 1e6:.2f} M tokens")
    if not rows:
        raise RecipeError(f"No example of {path.stem} is of at most {window} tokens.")
    size = rows * (window + 1)
    progress.finish(
        f"{text / 1e6:.2f} M tokens in {rows} rows, {text / size:.0%} filled, "
        f"{taught / size:.0%} taught, {too_long} examples too long"
    )
    return Packed(rows, text / size, taught / size, too_long)


def read_rows(path: Path, window: int) -> Rows:
    """The rows of a file, uint16 [rows, window + 1], mapped rather than loaded."""
    return np.memmap(path, dtype="<u2", mode="r").reshape(-1, window + 1)
