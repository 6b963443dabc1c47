"""Strict requests beside each other: speculation goes on, and changes nothing."""

from __future__ import annotations

import pytest

from localspec.backends.toy import ToyBackend
from localspec.engine.engine import Engine
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.events import Degraded
from tests.toys import answer, request, run_all, share_always, small_markov

TEXTS = ("abcabcabc", "bcdbcdbcd", "cdecdecde", "defdefdef", "aabbaabb")


def strict_answers(engine: Engine, prompts: list[str], proposer: str, n: int) -> list[list[int]]:
    """The answers to ``prompts`` in this order, ``n`` requests decoding together; none lost its proposer."""
    found = []
    for start in range(0, len(prompts), n):
        asks = [
            request(text, temperature=0.0, exactness="strict", proposer=proposer, max_tokens=24)
            for text in prompts[start : start + n]
        ]
        running = [engine.submit(each) for each in asks]
        run_all(engine, running)
        degraded = [e for each in running for e in each.events if isinstance(e, Degraded)]
        assert not degraded and all(each.error is None for each in running)
        found += [answer(each) for each in running]
    return found


def crowded_toy(n: int, exact_width: int) -> Engine:
    target = ToyBackend(small_markov(3, sharpness=0.5), n_ctx=96, max_sequences=n)
    target.make_noisy(0.02, exact_width=exact_width)
    return share_always(Engine(target, config=EngineConfig(prefill_chunk=4)))


@pytest.mark.parametrize(("n", "exact_width"), [(8, 8), (20, 8), (3, 2), (33, 5)])
def test_a_crowd_of_strict_requests_keeps_its_proposers_and_its_texts(n: int, exact_width: int) -> None:
    prompts = [f"{TEXTS[i % len(TEXTS)]}{'abcdef'[i % 6]}" for i in range(n)]
    plain = strict_answers(crowded_toy(n, exact_width), prompts, "none", 1)
    assert strict_answers(crowded_toy(n, exact_width), prompts, "auto", n) == plain
