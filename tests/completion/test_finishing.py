"""Golden cases: a model's text, and the part of it that an editor shows."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.completion.finishing import finish
from localspec.completion.gap import Gap

GOLDEN = Path(__file__).parent / "golden" / "cases.toml"
CASES: dict[str, dict[str, Any]] = tomllib.loads(GOLDEN.read_text(encoding="utf-8"))
CURSOR = "~"
CODE = st.text(alphabet="ab \n\t(){}'\r🙂\u0301,", max_size=60)


def gap_of(case: dict[str, Any]) -> Gap:
    prefix, _, suffix = case["text"].partition(CURSOR)
    where = {name: case[name] for name in ("language", "path", "multiline") if name in case}
    return Gap(prefix, suffix, **where)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_golden(case: dict[str, Any]) -> None:
    gap = gap_of(case)
    assert finish(case["said"], gap, case.get("ended", "stop")) == case["shown"]
    again = finish(case["shown"], gap)
    assert finish(again, gap) == again


@given(text=CODE, prefix=CODE, suffix=CODE, ended=st.sampled_from(["stop", "length", "deadline"]))
def test_what_is_shown_is_part_of_what_was_said(text: str, prefix: str, suffix: str, ended: Any) -> None:
    gap = Gap(prefix, suffix)
    shown = finish(text, gap, ended)
    assert not shown or shown.strip()
    assert shown.replace("\r\n", "\n").strip() in text.replace("\r\n", "\n")
    if gap.single_line:
        assert "\n" not in shown


@pytest.mark.parametrize("line", ["x = 1", "}}}", "'", "(a"])
def test_a_long_answer_is_finished_as_a_short_one(line: str) -> None:
    """The last lines that the file has next are dropped, however many came before."""
    before = "".join(f"y{n} = {n}\n" for n in range(400))
    gap = Gap("z = 0\n", f"\n{line}\nend\n")
    shown = finish(f"{before}{line}\nend", gap)
    assert shown == before.rstrip()
