"""What the README shows runs, and what it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from localspec.config import parse_config
from localspec.settings import settings
from tests.cli.harness import Cli
from tests.docs.settings import with_table

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
OTHERS_FLAGS = {"--exclude", "--help", "--force", "--install-extension"}


def test_there_are_two_snippets() -> None:
    assert len(SNIPPETS) == 2


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs(cli: Cli, tmp_path: Path, snippet: str) -> None:
    done = subprocess.run(
        (sys.executable, "-c", snippet), capture_output=True, text=True, env=cli.environment, cwd=tmp_path
    )
    assert done.returncode == 0 and done.stdout and not done.stderr, done.stderr
    assert float(done.stdout.split()[-1]) >= 1.0  # tokens per round


def test_the_settings_are_valid() -> None:
    (settings,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    assert parse_config(tomllib.loads(settings), where="README.md").engine.threads == 4


def test_the_table_of_settings_is_current() -> None:
    assert with_table(README) == README, "run python -m tests.docs.settings"
    assert all(f"\n| `{setting.key}` | {setting.takes} |" in README for setting in settings())


def test_a_readme_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        with_table(README.replace("<!-- end of settings -->", ""))


def test_every_flag_exists(cli: Cli) -> None:
    models = ("models list", "models load", "models pull")
    daemon = ("daemon logs", "daemon run", "daemon token", "doctor")
    commands = ("", "run", "complete", *daemon, *models, "memory forget", "bench", "config show")
    helps = "".join(cli(*command.split(), "--help").stdout for command in commands)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README))
    assert {flag for flag in named if flag not in helps} <= OTHERS_FLAGS


def test_every_path_exists() -> None:
    named = set(re.findall(r"(?:assets|localspec|tests)/[\w./-]+\w", README))
    assert named and all((ROOT / path).exists() for path in named), named


def test_every_command_of_the_makefile_exists() -> None:
    targets = re.findall(r"`(?:\.venv/bin/)?make ([a-z-]+)", README)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets and all(f"\n{target}:" in makefile for target in targets)
