"""More prompts, longer answers: the parity of tests/parity at length."""

from __future__ import annotations

import pytest

from localspec.engine.engine import Engine
from localspec.engine.load import load
from localspec.protocol.options import Options
from localspec.protocol.requests import Request
from tests.parity.prompts import prompts
from tests.slow.share import share
from tests.toys import answer, run_all

pytestmark = pytest.mark.slow

SETTINGS = [("none", 4), ("prompt-lookup", 3), ("draft", 3), ("auto", 6)]


PAIRS = {("stdlib-6m", "stdlib-1m"): 112, ("stdlib-1m", "stdlib-6m"): 32}
"""target and draft, and the number of prompts of which they get a share; a larger draft is rare in use"""
SAMPLED = Options(temperature=0.8, top_k=40, top_p=0.9, seed=5, max_tokens=96)
CASES = [(pair, options) for pair in PAIRS for options in (Options(temperature=0.0, max_tokens=160), SAMPLED)]


@pytest.mark.parametrize(("pair", "options"), CASES)
def test_four_proposers_at_once_on_every_prompt(pair: tuple[str, str], options: Options) -> None:
    """Each prompt runs under four settings in one batch; all four must give the same text."""
    with load(pair[0], draft=pair[1], parallel=4, threads=1) as engine:
        compare(engine, options, share(PAIRS[pair]))


def compare(engine: Engine, options: Options, count: int) -> None:
    cases, rechecks = 0, 0
    for prompt in prompts(count):
        running = [
            engine.submit(Request(prompt=prompt, options=Options(proposer=p, k=k).over(options)))
            for p, k in SETTINGS
        ]
        run_all(engine, running)
        assert len({tuple(answer(sequence)) for sequence in running}) == 1
        cases += len(running)
        rechecks += sum(sequence.stats.rechecks for sequence in running)
    print(f"{cases} cases, {rechecks} rechecks, 0 divergences")
    assert cases == count * len(SETTINGS)
