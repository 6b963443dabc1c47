"""The benchmark of cached prompts on a real daemon: a repeated prompt is reused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from assets.bench.reuse import Answer, Repeated, Reuse, table
from tests.hygiene.source import ROOT

COMMAND = (sys.executable, "-m", "assets.bench.reuse")
LIMIT_S = 120.0


@pytest.mark.slow
def test_a_prompt_that_is_sent_twice_is_taken_over() -> None:
    command = (*COMMAND, "--sizes", "140", "--json")
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=LIMIT_S).stdout
    found = json.loads(said)
    ((cold, warm),) = [(each["cold"], each["warm"]) for each in found["prompts"]]
    assert cold["prompt"] == warm["prompt"] == 140
    assert cold["taken_over"] == 0 and warm["taken_over"] >= 140 - 8
    assert warm["text"] == cold["text"] != ""
    assert cold["first_ms"] > 0 and warm["first_ms"] > 0
    first, second, third = found["turns"]
    assert first["prompt"] < second["prompt"] < third["prompt"]
    assert third["taken_over"] > second["taken_over"] > 0


def test_the_table_has_a_line_for_each_prompt_and_turn() -> None:
    cold, warm = Answer(4000, 0, 8772.4, "a"), Answer(4000, 3992, 52.0, "a")
    lines = table(Reuse([Repeated(cold, warm)], [Answer(73, 16, 9.0, "b")])).splitlines()
    assert lines[1].split() == ["4,000", "3,992", "8,772", "ms", "52", "ms", "yes"]
    assert lines[-1].split() == ["1", "73", "16", "57", "9", "ms"]


@pytest.mark.slow
@pytest.mark.parametrize("size", ["0", "16384", "many"])
def test_a_size_that_no_prompt_has_is_refused(size: str) -> None:
    said = subprocess.run((*COMMAND, "--sizes", size), cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert said.returncode == 2 and f"{size!r} is not a size of a prompt; give a number from 1" in said.stderr
