"""``localspec models pair``: the table, and what then happens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from localspec.cli.bench import BenchFlags, order_of
from localspec.models.catalogue import bundled_model
from localspec.models.gguf import read_header
from localspec.models.records import ENOUGH, PairResults
from tests.cli.harness import CONFIG, Cli, ended
from tests.models.test_tried import note

TARGET, DRAFT = bundled_model("stdlib-6m"), bundled_model("stdlib-1m")


@pytest.fixture
def models(cli: Cli, tmp_path: Path) -> Path:
    """A directory with a target and what might be a draft for it, sound to the eye or broken."""
    shutil.copy(TARGET, tmp_path / "target.gguf")
    (tmp_path / "cut.gguf").write_bytes(DRAFT.read_bytes()[:-1000])
    renamed = DRAFT.read_bytes().replace("Ġdef".encode(), "Ġdxf".encode(), 1)
    (tmp_path / "renamed.gguf").write_bytes(renamed)
    (cli.home / "config" / "config.toml").write_text(f'model_dirs = ["{tmp_path}"]\n{CONFIG}')
    return tmp_path


def test_the_bundled_pair(cli: Cli) -> None:
    done = cli("models", "pair")
    assert done.returncode == 0 and not done.stderr
    lines = done.stdout.splitlines()
    assert " ".join(lines[0].split()) == "draft vocabulary smaller memory accepted time saved why"
    assert lines[1].startswith("*  stdlib-1m  exact") and lines[-1] == "stdlib-6m: the bundled pair"
    assert lines[1].endswith("  same family") and not any("refused" in line for line in lines)
    assert cli("models", "pair", "bundled").stdout == done.stdout


def test_a_gain_is_said_once_enough_was_drafted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(cli.home))
    for drafted, gain in ((ENOUGH - 1, None), (ENOUGH, 1.5)):
        note(TARGET, DRAFT, PairResults(drafted, 30, 1.5))
        seen = cli.json("models", "pair")["candidates"][0]
        lines = cli("models", "pair").stdout.splitlines()
        assert "time saved" in lines[0] and ("  33%  " in lines[1]) == (gain is not None)
        assert (seen["id"], seen["drafted"], seen["gain"]) == ("stdlib-1m", drafted, gain)


def test_every_candidate_has_its_reason(cli: Cli, models: Path) -> None:
    found = cli.json("models", "pair", "target")
    assert (found["target"], found["path"]) == ("stdlib:6m", str(models / "target.gguf"))
    assert (found["draft"], found["reason"]) == (
        "stdlib-1m",
        "stdlib-1m drafts: same vocabulary, same family, 4.52 times smaller",
    )
    table = {(each["id"], each["format"]): each for each in found["candidates"]}
    assert {key: (each["verdict"], each["chosen"]) for key, each in table.items()} == {
        ("stdlib-1m", "gguf"): ("exact", True),
        ("stdlib-6m", "gguf"): ("refused", False),
        ("cut", "gguf"): ("refused", False),
        ("renamed", "gguf"): ("refused", False),
    }
    assert all(each["reason"] for each in table.values())
    number = next(n for n, text in enumerate(tokens(TARGET)) if text == "Ġdef")
    assert f"token {number} is b' dxf', the target's is b' def'" in table["renamed", "gguf"]["reason"]
    assert "truncated" in table["cut", "gguf"]["reason"]


def tokens(path: Path) -> tuple[str, ...]:
    found: tuple[str, ...] = read_header(path).metadata["tokenizer.ggml.tokens"]
    return found


def test_what_cannot_be_paired_is_an_error(cli: Cli, models: Path) -> None:
    done = cli("models", "pair", "cut")
    assert done.returncode == 1 and "truncated" in done.stderr and not done.stdout


@pytest.mark.slow
def test_on_a_terminal_it_is_a_table(cli: Cli, models: Path) -> None:
    environment = {**cli.environment, "TERM": "xterm", "COLUMNS": "80"}
    terminal = cli.terminal("models", "pair", "target", env=environment, dimensions=(50, 80))
    terminal.expect(r"draft .*vocabulary.*smaller.*memory.*why")
    terminal.expect("stdlib-1m.*32mexact")
    terminal.expect(r"31mrefused")
    terminal.expect("1 model cannot be used: see `localspec models list`")
    terminal.expect("stdlib:6m: stdlib-1m drafts")
    assert ended(terminal) == 0


@pytest.mark.parametrize(("n_ctx", "draft"), [(256, "stdlib-1m"), (100_000_000, None)])
def test_the_benchmark_measures_the_pair_that_the_table_says(
    cli: Cli, models: Path, monkeypatch: pytest.MonkeyPatch, n_ctx: int, draft: str | None
) -> None:
    """For the second there is no memory on any machine."""
    cli("config", "set", "engine.n_ctx", str(n_ctx))
    assert cli.json("models", "pair", "target")["draft"] == draft
    monkeypatch.setenv("LOCALSPEC_HOME", str(cli.home))
    measured = order_of(BenchFlags(model="target"))
    assert measured.pair.target.path == models / "target.gguf"
    assert (measured.pair.draft is not None) == (draft is not None) and measured.config.n_ctx == n_ctx
