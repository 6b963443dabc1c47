"""The lines that the measurements of plain decoding and of two models print."""

from __future__ import annotations

from assets.bench.asking import Answer
from assets.bench.plain import prompt_of, row
from assets.bench.together import rates, times


def answer(seconds: float, rate: float | None, text: str = "a") -> Answer:
    return Answer(100.0 * seconds, seconds, rate, 64, 0, 0, text)


def test_a_pair_of_plain_answers_has_one_ratio() -> None:
    pairs = [(answer(1, 9.0), answer(1, 10.0)), (answer(1, 12.0), answer(1, 10.0, "b"))]
    assert row("m", pairs).split() == ["m", "10.5", "10.0", "1.05", "0.90", "1.20", "1/2"]
    assert row("m", [(answer(1, None), answer(1, 10.0))]) == "m  no answer had two pieces"


def test_prompts_are_as_long_as_they_are_to_be() -> None:
    assert [len(prompt_of(n).messages[0].content) for n in (200, 4000)] == [800, 16000]


def test_nineteen_of_twenty_answers_came_within_the_time() -> None:
    assert times([answer(n, None) for n in range(20, 0, -1)]) == "median 10500 ms, 19 of 20 within 19000 ms"
    assert times([answer(1, None)]) == "median 1000 ms, 19 of 20 within 1000 ms"


def test_rates_are_medians_of_the_answers_that_have_one() -> None:
    assert rates([answer(1, None), answer(2, 5.0), answer(3, 7.0)]) == "6.0 tok/s (first text 200 ms)"
    assert rates([answer(1, None)]) == "no rate"
