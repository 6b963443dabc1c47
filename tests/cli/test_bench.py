"""``localspec bench``: on the bundled pair, as it is."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.bench.report import report_of
from localspec.bench.results import Results
from localspec.cli import main
from localspec.cli.bench import BenchFlags, Output, give_out, tables_of
from tests.cli.harness import Cli
from tests.waiting import DEADLINE_S, until_sync

pytestmark = pytest.mark.slow
"""models are written and run: half a minute"""

ANSWERS = Path(__file__).parent.parent / "bench" / "data" / "answers.jsonl"
SMALL = ("-m", "bundled", "--quick", "--runs", "1", "--workload", "chat")


@pytest.fixture(scope="module")
def document(cli: Cli) -> str:
    """The output of ``--json``."""
    done = cli.process("bench", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def results(document: str) -> Any:
    return json.loads(document)


def given_out(document: str, capsys: pytest.CaptureFixture[str], **flags: Any) -> tuple[int, str, str]:
    """The exit code, stdout and stderr for the results in a document."""
    results = msgspec.json.decode(document, type=Results)
    code = give_out(BenchFlags(**flags), results, Output(tables_of, report_of))
    return code, *capsys.readouterr()


def contestants(results: Any) -> set[str]:
    return {run["contestant"] for run in results["runs"]}


def test_everybody_is_measured(results: Any) -> None:
    assert contestants(results) == {"none", "none (again)", "auto", "prompt-lookup", "memory", "draft"}
    assert results["stopped"] is None
    assert {figure["workload"] for figure in results["figures"]} == {"chat"}
    assert {curve["role"] for curve in results["curves"]} == {"target", "draft", "target, as auto knows it"}


def test_no_greedy_text_is_another_one(results: Any) -> None:
    assert [figure for figure in results["figures"] if figure["diverged"]] == []


def test_raw_runs_are_kept_with_what_they_took(results: Any) -> None:
    for run in results["runs"]:
        assert run["total_s"] >= run["decode_s"] > 0
        assert run["ttft_s"] > 0
        assert run["cpu_s"] > 0
        assert run["rounds"] > 0


def test_the_machine_and_the_models_are_described(results: Any) -> None:
    assert results["machine"]["cores"] >= 1
    assert {model["role"]: model["name"] for model in results["models"]} == {
        "target": "stdlib-6m",
        "draft": "stdlib-1m",
    }
    assert all(len(model["sha256"]) == 64 for model in results["models"])


def test_results_are_shown_as_a_table(document: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, told, _ = given_out(document, capsys)
    assert code == 0
    for word in ("prompt-lookup", "none (again)", "1.00x"):
        assert word in told


def test_results_become_a_page(document: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    code, told, _ = given_out(document, capsys, report=page, json=True)
    assert code == 0
    assert json.loads(told) == json.loads(document)
    assert "plot-speed" in page.read_text()


def test_users_files_are_left_alone(cli: Cli, document: str) -> None:
    """The memory does not learn the benchmark's requests."""
    assert document
    assert not (cli.home / "data" / "memory").exists()


# Logs.


def test_logs_are_recorded_and_played(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    done = cli.process("bench", "-m", "bundled", "--quick", "--workload", "chat", "--record", str(log))
    assert done.returncode == 0, done.stderr
    assert "2 answers recorded" in done.stderr
    played = cli.json("bench", "simulate", str(log), "--proposer", "auto")
    assert played["workloads"]["chat"]["requests"] == 2


def test_the_simulator_counts(cli: Cli) -> None:
    played = cli.json("bench", "simulate", str(ANSWERS), "-k", "4")["workloads"]["edit-short"]
    assert played["rounds"] + played["accepted"] == played["tokens"] - played["requests"]
    assert 0 < played["accepted"] < played["drafted"]
    assert 0 < played["router_share"] <= 1


def test_a_cost_of_ones_own(cli: Cli) -> None:
    flat = cli.json("bench", "simulate", str(ANSWERS), "--cost", "1=10")["workloads"]["edit-short"]
    assert flat["speed"] == pytest.approx(flat["tokens_per_round"])
    table = cli.process("bench", "simulate", str(ANSWERS), "--cost", "1=10,2=11")
    assert "tokens/round" in table.stdout


def test_a_log_that_takes_long_tells_how_far_it_is(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through a pipe."""
    for name, value in cli.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("localspec.cli.bench.LINE_S", 0.0)
    quick = ("-m", "bundled", "--quick", "--workload", "chat")
    assert main.run(["bench", *quick, "--record", str(tmp_path / "log.jsonl")]) == 0
    told = capsys.readouterr().err.splitlines()
    assert "localspec: recording chat: 1 of 2 (0%)" in told
    assert "localspec: recording chat: 2 of 2 (50%)" in told


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--workload", "edit-shrt"), "did you mean 'edit-short'"),
        (("--contestant", "memroy", "-m", "bundled"), "did you mean 'memory'"),
        (("--contestant", "nope", "-m", "bundled"), "Choose among: 'auto', 'draft', '"),
        (("--runs", "0"), "--runs"),
        (("--record", "x.jsonl", "--json"), "--record measures nothing and cannot be combined with --json"),
        (
            ("--record", "x.jsonl", "--runs", "2"),
            "--record measures nothing and cannot be combined with --runs",
        ),
        (("--record", "x.jsonl", "--report", "x.html", "--llama-server", "x"), "--report, --llama-server"),
        (("--draft", "none"), "--draft needs --model"),
        (("--report", "/no/such/folder/x.html"), "there is no directory"),
        (("simulate", str(ANSWERS), "-k", "21"), "-k 21 is not within 1 to 20"),
        (("simulate", str(ANSWERS), "--cost", "2=1"), "--cost"),
        (("simulate", str(ANSWERS), "--proposer", "draft"), "cannot be simulated"),
    ],
)
def test_what_makes_no_sense(cli: Cli, arguments: Sequence[str], said: str) -> None:
    done = cli.process("bench", *arguments)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr + done.stdout


def test_a_llama_server_that_is_not_there(cli: Cli) -> None:
    done = cli.process(
        "bench", "-m", "bundled", "--workload", "chat", "--llama-server", "/no/such/llama-server"
    )
    assert done.returncode == 69
    assert "llama-server was not found" in done.stderr


# What goes wrong on the way.


def test_a_page_that_cannot_be_written_takes_nothing_along(
    document: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, told, complaint = given_out(document, capsys, json=True, report=tmp_path)
    assert code == 1
    assert json.loads(told) == json.loads(document)
    assert "cannot be written" in complaint


def test_what_was_measured_before_an_error_is_given_out(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full_disk(makers: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name, value in cli.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("localspec.bench.bench.propose_costs", full_disk)
    page = tmp_path / "report.html"
    code = main.run(["bench", *SMALL, "--contestant", "auto", "--json", "--report", str(page)])
    told = capsys.readouterr()
    results = json.loads(told.out)
    assert code == 1
    assert contestants(results) == {"none", "none (again)", "auto"}
    assert len(results["figures"]) == 3
    assert "No space left" in results["stopped"]
    assert "No space left" in told.err
    assert "This run was ended by an error" in page.read_text()


def test_a_table_says_what_is_missing(results: Any, capsys: pytest.CaptureFixture[str]) -> None:
    missing = {"failures": {"auto": "device lost"}, "left_out": ["chat / ask-1"]}
    _, table, _ = given_out(json.dumps(results | missing), capsys)
    assert "auto failed and was not measured any further: device lost" in table
    assert "There was no time for chat / ask-1." in table


# Ctrl-C.


def test_an_interruption_says_what_was_measured_and_leaves_nothing_behind(cli: Cli, tmp_path: Path) -> None:
    page, scratch = tmp_path / "report.html", tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        (*cli.command, "bench", "-m", "bundled", "--workload", "chat", "--report", str(page)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=cli.environment | {"TMPDIR": str(scratch)},
    )
    until_sync(lambda: any(scratch.iterdir()), "a memory of its own shows that it measures")
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "nothing was written" in complaint
    assert not page.exists()
    assert list(scratch.iterdir()) == []
