"""Speculation changes nothing but the time: every proposer gives the text of plain decoding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.base import ANY_WIDTH, WIDTHS
from localspec.engine.engine import Engine
from localspec.engine.sequence import Sequence, widest_round
from localspec.protocol.requests import Degraded, EngineConfig, Request
from tests.hostile import family
from tests.toy import END, ToyBackend, ToyVocabulary
from tests.toys import answer, request, run_all, small_markov

SIZE = ToyVocabulary.size
PROPOSERS = ["prompt-lookup", "draft", "auto", "none"]
BIAS = ((ord("a"), 1.5), (ord("b"), -10_000.0))
prompts = st.text(alphabet="abcdef", min_size=1, max_size=12)


def engine(
    seed: int, *, sharpness: float = 1.0, noise: float = 0.0, exact_width: int = 1, n_ctx: int = 96
) -> Engine:
    target = ToyBackend(small_markov(seed, sharpness=sharpness), n_ctx=n_ctx)
    target.make_noisy(noise, exact_width=exact_width)
    return Engine(
        target,
        ToyBackend(small_markov(seed + 1000, sharpness=sharpness), n_ctx=n_ctx),
        config=EngineConfig(prefill_chunk=4),
    )


def played(one: Engine, ask: Request) -> Sequence:
    """Run one request alone, checking the target's cache after every round."""
    sequence = one.submit(ask)
    while not sequence.ended:
        one.step()
        check_cache(one, sequence)
    one.step()
    return sequence


def check_cache(one: Engine, sequence: Sequence) -> None:
    """The cache holds the start of the tokens: all but the newest, all of them where an end token ended."""
    backend = one.target
    assert isinstance(backend, ToyBackend)
    if sequence.ended or not sequence.prefilled:
        return
    assert backend.tokens(sequence.slot) == sequence.tokens[:-1]


def answers(one: Callable[[], Engine], prompt: str, **options: Any) -> set[tuple[Any, ...]]:
    """The tokens, ending and text of each proposer, on an engine of its own."""
    running = [played(one(), request(prompt, proposer=each, **options)) for each in PROPOSERS]
    return {(tuple(answer(sequence)), sequence.finish, sequence.text.text) for sequence in running}


def plain_and(proposer: str, one: Callable[[], Engine], prompt: str, **options: Any) -> list[Sequence]:
    return [played(one(), request(prompt, proposer=each, **options)) for each in ("none", proposer)]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 50),
    prompt=prompts,
    k=st.integers(1, 8),
    max_tokens=st.integers(1, 60),
    sharpness=st.sampled_from([0.3, 1.0, 4.0]),
)
def test_greedy_is_target_only(seed: int, prompt: str, k: int, max_tokens: int, sharpness: float) -> None:
    """Every proposer, every k: the tokens, the ending and the cache of plain decoding."""
    one = partial(engine, seed, sharpness=sharpness)
    assert len(answers(one, prompt, temperature=0.0, k=k, max_tokens=max_tokens)) == 1


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 50), prompt=prompts, k=st.integers(1, 8), stop=st.text("abc", min_size=1, max_size=3)
)
def test_hostile_proposers_change_nothing(seed: int, prompt: str, k: int, stop: str) -> None:
    options = {"temperature": 0.0, "k": k, "max_tokens": 40, "stop": (stop,)}
    plain = played(engine(seed), request(prompt, proposer="none", **options))
    truth = [*answer(plain), END]
    for hostile in family(truth, size=SIZE, end=END, prompt_length=len(prompt)):
        one = Engine(ToyBackend(small_markov(seed), n_ctx=96), proposers=[hostile])
        ask = request(prompt, **options)
        sequence = one.submit(ask)
        sequence.proposer = hostile.name
        while not sequence.ended:
            one.step()
            check_cache(one, sequence)
        assert answer(sequence) == answer(plain), hostile.name
        assert (sequence.finish, sequence.text.text) == (plain.finish, plain.text.text), hostile.name


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 50), prompt=prompts, k=st.integers(1, 8), number=st.integers(0, 2**63 - 1))
def test_a_seeded_text_does_not_depend_on_the_proposer(seed: int, prompt: str, k: int, number: int) -> None:
    assert len(answers(partial(engine, seed), prompt, temperature=1.0, seed=number, k=k, max_tokens=40)) == 1


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 50), prompt=prompts, k=st.integers(1, 6), last_n=st.integers(0, 12))
def test_bias_and_recent_penalties_do_not_depend_on_the_proposer(
    seed: int, prompt: str, k: int, last_n: int
) -> None:
    options: dict[str, Any] = {"repeat_penalty": 1.4, "frequency_penalty": 0.5, "repeat_last_n": last_n}
    said = {"temperature": 0.0, "k": k, "max_tokens": 40, "logit_bias": BIAS, **options}
    ((tokens, *_),) = answers(partial(engine, seed), prompt, **said)
    assert ord("b") not in tokens


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 50),
    texts=st.lists(prompts, min_size=2, max_size=5),
    ks=st.lists(st.integers(1, 8), min_size=5, max_size=5),
)
def test_a_batch_gives_each_request_the_text_it_has_alone(seed: int, texts: list[str], ks: list[int]) -> None:
    asks = [
        request(text, temperature=0.0, k=k, proposer=PROPOSERS[i % 4], max_tokens=30)
        for i, (text, k) in enumerate(zip(texts, ks, strict=False))
    ]
    alone = [answer(played(engine(seed), ask)) for ask in asks]
    together = engine(seed)
    running = [together.submit(ask) for ask in asks]
    run_all(together, running)
    assert [answer(sequence) for sequence in running] == alone


STRICT = {"temperature": 0.0, "exactness": "strict"}


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 50), prompt=prompts, k=st.integers(1, 8), width=st.sampled_from([1, 2, 3, 5]))
def test_strict_mode_is_exact_on_a_backend_whose_wide_forwards_are_noisy(
    seed: int, prompt: str, k: int, width: int
) -> None:
    """Blunt distributions, so that near-ties are common; noise that would flip them."""
    one = partial(engine, seed, sharpness=0.3, noise=0.2, exact_width=width)
    plain, spec = plain_and("auto", one, prompt, **STRICT, k=k, max_tokens=40)
    assert answer(spec) == answer(plain)
    assert spec.account.close(1, priced=True).exactness == "exact"
    assert all(k < width for k in spec.stats.k_histogram)


def test_the_receipt_tells_which_texts_are_exact() -> None:
    """By default rounds are as wide as they like: what differs is declared, and what is declared exact is."""
    differing = exact = 0
    for seed in range(40):
        one = partial(engine, seed, sharpness=0.3, noise=0.2, exact_width=2)
        plain, spec = plain_and("prompt-lookup", one, "abcabc", temperature=0.0, max_tokens=40)
        assert plain.account.close(1, priced=True).exactness == "exact"
        receipt = spec.account.close(1, priced=True)
        assert (receipt.exactness == "exact") == (receipt.rounded_tokens == 0)
        differing += answer(spec) != answer(plain)
        exact += receipt.exactness == "exact"
        assert receipt.exactness == "near-ties" or answer(spec) == answer(plain)
    assert differing > 0 and 0 < exact < 40


def test_a_sample_without_a_seed_has_no_receipt() -> None:
    stats = engine(3).generate("abc", temperature=0.9, max_tokens=8).finish().stats
    assert stats.exactness is None


def test_strict_mode_says_why_it_drafts_nothing() -> None:
    stats = engine(3, noise=0.1).generate("abc", max_tokens=8, **STRICT).finish().stats
    assert stats.drafted == 0 and "no wider forward is known to round as plain decoding" in str(
        stats.speculation_off_reason
    )


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 50),
    prompt=prompts,
    number=st.integers(0, 2**63 - 1),
    cuts=st.sampled_from(
        [
            *({}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.3}, {"repeat_penalty": 0.2}),
            {"logit_bias": BIAS},
            {"repeat_penalty": 1.5, "repeat_last_n": 3, "logit_bias": BIAS},
        ]
    ),
)
def test_strict_mode_covers_seeded_samples(seed: int, prompt: str, number: int, cuts: dict[str, Any]) -> None:
    options = {"temperature": 0.9, "seed": number, "max_tokens": 40, "exactness": "strict", **cuts}
    one = partial(engine, seed, sharpness=0.3, noise=0.2, exact_width=3)
    plain, spec = plain_and("auto", one, prompt, **options)
    assert answer(spec) == answer(plain)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 50), texts=st.lists(prompts, min_size=2, max_size=4), again=st.booleans())
def test_strict_mode_is_exact_in_batches_and_over_taken_prefixes(
    seed: int, texts: list[str], again: bool
) -> None:
    """Neighbours widen the forward; earlier answers leave cells that no fresh prompt would have."""

    def ask(text: str, proposer: str) -> Request:
        return request(text, **STRICT, proposer=proposer, max_tokens=25)

    def noisy() -> Engine:
        return engine(seed, sharpness=0.3, noise=0.05, exact_width=3)

    alone = [answer(played(noisy(), ask(text, "none"))) for text in texts]
    together = noisy()
    for _ in range(1 + again):
        running = [together.submit(ask(text, PROPOSERS[i % 4])) for i, text in enumerate(texts)]
        run_all(together, running)
        assert [answer(sequence) for sequence in running] == alone
        assert not [event for s in running for event in s.events if isinstance(event, Degraded)]
    first = texts[0] + bytes(alone[0]).decode() + "abc"
    fresh = answer(played(noisy(), ask(first, "none")))
    sequence = together.submit(ask(first, "auto"))
    run_all(together, [sequence])
    assert answer(sequence) == fresh


@pytest.mark.parametrize(
    ("exact_width", "options", "widest"),
    [
        (3, {"exactness": "strict"}, 3),
        (3, {}, ANY_WIDTH),
        (WIDTHS[-1], {}, WIDTHS[-1]),
        (WIDTHS[-1], {"temperature": 1.0}, ANY_WIDTH),
    ],
)
def test_the_widest_round_keeps_equal_rows_where_they_cost_nothing(
    exact_width: int, options: dict[str, Any], widest: int
) -> None:
    own = engine(1, noise=0.1, exact_width=exact_width)
    assert widest_round(own.target, own.submit(request("a", **{"temperature": 0.0} | options))) == widest
