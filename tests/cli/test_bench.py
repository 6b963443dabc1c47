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


def test_a_row_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    bench._print(results(run()))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[3] == "edit 10.0 tok/s 20.0 tok/s 2.00x 2.00x 80% 3.00"


@pytest.mark.slow
def test_a_model_is_measured_on_the_nodes_that_are_configured(cli: Cli) -> None:
    pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
    from tests.mlx_pair import mlx_model

    pair = ("-m", str(mlx_model("stdlib-6m")), "--draft", str(mlx_model("stdlib-1m")))
    assert cli("config", "set", "nodes", '["local"]').returncode == 0
    found = cli.json("bench", *pair, *SMALL[2:-1], "code")
    assert found["figures"][0]["equal"] and list(found["rounds_s"]) == ["1", "2", "3", "5", "9", "17"]
    assert cli("config", "set", "nodes", '["nowhere.invalid"]').returncode == 0
    assert "nowhere.invalid" in cli("bench", *pair, *SMALL[2:-1], "code").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--workload", "caht", "-m", "bundled"), "did you mean 'chat'"), (("--runs", "0"), "--runs")],
)
def test_what_makes_no_sense(cli: Cli, arguments: Sequence[str], said: str) -> None:
    done = cli("bench", *arguments)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr + done.stdout
