"""Long conversations: one piece of code, renamed turn after turn, until the budget is spent."""

import ast
import random
from collections.abc import Callable, Iterator

from .chat import END_OF_TEXT, format_exchange
from .corpus import DefinitionNode, SourceFile, parse, source_of
from .edits import CONVERSATION_OPENERS, FOLLOW_UPS, rename_one_of, repeated_names
from .presets import Preset

MOST_MENTIONS = 30  # a name in every line makes an edit, not a copy with an edit in it

CountTokens = Callable[[str], int]


def code_blocks(files: list[SourceFile], lengths: tuple[int, int]) -> Iterator[str]:
    """Dedented functions and classes of between lengths[0] and lengths[1] characters."""
    shortest, longest = lengths
    for file in files:
        tree = parse(file.text)
        if tree is None:
            continue
        lines = file.text.splitlines(keepends=True)
        for node in ast.walk(tree):
            if isinstance(node, DefinitionNode):
                source = source_of(node, lines)
                if shortest < len(source) < longest:
                    yield source


def conversation(
    source: str,
    *,
    tokens: int,
    turns: int,
    count_tokens: CountTokens,
    rng: random.Random,
) -> str | None:
    """Up to `turns` renames within `tokens` tokens; None where not even one fits."""
    text, current, spent = "", source, count_tokens(END_OF_TEXT)
    for turn in range(turns):
        names = repeated_names(current, most=MOST_MENTIONS)
        if not names:
            break
        edit = rename_one_of(current, names, rng)
        wordings = FOLLOW_UPS if turn else CONVERSATION_OPENERS
        exchange = format_exchange(edit.request(wordings, rng), edit.answer())
        # Special tokens end every exchange, so tokens never merge across two of them.
        spent += count_tokens(exchange)
        if spent > tokens:
            break
        text, current = text + exchange, edit.after
    return text + END_OF_TEXT if text else None


def build_conversations(files: list[SourceFile], preset: Preset, count_tokens: CountTokens) -> Iterator[str]:
    """A conversation for every block of code in `files`, in random order, cut after cut."""
    blocks = list(code_blocks(files, preset.block_characters))
    for cut in range(preset.passes):
        rng = random.Random(f"conversations {preset.seed} {cut}")
        rng.shuffle(blocks)
        for block in blocks:
            text = conversation(
                block,
                tokens=preset.conversation_tokens,
                turns=preset.conversation_turns,
                count_tokens=count_tokens,
                rng=rng,
            )
            if text is not None:
                yield text
