"""Which draft models may speculate for which targets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import TokenizerMismatch
from localspec.models.catalogue import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.models.fingerprint import gguf_tokens
from localspec.models.gguf import read_header
from localspec.models.pairing import FIRST_COMPARED, MAX_SIZE_DIFFERENCE, Tokens, check_pair

WORDS = [b"w%d" % n for n in range(200)]


def pair(target: Sequence[bytes], draft: Sequence[bytes]) -> str:
    return check_pair(Tokens(tuple(target)), Tokens(tuple(draft)))


def changed(at: int) -> list[bytes]:
    return [*WORDS[:at], b"other", *WORDS[at + 1 :]]


def test_equal_vocabularies_are_exact() -> None:
    assert pair(WORDS, tuple(WORDS)) == "exact"


def test_the_bundled_pair_is_exact() -> None:
    target, draft = (
        [text for _, text in gguf_tokens(read_header(bundled_model(name)))]
        for name in (BUNDLED_TARGET, BUNDLED_DRAFT)
    )
    assert pair(target, draft) == "exact"


@pytest.mark.parametrize("at", range(FIRST_COMPARED))
def test_the_first_ids_may_differ(at: int) -> None:
    assert pair(WORDS, changed(at)) == "compatible"


@pytest.mark.parametrize("at", [FIRST_COMPARED, 100, 199])
def test_any_later_id_may_not_differ(at: int) -> None:
    with pytest.raises(TokenizerMismatch, match=rf"token {at} is b'other', the target's is b'w{at}'"):
        pair(WORDS, changed(at))


def test_the_first_token_that_differs_is_named() -> None:
    draft = [*WORDS[:50], *reversed(WORDS[50:])]
    with pytest.raises(TokenizerMismatch, match="token 50 is"):
        pair(WORDS, draft)


def test_sizes_may_differ_a_little() -> None:
    longer = [*WORDS, *(b"more" for _ in range(MAX_SIZE_DIFFERENCE))]
    assert pair(longer, WORDS) == "compatible"
    assert pair(WORDS, longer) == "compatible"


def test_sizes_may_not_differ_more() -> None:
    longer = [*WORDS, *(b"more" for _ in range(MAX_SIZE_DIFFERENCE + 1))]
    with pytest.raises(TokenizerMismatch, match="vocabulary has 200 tokens, the target's 329"):
        pair(longer, WORDS)
    with pytest.raises(TokenizerMismatch, match="vocabulary has 329 tokens, the target's 200"):
        pair(WORDS, longer)


def verdict(target: list[bytes], draft: list[bytes]) -> str:
    try:
        return pair(target, draft)
    except TokenizerMismatch:
        return "refused"


vocabularies = st.lists(st.sampled_from([b"a", b"b"]), max_size=8)


@given(vocabularies, vocabularies)
def test_the_verdict_is_the_same_both_ways(one: list[bytes], other: list[bytes]) -> None:
    shared = list(zip(one, other, strict=False))[FIRST_COMPARED:]
    fits = "compatible" if all(a == b for a, b in shared) else "refused"
    assert verdict(one, other) == verdict(other, one) == ("exact" if one == other else fits)


@pytest.mark.parametrize(("name", "theirs"), [("bos", Tokens((), bos=1)), ("eos", Tokens((), eos=3))])
def test_bos_and_eos_must_be_the_same_where_the_texts_differ(name: str, theirs: Tokens) -> None:
    target = Tokens(tuple(WORDS), bos=None, eos=2)
    draft = Tokens(tuple(changed(2)), bos=theirs.bos, eos=theirs.eos or 2)
    with pytest.raises(TokenizerMismatch, match=name.upper()):
        check_pair(target, draft)
    assert check_pair(target, Tokens(tuple(changed(2)), eos=2)) == "compatible"
