"""``localspec bench``: on the bundled pair, as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.bench.run import Results
from localspec.cli import bench
from tests.bench.test_run import results, run
from tests.cli.harness import Cli

SMALL = ("-m", "bundled", "--runs", "1", "--tokens", "16", "--workload", "chat")


def test_results_are_printed_and_drawn(cli: Cli, tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    found = cli.json("bench", *SMALL, "--plot", str(plot))
    assert plot.read_text().startswith("<svg")
    assert (found["model"], found["proposer"]) == ("stdlib-6m", "auto")
    assert [figure["workload"] for figure in found["figures"]] == ["chat"]


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--workload", "caht", "-m", "bundled"), "did you mean 'chat'"),
        (("--plot", "/no/such/folder/x.svg"), "there is no directory"),
        (("--runs", "0"), "--runs"),
        (("-k", "21"), "-k"),
        (("--tokens", "1"), "--tokens"),
    ],
)
def test_what_makes_no_sense(cli: Cli, arguments: Sequence[str], said: str) -> None:
    done = cli("bench", *arguments)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr + done.stdout
