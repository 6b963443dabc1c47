"""The benchmark of what showing an answer costs measures something."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.bench.rendering import answer_of, measure, table


@pytest.mark.slow
def test_an_answer_is_shown_in_a_terminal_and_measured(tmp_path: Path) -> None:
    cost = measure("fence", "localspec", 20, tmp_path / "cost.json")
    assert (cost.answer, cost.shown_by) == ("fence", "localspec")
    assert cost.share > 0 and cost.late_s >= 0
    assert table([cost]).splitlines()[1].startswith("fence   localspec")


def test_answers_are_the_same_each_time_and_as_long_as_they_are_to_be() -> None:
    assert answer_of("prose", 5_000) == answer_of("prose", 5_000) and len(answer_of("prose", 5_000)) == 5_000
    assert answer_of("fence", 5_000).startswith("```python\n") and answer_of("fence", 5_000).endswith(
        "\n```\n"
    )
