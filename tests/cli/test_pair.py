"""``localspec models pair``: the table, and what then happens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from localspec.models.catalogue import bundled_model
from localspec.models.gguf import read_header
from tests.cli.harness import CONFIG, Cli

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
    assert lines[0].split() == ["draft", "vocabulary", "smaller", "memory", "right", "gain", "why"]
    assert lines[1].startswith("*  stdlib-1m  exact") and lines[-1] == "stdlib-6m: the bundled pair"
    assert cli("models", "pair", "bundled").stdout == done.stdout


def test_every_candidate_has_its_reason(cli: Cli, models: Path) -> None:
    found = cli.json("models", "pair", "target")
    assert (found["target"], found["path"]) == ("target", str(models / "target.gguf"))
    assert (found["draft"], found["reason"]) == (
        "stdlib-1m",
        "stdlib-1m drafts: same vocabulary, same family, 4.52 times smaller",
    )
    table = {(each["id"], each["format"]): each for each in found["candidates"]}
    assert {key: (each["verdict"], each["chosen"]) for key, each in table.items()} == {
        ("stdlib-1m", "gguf"): ("exact", True),
        ("stdlib-6m", "gguf"): ("refused", False),
        ("stdlib-1m", "mlx"): ("refused", False),
        ("stdlib-6m", "mlx"): ("refused", False),
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


def test_a_longer_context_needs_more_memory(cli: Cli, models: Path) -> None:
    short, long = (
        cli.json("models", "pair", "target", "--n-ctx", n)["candidates"][0]["needs_bytes"]
        for n in ("256", "2048")
    )
    assert short < long


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("no-such",), 1, "there is no model named 'no-such'"),
        (("cut",), 1, "truncated"),
        (("bundled", "--n-ctx", "-1"), 2, "n_ctx"),
    ],
)
def test_what_cannot_be_paired_is_an_error(
    cli: Cli, models: Path, arguments: tuple[str, ...], code: int, told: str
) -> None:
    done = cli("models", "pair", *arguments)
    assert done.returncode == code and told in done.stderr and not done.stdout


def test_a_model_is_answered_with_the_draft_that_the_table_says(cli: Cli, models: Path) -> None:
    result = cli.json("run", "--no-daemon", "--max-tokens", "4", "-m", "target", "def f(")
    assert result["draft"] == cli.json("models", "pair", "target")["draft"] == "stdlib-1m"


@pytest.mark.parametrize("order", [("auto", "stdlib-1m"), ("stdlib-1m", "auto")])
def test_chosen_or_named_it_is_one_process(cli: Cli, models: Path, order: tuple[str, ...]) -> None:
    # The daemon reads its configuration when it starts.
    cli("daemon", "stop")
    pids = {cli.json("models", "load", "-m", "target", "--draft", draft)["pid"] for draft in order}
    assert len(pids) == 1 == len(cli.status()["models"])
    cli("daemon", "stop")
