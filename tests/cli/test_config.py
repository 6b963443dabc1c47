"""``localspec config …`` as people call it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.config import load_config, settings
from localspec.models.catalogue import bundled_model
from tests.cli.harness import CONFIG, Cli
from tests.folders import short_folder


@pytest.fixture
def cli() -> Iterator[Cli]:
    with short_folder() as home:
        command = Cli(home)
        for variable in ("LOCALSPEC_MODEL", "LOCALSPEC_DRAFT", "LOCALSPEC_PROPOSER", "VISUAL", "EDITOR"):
            command.environment.pop(variable, None)
        yield command
        command("daemon", "stop")


def file(cli: Cli) -> Path:
    return cli.home / "config" / "config.toml"


def shown(cli: Cli, *arguments: str) -> dict[str, Any]:
    return {each["key"]: each["value"] for each in cli.json("config", "show", *arguments)["settings"]}


def test_every_setting_is_shown(cli: Cli) -> None:
    file(cli).write_text(CONFIG + '[models."stdlib-6m"]\nn_ctx = 64\nk = 2\n')
    cli.environment["LOCALSPEC_PROPOSER"] = "none"
    found = shown(cli)
    assert set(found) == {setting.key for setting in settings()}
    assert (found["engine.threads"], found["engine.parallel"], found["engine.n_ctx"]) == (1, 0, 64)
    assert (found["options.k"], found["options.proposer"], found["options.model"]) == (2, "none", "auto")
    assert found["options.temperature"] is None
    for name in ("bundled", "stdlib-6m", str(bundled_model("stdlib-6m"))):
        assert shown(cli, "-m", name)["engine.n_ctx"] == 64
    other = shown(cli, "-m", "stdlib-1m")
    assert (other["engine.n_ctx"], other["options.k"], other["options.model"]) == (0, None, "stdlib-1m")


def test_what_is_shown_is_a_valid_configuration(cli: Cli) -> None:
    file(cli).write_text(CONFIG + '[http]\norigins = ["http://\\"a\\""]\n')
    for arguments in ((), ("--describe",)):
        text = cli("config", "show", *arguments).stdout
        values = tomllib.loads(text)
        assert values["engine"]["threads"] == 1 and values["http"]["origins"] == ['http://"a"']
        other = cli.home / "other.toml"
        other.write_text(text)
        assert load_config(other).engine.threads == 1
    assert "# sequences at once" in text and "(a whole number from 0 to 64)" in text
    assert "# temperature is not set: the model's own, else 0.7 for chat and 0 to fill in" in text


def test_a_wrong_file_is_named(cli: Cli) -> None:
    for text in (b"[engine]\nthreads = -1", b"\xff", b"[engine"):
        file(cli).write_bytes(text)
        for command in (("show",), ("set", "n_ctx", "1")):
            done = cli("config", *command)
            assert done.returncode == 2 and str(file(cli)) in done.stderr and not done.stdout
        assert file(cli).read_bytes() == text
    file(cli).unlink()
    assert cli("config", "path").stdout == f"{file(cli)}\n"
    assert shown(cli)["engine.threads"] == 0


def test_a_value_is_set_and_removed(cli: Cli) -> None:
    done = cli("config", "set", "n_ctx", "4096")
    assert done.returncode == 0 and not done.stdout
    assert done.stderr == f"engine.n_ctx is 4096 in {file(cli)}.\n"
    assert file(cli).read_text().startswith(CONFIG.partition("[daemon]")[0])
    assert shown(cli)["engine.n_ctx"] == 4096
    for _ in range(2):
        done = cli("config", "set", "n_ctx", "--unset")
        assert done.stderr == f"engine.n_ctx is not set in {file(cli)}.\n" and done.returncode == 0
        assert tomllib.loads(file(cli).read_text()) == tomllib.loads(CONFIG)
    opened = cli("config", "set", "http.without_token", '["ollama"]').stderr
    assert "Every program and every user of this machine" in opened


def test_a_refused_value_is_not_written(cli: Cli) -> None:
    done = cli("config", "set", "model", "b", "-m", "a")
    assert done.returncode == 2 and "options.model cannot be set for one model. Set it for all" in done.stderr
    assert file(cli).read_text() == CONFIG and os.listdir(file(cli).parent) == ["config.toml"]


def test_sections_are_written_by_the_names_that_they_have(cli: Cli) -> None:
    cli("config", "set", "n_ctx", "64", "-m", "stdlib-6m")
    cli("config", "set", "k", "2", "-m", str(bundled_model("stdlib-6m")))
    assert tomllib.loads(file(cli).read_text())["models"] == {"stdlib-6m": {"n_ctx": 64, "k": 2}}
    done = cli("config", "set", "k", "--unset", "-m", "bundled")
    assert done.stderr.startswith('k of [models."stdlib-6m"] is not set')
    cli("config", "set", "n_ctx", "--unset", "-m", "bundled")
    assert "stdlib-6m" not in file(cli).read_text()


def test_paths_are_from_where_they_are_typed(cli: Cli, tmp_path: Path) -> None:
    for key, text in (("model", "./one.gguf"), ("draft", "none"), ("workspace", "project")):
        assert cli("config", "set", key, text, cwd=tmp_path).returncode == 0
    options = tomllib.loads(file(cli).read_text())["options"]
    assert options == {"model": f"{tmp_path}/one.gguf", "draft": "none", "workspace": f"{tmp_path}/project"}


def test_a_daemon_with_other_settings_says_so(cli: Cli) -> None:
    cli("daemon", "start")
    cli("config", "set", "k", "4")
    assert "config.toml has changed" in cli("daemon", "status").stderr
    cli("config", "set", "k", "--unset")
    assert cli("daemon", "status").stderr == ""
    file(cli).write_text("[engine")
    assert "config.toml is not valid" in cli("daemon", "status").stderr
