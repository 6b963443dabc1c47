"""Findings of errors, and of many things in one sentence."""

from __future__ import annotations

import pytest

from localspec.doctor.finding import Finding, problem_of, some
from localspec.errors import InvalidOptions


def test_an_error_as_a_finding() -> None:
    error = InvalidOptions("there is no key", "Mend it.")
    assert problem_of("config", error) == Finding("config", "problem", "There is no key.", "Mend it.")
    assert problem_of("config", error, "Run that.").remedy == "Run that."


@pytest.mark.parametrize(
    ("things", "told"), [("", ""), ("a", "a"), ("abc", "a, b, c"), ("abcde", "a, b, c, and 2 more")]
)
def test_of_many_things_some_are_told(things: str, told: str) -> None:
    assert some(things) == told
