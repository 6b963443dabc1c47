"""Every kind of fault, a few times each; ``python -m tests.slow.faults`` does it as often as one likes."""

from __future__ import annotations

import asyncio

import pytest

from tests.slow.faults import FAULTS, Fault, line, table_of

pytestmark = pytest.mark.slow

RUNS = 3


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_it_is_survived(fault: Fault) -> None:
    (row,) = asyncio.run(table_of((fault,), RUNS, seed=11, show=lambda row: print(line(row))))
    if not row.runs:
        pytest.skip(row.note)
    assert row.survived == row.runs == RUNS, row.note
