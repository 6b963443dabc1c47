"""Speculation on a real model pair: greedy and seeded texts are those of plain decoding."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localspec.engine.engine import Engine
from localspec.engine.load import load
from localspec.engine.sequence import Sequence
from localspec.protocol.options import Options
from localspec.protocol.requests import Prompt, Request
from tests.parity.prompts import options, prompts
from tests.toys import answer, run_all

PROMPTS = prompts(24)
"""tests/slow has hundreds"""
SPECULATING = [
    pytest.param("prompt-lookup", 2, marks=pytest.mark.slow),
    ("prompt-lookup", 7),
    ("draft", 5),
    ("auto", 4),
]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with load("bundled", n_ctx=1024, parallel=4, threads=1) as engine:
        yield engine


def submit(engine: Engine, prompt: Prompt, **values: object) -> Sequence:
    return engine.submit(Request(prompt=prompt, options=Options(**options(**values))))


def texts(engine: Engine, n: int = len(PROMPTS), **values: object) -> list[list[int]]:
    """The answers to ``n`` prompts, one after the other; the cache is checked after every round."""
    answers = []
    for prompt in PROMPTS[:n]:
        sequence = submit(engine, prompt, **values)
        while not sequence.ended:
            engine.step()
            if sequence.prefilled and not sequence.ended:
                assert engine.target.length(sequence.slot) == len(sequence.tokens) - 1
        engine.step()
        answers.append(answer(sequence))
    return answers


@pytest.fixture(scope="module")
def plain(engine: Engine) -> list[list[int]]:
    return texts(engine, proposer="none")


@pytest.mark.slow
def test_there_are_enough_prompts_and_they_say_something(plain: list[list[int]]) -> None:
    assert len(PROMPTS) >= 24
    assert sum(len(tokens) for tokens in plain) > 20 * len(PROMPTS)


@pytest.mark.slow
@pytest.mark.parametrize(("proposer", "k"), SPECULATING)
def test_greedy_text_is_that_of_plain_decoding(
    engine: Engine, plain: list[list[int]], proposer: str, k: int
) -> None:
    spoken = texts(engine, proposer=proposer, k=k)
    assert [i for i, (a, b) in enumerate(zip(spoken, plain, strict=True)) if a != b] == []


@pytest.mark.slow
def test_a_batch_of_four_gives_each_the_text_it_has_alone(engine: Engine, plain: list[list[int]]) -> None:
    spoken: list[list[int]] = []
    for start in range(0, len(PROMPTS), 4):
        group = [
            submit(engine, prompt, proposer=("none", "prompt-lookup", "draft", "auto")[i], k=2 + i)
            for i, prompt in enumerate(PROMPTS[start : start + 4])
        ]
        run_all(engine, group)
        spoken += [answer(sequence) for sequence in group]
    assert [i for i, (a, b) in enumerate(zip(spoken, plain, strict=True)) if a != b] == []


@pytest.mark.slow
def test_seeded_text_does_not_depend_on_the_proposer(engine: Engine) -> None:
    spoken = [
        texts(engine, 8, proposer=proposer, k=4, temperature=0.8, seed=11, max_tokens=24)
        for proposer in ("none", "prompt-lookup", "draft")
    ]
    assert [i for i, answers in enumerate(zip(*spoken, strict=True)) if len({*map(tuple, answers)}) > 1] == []


@pytest.mark.slow
def test_drafts_are_accepted_and_rejected(engine: Engine) -> None:
    """The parity above means something: both happen, for both proposers."""
    for proposer in ("prompt-lookup", "draft"):
        shares = []
        for prompt in PROMPTS[:8]:
            sequence = submit(engine, prompt, proposer=proposer, k=4)
            run_all(engine, [sequence])
            shares.append((sequence.stats.drafted, sequence.stats.accepted))
        drafted, accepted = (sum(column) for column in zip(*shares, strict=True))
        assert 0 < accepted < drafted
