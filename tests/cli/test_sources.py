"""Errors about a model name that was not typed name the setting that holds it."""

from __future__ import annotations

import shlex
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
    ("memory", "export", "/tmp/never.jsonl"),
)


@pytest.mark.slow
@pytest.mark.parametrize("asking", ASKING, ids=lambda asking: " ".join(asking[:2]))
def test_a_model_that_nobody_typed_is_told_with_its_source(
    cli: Cli, tmp_path: Path, asking: tuple[str, ...]
) -> None:
    def told(model: str) -> str:
        done = cli(*asking, cwd=tmp_path)
        assert done.returncode == 1 and model in done.stderr, done.stderr
        return done.stderr.splitlines()[-1]

    file(cli).write_text(CONFIG + '[options]\nmodel = "budnled"\n')
    said = told("budnled")
    assert "config.toml sets model = 'budnled': there is no model named 'budnled'; did you" in said
    assert "`localspec config set model NAME`" in said and "`localspec config set model --unset`" in said
    (tmp_path / ".git").mkdir()
    file(cli).write_text(f'{CONFIG}[workspaces."{tmp_path}"]\nmodel = "~/lost.gguf"\n')
    said = told("lost.gguf")
    assert f"""[workspaces."{tmp_path}"] sets model = '~/lost.gguf': there is no file """ in said
    command = f"""`localspec config set 'workspaces."{tmp_path}".model' --unset`"""
    assert command in said
    assert cli(*shlex.split(command.strip("`"))[1:]).returncode == 0
    cli.environment["LOCALSPEC_MODEL"] = "./lost.gguf"
    assert "LOCALSPEC_MODEL sets model = './lost.gguf': there is no file" in told("lost.gguf")
    assert "run `unset LOCALSPEC_MODEL`" in told("lost.gguf")


def test_a_model_that_was_typed_has_no_source(cli: Cli) -> None:
    file(cli).write_text(CONFIG + '[options]\nmodel = "other"\ndraft = "lost"\n')
    for asking in (("run", "--no-daemon", "-m", "other", "x"), ("models", "show", "other")):
        assert cli(*asking).stderr.startswith(
            "localspec: there is no model named 'other'. See `localspec models"
        )
    done = cli("run", "--no-daemon", "-m", "bundled", "--draft", "lost", "x")
    assert done.stderr.startswith("localspec: there is no model named 'lost'.")


def test_a_draft_that_nobody_typed_is_told_with_its_source(cli: Cli) -> None:
    file(cli).write_text(CONFIG + '[options]\ndraft = "lost"\n[models."stdlib-1m"]\ndraft = "gone"\n')
    asking = ("run", "--no-daemon", "x")
    assert "config.toml sets draft = 'lost': there is no model" in cli(*asking).stderr
    done = cli(*asking[:-1], "-m", "stdlib-1m", "x", "--json")
    assert "says draft" not in done.stdout and "'gone'" in done.stdout
    cli.environment["LOCALSPEC_DRAFT"] = "away"
    assert "LOCALSPEC_DRAFT sets draft = 'away': there is no model" in cli(*asking).stderr
