"""The counters of speculation, with labels from closed sets."""

from __future__ import annotations

import pytest

from localspec.daemon.metrics import MetricsRegistry
from localspec.protocol.requests import ProposerStats, Result, Stats
from tests.toys import result_of


def result(tokens: int = 101, **stats: object) -> Result:
    return result_of(Stats(**{"choices": {"draft": 1}, **stats}), completion_tokens=tokens)  # type: ignore[arg-type]


def counted(*results: Result) -> dict[str, float]:
    metrics = MetricsRegistry()
    for each in results:
        metrics.count_result(each)
    return metrics.totals()


def test_time_saved_and_time_lost_are_counted_apart() -> None:
    totals = counted(result(time_saved_s=2.0), result(time_saved_s=-0.5), result(time_saved_s=None))
    assert totals["localspec_time_saved_seconds_total"] == 2.0
    assert totals["localspec_time_lost_seconds_total"] == 0.5


@pytest.mark.parametrize(
    ("choices", "lost"), [({"proposer is none": 9}, 0), ({"memory": 1, "proposer is none": 90}, 0.5)]
)
def test_time_is_lost_where_a_request_speculated_if_only_in_part(
    choices: dict[str, int], lost: float
) -> None:
    """A proposer that failed leaves plain rounds behind; the time it cost is lost all the same."""
    totals = counted(result(time_saved_s=-0.5, choices=choices))
    assert totals["localspec_time_lost_seconds_total"] == lost


def test_proposers_and_rounded_tokens_are_counted() -> None:
    totals = counted(
        result(proposers={"memory": ProposerStats(4, 3, 0.25)}, rounded_tokens=2),
        result(proposers={"memory": ProposerStats(4, 3, 0.5)}, rounded_tokens=1),
    )
    assert totals['localspec_proposing_seconds_total{proposer="memory"}'] == 0.75
    assert totals['localspec_accepted_tokens_total{proposer="memory"}'] == 6
    assert totals["localspec_rounded_tokens_total"] == 3


def test_rounds_are_counted_by_proposer_or_as_others() -> None:
    choices = {"draft": 3, "memory was not worth verifying": 2, "the draft was not worth it": 1, "a poem": 4}
    totals = counted(result(choices=choices))
    assert totals['localspec_rounds_total{choice="draft"}'] == 3
    assert totals['localspec_rounds_total{choice="other"}'] == 7


def test_tokens_are_counted_by_kind_over_all_requests() -> None:
    one = result(10)
    one.cached_tokens = 3
    totals = counted(one, result(5))
    kinds = {kind: totals[f'localspec_tokens_total{{kind="{kind}"}}'] for kind in ("prompt", "cached")}
    assert kinds == {"prompt": 2, "cached": 3}
    assert totals['localspec_tokens_total{kind="completion"}'] == 15


def test_time_is_counted_for_prompts_and_for_the_tokens_after_the_first() -> None:
    slow = result(11, ttft_s=0.5, queued_s=0.2, decode_tokens_per_s=5.0)
    totals = counted(slow, result(5), result(3, ttft_s=0.1, queued_s=0.3))
    assert totals["localspec_prompt_seconds_total"] == pytest.approx(0.3)
    assert totals["localspec_decode_seconds_total"] == 2.0
    assert totals["localspec_timed_tokens_total"] == 10
    timed = 2 * slow.prompt_tokens  # the answer without a time to its first token has no part in the rate
    assert totals["localspec_timed_prompt_tokens_total"] == timed
    assert totals["localspec_longest_tokens"] == 11 + slow.prompt_tokens


def test_both_forms_say_the_same() -> None:
    """JSON's keys are the lines of Prometheus' text."""
    metrics = MetricsRegistry()
    metrics.count_result(result(time_saved_s=0.25, choices={"draft": 3, "no such reason": 1}))
    metrics.add("requests_total", 2, method="generate", ending="stop")
    lines = [line for line in metrics.text().splitlines() if not line.startswith("#")]
    shown = {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines)}
    assert shown == metrics.totals()
    assert shown['localspec_requests_total{ending="stop",method="generate"}'] == 2
