"""More prompts, longer answers: the parity of tests/parity at length."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localspec.engine.engine import Engine
from localspec.engine.load import load
from localspec.protocol.options import Options
from localspec.protocol.requests import Request
from tests.parity.prompts import prompts
from tests.toys import answer, run_all

pytestmark = pytest.mark.slow

SETTINGS = [("none", 4), ("prompt-lookup", 3), ("draft", 3), ("auto", 6)]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with load("bundled", parallel=4, threads=1) as engine:
        yield engine


def test_four_proposers_at_once_on_every_prompt(engine: Engine) -> None:
    """Each prompt runs under four settings in one batch; all four must give the same text."""
    every, cases, rechecks = prompts(1000), 0, 0
    for prompt in every:
        running = [
            engine.submit(
                Request(prompt=prompt, options=Options(temperature=0.0, max_tokens=160, proposer=p, k=k))  # type: ignore[arg-type]
            )
            for p, k in SETTINGS
        ]
        run_all(engine, running)
        assert len({tuple(answer(sequence)) for sequence in running}) == 1
        cases += len(running)
        rechecks += sum(sequence.stats.rechecks for sequence in running)
    print(f"{cases} cases, {rechecks} rechecks, 0 divergences")
    assert cases >= 400
