"""Examples of README and of the documentation run, and what they name exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.config import parse_config
from tests.cli.harness import Cli
from tests.hygiene.source import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
WRITTEN = "\n".join([README, *PAGES.values()])
SNIPPETS = re.findall(r"```python\n(.*?)```", WRITTEN, re.DOTALL)
OTHERS_FLAGS = {"--exclude", "--help", "--force", "--install-extension", "--model", "--other", "--bare"}
OTHERS_FLAGS |= {"--core-tools", "--network", "--system-prompt", "--no-cache", "--no-cache-dir", "--pip-args"}
OTHERS_FLAGS |= {"--nodes"}
MOST_LINES = 150


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


@pytest.mark.parametrize("snippet", SNIPPETS, ids=["first", "second"])
def test_a_snippet_runs(cli: Cli, tmp_path: Path, snippet: str) -> None:
    done = subprocess.run(
        (sys.executable, "-c", snippet), capture_output=True, text=True, env=cli.environment, cwd=tmp_path
    )
    assert done.returncode == 0 and done.stdout and not done.stderr, done.stderr
    assert float(done.stdout.split()[-1]) >= 1.0  # tokens per round


def test_the_settings_are_valid() -> None:
    (settings,) = re.findall(r"```toml\n(.*?)```", WRITTEN, re.DOTALL)
    assert parse_config(settings, where="settings.md").engine.threads == 4


@pytest.mark.slow
def test_every_flag_exists(cli: Cli) -> None:
    models = ("models list", "models load", "models pull", "models pair")
    daemon = ("daemon logs", "daemon run", "daemon token", "doctor", "purge")
    settings = ("config show", "config set")
    commands = ("", "run", "complete", *daemon, *models, "memory forget", "bench", *settings, "follow")
    helps = "".join(cli(*command.split(), "--help").stdout for command in commands)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", WRITTEN))
    assert {flag for flag in named if flag not in helps} <= OTHERS_FLAGS


def test_every_path_exists() -> None:
    named = set(re.findall(r"(?<![\w/.-])(?:assets|localspec|tests)/[\w./-]+\w", WRITTEN))
    assert named and all((ROOT / path).exists() for path in named), named


def test_every_command_of_the_makefile_exists() -> None:
    targets = re.findall(r"(?:`|^)(?:\.venv/bin/)?make ([a-z-]+)", WRITTEN, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets and all(f"\n{target}:" in makefile for target in targets)


def test_every_page_is_two_clicks_from_readme() -> None:
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", README))
    assert set(PAGES) - linked == {"index.md"}
