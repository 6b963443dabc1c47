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
    found = cli.json("bench", *SMALL)
    assert (found["model"], found["proposer"]) == ("stdlib-6m", "auto")
    assert [figure["workload"] for figure in found["figures"]] == ["chat"]


def test_a_proposer_and_a_length_are_chosen(cli: Cli) -> None:
    done = cli("bench", *SMALL, "--proposer", "prompt-lookup", "-k", "4")
    assert done.returncode == 0, done.stderr
    assert "workload  plain" in done.stdout and "prompt-lookup" in done.stdout
    lines = done.stderr.splitlines()
    assert lines[-1] == "localspec: measuring chat" and len(lines) == len(set(lines)), "a line for each step"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (results(run(plain=(10.0, 12.0))), "at most 20%: the machine was busy, measure again."),
        (results(run(equal=False)), "Other texts than plain ones: edit."),
        (results(), "Not measured: chat."),
    ],
)
def test_a_table_warns(found: Results, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    found.left_out = [] if found.runs else ["chat"]
    bench._print(found)
    assert said in capsys.readouterr().out


def test_one_machine_and_two_stand_in_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    found = results(run(first_s=0.5), run(machines=2, plain=(6.0, 6.0), first_s=0.75))
    found.rounds_s = {1: {1: 0.1, 5: 0.2}, 2: {1: 0.0625, 5: 0.125}}
    found.too_large = "m needs 9 GB"
    bench._print(found)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[3:5] == [
        "edit 10.0 tok/s 20.0 tok/s 2.00x 2.00x 80% 3.00 0.50 s 1",
        "edit 6.0 tok/s 20.0 tok/s 3.33x 3.33x 80% 3.00 0.75 s 2",
    ]
    assert lines[8:11] == ["machines 1 5", "1 100.0 ms 200.0 ms", "2 62.5 ms 125.0 ms"]
    assert "Not measured on this machine alone: m needs 9 GB." in lines


@pytest.mark.slow
def test_a_model_is_measured_alone_and_with_a_node(cli: Cli) -> None:
    pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
    from tests.mlx_pair import mlx_model

    pair = ("-m", str(mlx_model("stdlib-6m")), "--draft", str(mlx_model("stdlib-1m")))
    found = cli.json("bench", *pair, *SMALL[2:-1], "code", "--nodes", "local")
    assert [each["machines"] for each in found["figures"]] == [1, 2]
    assert all(each["equal"] for each in found["figures"])
    assert [list(line) for line in found["rounds_s"].values()] == [["1", "2", "3", "5", "9", "17"]] * 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--workload", "caht", "-m", "bundled"), "did you mean 'chat'"),
        (("--runs", "0"), "--runs"),
        (("-k", "21"), "-k"),
        (("--nodes", "local", "-m", "bundled"), "stdlib-6m cannot be shared with nodes"),
        (("--tokens", "1"), "--tokens"),
    ],
)
def test_what_makes_no_sense(cli: Cli, arguments: Sequence[str], said: str) -> None:
    done = cli("bench", *arguments)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr + done.stdout
