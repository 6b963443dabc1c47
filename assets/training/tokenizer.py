"""The tokenizer that the pair shares."""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .atomic import replacing
from .chat import SPECIAL_TOKENS
from .errors import RecipeError

# Qwen2's pre-tokenizer: llama.cpp knows it by name, so the GGUF can say just "qwen2".
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


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
