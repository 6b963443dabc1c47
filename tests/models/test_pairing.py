"""The draft models that are compatible with a target."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from localspec.errors import TokenizerMismatch
from localspec.models.vocabulary import FIRST_COMPARED, MAX_SIZE_DIFFERENCE, Tokens, check_pair

WORDS = [b"w%d" % n for n in range(200)]


def tokens(words: Sequence[bytes]) -> Tokens:
    return Tokens(dict(enumerate(words)), len(words))


def pair(target: Sequence[bytes], draft: Sequence[bytes]) -> str:
    return check_pair(tokens(target), tokens(draft))


def changed(at: int) -> list[bytes]:
    return [*WORDS[:at], b"other", *WORDS[at + 1 :]]


@pytest.mark.parametrize("size", [200, 500])
def test_where_all_tokens_are_equal_rows_without_one_do_not_matter(size: int) -> None:
    assert check_pair(tokens(WORDS), tokens(tuple(WORDS))._replace(size=size)) == "exact"


@pytest.mark.parametrize("at", range(FIRST_COMPARED))
def test_the_first_ids_may_differ(at: int) -> None:
    assert pair(WORDS, changed(at)) == "compatible"


@pytest.mark.parametrize(
    ("draft", "sentence"),
    [
        *(
            (changed(at), f"token {at} is b'other', the target's is b'w{at}'$")
            for at in (FIRST_COMPARED, 100, 199)
        ),
        ([*WORDS[:50], *reversed(WORDS[50:])], "token 50 is"),
        ([*WORDS[:6], b"w" * 1_000_000, *WORDS[7:]], r"token 6 is b.w{100}.…, the target.s is b.w6.$"),
    ],
    ids=["first", "middle", "last", "several", "long"],
)
def test_the_first_later_id_that_differs_is_named(draft: list[bytes], sentence: str) -> None:
    with pytest.raises(TokenizerMismatch, match=sentence):
        pair(WORDS, draft)


def test_sizes_may_differ_a_little() -> None:
    longer = [*WORDS, *(b"more" for _ in range(MAX_SIZE_DIFFERENCE))]
    assert pair(longer, WORDS) == "compatible"
    assert pair(WORDS, longer) == "compatible"


def test_sizes_may_not_differ_more() -> None:
    longer = [*WORDS, *(b"more" for _ in range(MAX_SIZE_DIFFERENCE + 1))]
    with pytest.raises(TokenizerMismatch, match="vocabulary has 200 tokens, the target's 329$"):
        pair(longer, WORDS)
    with pytest.raises(TokenizerMismatch, match="vocabulary has 329 tokens, the target's 200$"):
        pair(WORDS, longer)
