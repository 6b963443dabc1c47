"""The pair's shared tokenizer, and the token files that training reads."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .atomic import replacing
from .chat import SPECIAL_TOKENS
from .errors import RecipeError
from .progress import Progress

# Qwen2's pre-tokenizer: llama.cpp knows it by name, so the GGUF can say just "qwen2".
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS_PER_BATCH = 1000  # an encoding costs a hundred bytes a token until its ids are taken out

TokenArray = np.ndarray[tuple[int], np.dtype[np.uint16]]


def train_tokenizer(texts: Iterable[str], vocabulary: int, path: Path) -> None:
    """Byte-level BPE of exactly `vocabulary` tokens, the special ones first."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocabulary:
        raise RecipeError(
            f"The corpus gives {tokenizer.get_vocab_size()} tokens, {vocabulary} were asked for: "
            "use more files or a smaller vocabulary."
        )
    with replacing(path) as partial:
        # Compact: the file ships twice, and indentation would add a third to it.
        partial.write_text(json.dumps(json.loads(tokenizer.to_str())), "utf-8")


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer that `train_tokenizer` wrote."""
    return Tokenizer.from_file(str(path))


def encoded(tokenizer: Tokenizer, texts: Iterable[str], progress: Progress) -> Iterator[TokenArray]:
    """The tokens of each batch of texts, end to end: arrays of shape [tokens]."""
    remaining = iter(texts)
    total = 0
    while batch := list(islice(remaining, TEXTS_PER_BATCH)):
        ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(batch)]
        total += sum(map(len, ids))
        if progress.due:
            progress.show(f"{total / 1e6:.2f} M tokens")
        yield np.concatenate([np.asarray(each, dtype=np.uint16) for each in ids])


def write_tokens(tokenizer: Tokenizer, texts: Iterable[str], path: Path, *, most: int | None = None) -> None:
    """Encode `texts` to a file of little-endian uint16 ids, at most `most` of them."""
    progress = Progress(path.stem)
    written = 0
    with replacing(path) as partial, partial.open("wb") as file:
        for tokens in encoded(tokenizer, texts, progress):
            wanted = tokens if most is None else tokens[: most - written]
            file.write(wanted.astype("<u2").tobytes())
            written += len(wanted)
            if written == most:
                break
    progress.finish(f"{written / 1e6:.2f} M tokens")


def read_tokens(path: Path) -> TokenArray:
    """The ids of a token file, shape [tokens], mapped rather than loaded."""
    return np.memmap(path, dtype="<u2", mode="r")


def shuffled(texts: Sequence[str], seed: int) -> Iterator[str]:
    """The texts in a seeded random order."""
    for index in np.random.default_rng(seed).permutation(len(texts)):
        yield texts[int(index)]


def mix_tokens(long: TokenArray, short: TokenArray, *, chunk: int, seed: int, path: Path) -> None:
    """All of `long` and as much of `short`, shuffled in chunks of `chunk` tokens.

    Without the ordinary half the second phase would unlearn what the first one taught.
    """
    if len(short) <= chunk:
        raise RecipeError(f"The corpus has {len(short)} tokens, fewer than a chunk of {chunk}.")
    rng = np.random.default_rng(seed)
    chunks = [long[start : start + chunk] for start in range(0, len(long), chunk)]
    starts = rng.integers(0, len(short) - chunk, len(chunks))
    chunks += [short[start : start + chunk] for start in starts]
    with replacing(path) as partial, partial.open("wb") as file:
        for index in rng.permutation(len(chunks)):
            file.write(chunks[index].tobytes())
