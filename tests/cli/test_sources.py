"""Errors about a model name that was not typed name the setting that holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.harness import CONFIG, Cli
from tests.cli.test_config import cli, file

__all__ = ["cli"]

ASKING = (
    ("run", "--no-daemon", "x"),
    ("run", "x"),
    ("models", "load"),
    ("models", "pair"),
    ("memory", "prime", "/dev/null"),
)


@pytest.mark.slow
@pytest.mark.parametrize("asking", ASKING, ids=lambda asking: " ".join(asking[:2]))
def test_a_configured_model_that_is_missing_is_reported_with_its_places(
    cli: Cli, tmp_path: Path, asking: tuple[str, ...]
) -> None:
    file(cli).write_text(CONFIG + '[options]\nmodel = "budnled"\n')
    for name in ("budnled", "./lost.gguf"):
        done = cli(*asking, cwd=tmp_path)
        assert done.returncode == 1 and name.removeprefix("./") in done.stderr
        assert f"The name is set as model in {file(cli)} or LOCALSPEC_MODEL: `loc" in done.stderr, done.stderr
        cli.environment["LOCALSPEC_MODEL"] = "./lost.gguf"


def test_a_model_that_was_typed_has_no_source(cli: Cli) -> None:
    file(cli).write_text(CONFIG + '[options]\nmodel = "other"\ndraft = "lost"\n')
    for asking in (("run", "--no-daemon", "-m", "other", "x"), ("models", "show", "other")):
        assert cli(*asking).stderr.startswith(
            "localspec: there is no model named 'other'. See `localspec models"
        )
    done = cli("run", "--no-daemon", "-m", "bundled", "--draft", "lost", "x")
    assert done.stderr.startswith("localspec: there is no model named 'lost'.")


def test_a_configured_draft_that_is_missing_is_reported_with_its_places(cli: Cli) -> None:
    file(cli).write_text(CONFIG + '[options]\ndraft = "lost"\n')
    said = cli("run", "--no-daemon", "x").stderr
    assert "there is no model named 'lost'" in said and "The name is set as draft in" in said
