"""``localspec bench``: on the bundled pair, as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.bench.results import Results
from localspec.cli import bench
from tests.bench.test_run import results, run
from tests.cli.harness import Cli

ANSWERS = Path(__file__).parent.parent / "bench" / "data" / "answers.jsonl"
SMALL = ("-m", "bundled", "--runs", "1", "--tokens", "16", "--workload", "chat")


def test_results_are_printed_drawn_and_recorded(cli: Cli, tmp_path: Path) -> None:
    plot, log = tmp_path / "plot.svg", tmp_path / "log.jsonl"
    done = cli("bench", *SMALL, "--json", "--plot", str(plot), "--record", str(log))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["model"], found["proposer"]) == ("stdlib-6m", "auto")
    assert [figure["workload"] for figure in found["figures"]] == ["chat"]
    assert plot.read_text().startswith("<svg")
    assert cli.json("bench", "simulate", str(log))["workloads"]["chat"]["requests"] == 2


def test_a_proposer_and_a_length_are_chosen(cli: Cli) -> None:
    done = cli("bench", *SMALL, "--proposer", "prompt-lookup", "-k", "4")
    assert done.returncode == 0, done.stderr
    assert "workload  plain" in done.stdout and "prompt-lookup" in done.stdout


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (results(run(plain=(10.0, 12.0))), "at most 20%: the machine was busy, measure again."),
        (results(run(equal=False)), "The texts are not those of plain decoding in: edit."),
        (results(), "Not measured: chat."),
    ],
)
def test_a_table_warns(found: Results, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    found.left_out = [] if found.runs else ["chat"]
    bench._print(found)
    assert said in capsys.readouterr().out


def test_the_simulator_counts(cli: Cli) -> None:
    played = cli.json("bench", "simulate", str(ANSWERS), "-k", "4")["workloads"]["edit"]
    assert played["rounds"] + played["accepted"] == played["tokens"] - played["requests"]
    assert 0 < played["accepted"] < played["drafted"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--workload", "caht", "-m", "bundled"), "did you mean 'chat'"),
        (("--runs", "0"), "--runs"),
        (("-k", "21"), "-k"),
        (("--plot", "/no/such/folder/x.svg"), "there is no directory"),
        (("--record", "/"), "is a directory"),
        (("--tokens", "1"), "--tokens"),
        (("simulate", str(ANSWERS), "-k", "21"), "-k"),
        (("simulate", str(ANSWERS), "--cost", "2=1"), "--cost"),
        (("simulate", str(ANSWERS), "--proposer", "draft"), "cannot be simulated"),
    ],
)
def test_what_makes_no_sense(cli: Cli, arguments: Sequence[str], said: str) -> None:
    done = cli("bench", *arguments)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr + done.stdout
