"""More prompts, longer answers: the parity of tests/parity at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.engine.engine import Engine
from localspec.engine.load import load
from localspec.models.bundled import bundled_model
from localspec.protocol.options import Options
from localspec.protocol.requests import Request
from tests.parity.loaded import measured, quantised
from tests.parity.prompts import prompts
from tests.slow.share import share
from tests.toys import answer, run_all

pytestmark = pytest.mark.slow

SETTINGS = [("none", 4), ("prompt-lookup", 3), ("draft", 3), ("auto", 6)]


PAIRS = {("stdlib-6m", "stdlib-1m"): 112, ("stdlib-1m", "stdlib-6m"): 32}
"""target and draft, and the number of prompts of which they get a share; a larger draft is rare in use"""
GREEDY = Options(temperature=0.0, max_tokens=160, exactness="strict")
SAMPLED = Options(temperature=0.8, top_k=40, top_p=0.9, seed=5, max_tokens=96, exactness="strict")
CASES = [(pair, options) for pair in PAIRS for options in (GREEDY, SAMPLED)]


@pytest.mark.parametrize(("pair", "options"), CASES)
def test_four_proposers_at_once_on_every_prompt(
    pair: tuple[str, str], options: Options, tmp_path: Path
) -> None:
    """Each prompt runs under four settings side by side; all four must give the same text. At Q8_0, which has
    equal rows at every width."""
    target = quantised(bundled_model(pair[0]), tmp_path, "Q8_0")
    with load(str(target), draft=pair[1], parallel=4, threads=1) as engine:
        measured(engine.target)
        compare(engine, options, share(PAIRS[pair]))


def compare(engine: Engine, options: Options, count: int) -> None:
    cases = drafted = 0
    for prompt in prompts(count):
        running = [
            engine.submit(Request(prompt=prompt, options=Options(proposer=p, k=k).over(options)))
            for p, k in SETTINGS
        ]
        run_all(engine, running)
        assert len({tuple(answer(sequence)) for sequence in running}) == 1
        cases += len(running)
        drafted += sum(sequence.stats.drafted for sequence in running)
    print(f"{cases} cases, {drafted} tokens drafted, 0 divergences")
    assert cases == count * len(SETTINGS) and drafted > 0
