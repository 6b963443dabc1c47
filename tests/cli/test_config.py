"""``localspec config …`` as people call it."""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from localspec.config import LARGEST_FILE, TABLES, load_config
from localspec.models.bundled import bundled_model
from localspec.settings import settings
from tests.cli.harness import CONFIG, Cli
from tests.waiting import DEADLINE_S

VARIABLES = (
    "LOCALSPEC_MODEL",
    "LOCALSPEC_DRAFT",
    "LOCALSPEC_PROPOSER",
    "LOCALSPEC_BACKEND",
    "VISUAL",
    "EDITOR",
)


@pytest.fixture
def cli() -> Iterator[Cli]:
    home = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    command = Cli(home)
    for variable in VARIABLES:
        command.environment.pop(variable, None)
    yield command
    command("daemon", "stop")
    shutil.rmtree(home, ignore_errors=True)  # the daemon may be closing its files still


def file(cli: Cli) -> Path:
    return cli.home / "config" / "config.toml"


def beside(cli: Cli) -> list[Path]:
    """Return the other files in the configuration file's directory."""
    return [path for path in file(cli).parent.iterdir() if path != file(cli)]


def shown(cli: Cli, *arguments: str) -> dict[str, Any]:
    """The value of every setting."""
    return {each["key"]: each["value"] for each in cli.json("config", "show", *arguments)["settings"]}


# --- show ----------------------------------------------------------------------------------------


def test_every_setting_is_shown(cli: Cli) -> None:
    file(cli).write_text(CONFIG + '[models."stdlib-6m"]\nn_ctx = 64\nk = 2\n')
    cli.environment["LOCALSPEC_PROPOSER"] = "none"
    found = shown(cli)
    assert set(found) == {setting.key for setting in settings()}
    assert (found["engine.threads"], found["engine.parallel"], found["engine.n_ctx"]) == (1, 0, 64)
    assert (found["options.k"], found["options.proposer"], found["options.model"]) == (2, "none", "bundled")
    assert found["options.temperature"] is None
    other = shown(cli, "-m", "stdlib-1m")
    assert (other["engine.n_ctx"], other["options.k"], other["options.model"]) == (0, None, "stdlib-1m")


def test_a_model_is_shown_by_any_of_its_names(cli: Cli) -> None:
    file(cli).write_text('[models."stdlib-6m"]\nn_ctx = 64\n')
    for name in ("bundled", "stdlib-6m", str(bundled_model("stdlib-6m"))):
        assert shown(cli, "-m", name)["engine.n_ctx"] == 64


def test_the_draft_is_that_of_the_model_that_answers(cli: Cli) -> None:
    file(cli).write_text('[options]\nmodel = "stdlib-6m"\ndraft = "stdlib-1m"\n')
    assert shown(cli)["options.draft"] == "stdlib-1m"
    assert shown(cli, "-m", "other")["options.draft"] == "auto"
    cli.environment |= {"LOCALSPEC_MODEL": "other", "LOCALSPEC_DRAFT": "none"}
    assert shown(cli)["options.draft"] == "none"


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
    assert "# temperature is not set" in text


def test_a_file_that_is_wrong_is_told(cli: Cli) -> None:
    for text in (b"[engine]\nnctx = 1", b"\xff", b"[engine", b"#" * (LARGEST_FILE + 1)):
        file(cli).write_bytes(text)
        for command in (("show",), ("set", "n_ctx", "1")):
            done = cli("config", *command)
            assert done.returncode == 2 and str(file(cli)) in done.stderr and not done.stdout
        assert file(cli).read_bytes() == text
    assert cli("config", "path").stdout == f"{file(cli)}\n"


def test_the_file_has_a_path_before_it_is_there(cli: Cli) -> None:
    assert cli.json("config", "path") == {"path": str(file(cli)), "exists": True}
    file(cli).unlink()
    assert cli.json("config", "path") == {"path": str(file(cli)), "exists": False}
    assert shown(cli)["engine.threads"] == 0


# --- set -----------------------------------------------------------------------------------------


def test_a_value_is_set_and_taken_back(cli: Cli) -> None:
    done = cli("config", "set", "n_ctx", "4096")
    assert done.returncode == 0 and not done.stdout
    assert done.stderr == f"engine.n_ctx is 4096 in {file(cli)}.\n"
    assert file(cli).read_text().startswith(CONFIG.partition("[daemon]")[0])
    assert shown(cli)["engine.n_ctx"] == 4096
    for flag in ("--unset", "--default"):
        cli("config", "set", "n_ctx", "1")
        done = cli("config", "set", "n_ctx", flag)
        assert done.stderr == f"engine.n_ctx is no longer set in {file(cli)}.\n"
        assert tomllib.loads(file(cli).read_text()) == tomllib.loads(CONFIG)
    again = cli("config", "set", "n_ctx", "--unset")
    assert again.returncode == 2 and "engine.n_ctx is not set in config.toml" in again.stderr
    said = cli.json("config", "set", "model_dirs", '["~/models"]')
    assert said == {"path": str(file(cli)), "key": "model_dirs", "value": ["~/models"], "daemon": "none"}


def test_an_unknown_key_can_be_removed(cli: Cli) -> None:
    file(cli).write_text(CONFIG + "[engin]\nnctx = 1\n")
    assert cli("config", "show").returncode == 2
    assert cli("config", "set", "engin.nctx", "--unset").returncode == 2  # [engin] itself is wrong, too
    file(cli).write_text("[engine]\nnctx = 1\n")
    assert cli("config", "set", "engine.nctx", "--unset").returncode == 0
    assert cli("config", "show").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nctx", "1"), "there is no setting named 'nctx'; did you mean 'n_ctx'?"),
        (("n_ctx", "many"), "engine.n_ctx takes a whole number from 0 to 100000000, not 'many'"),
        (("model_dirs", "a"), "Write a list as in TOML"),
        (("threshold", "0.3"), "drafts are verified exactly"),
        (("n_ctx",), "`config set` needs either a value or --unset"),
        (("n_ctx", "1", "--unset"), "`config set` needs either a value or --unset"),
        (("a b", "1"), "there is no setting named 'a b'"),
        (("", "1"), "there is no setting named ''"),
        (("engine", "--unset"), "there is no setting named 'engine'"),
        (("daemon.nothing", "--unset"), "daemon.nothing is not set in config.toml"),
        (("engine", "1"), "there is no setting named 'engine'"),
        (("models.n_ctx", "1"), "there is no setting named 'models.n_ctx'"),
        (("port", "1", "-m", "a"), 'daemon.port cannot be set for [models."a"]. Set it for all models'),
        (("model", "b", "-m", "a"), 'options.model cannot be set for [models."a"]. Set it for all models'),
        (("=" * 100, "1"), "there is no setting named"),
    ],
)
def test_what_cannot_be_set_is_told(cli: Cli, arguments: tuple[str, ...], told: str) -> None:
    done = cli("config", "set", *arguments)
    assert done.returncode == 2 and told in done.stderr, done.stderr
    assert file(cli).read_text() == CONFIG and not beside(cli)


def test_setting_or_removing_a_setting_removes_its_earlier_name(cli: Cli) -> None:
    """Otherwise origins that were replaced, or removed, would be accepted again."""
    old = f'{CONFIG}allowed_origins = ["http://old"]\n'
    for change in (["--unset"], ['["http://new"]']):
        file(cli).write_text(old)
        assert cli("config", "set", "http.origins", *change).returncode == 0
        assert "old" not in file(cli).read_text()
    cli("config", "set", "http.origins", "--unset")
    assert shown(cli)["http.origins"] == []


def test_origins_of_all_hosts_are_refused_where_they_are_typed(cli: Cli) -> None:
    done = cli("config", "set", "http.origins", '["https://*"]')
    assert done.returncode == 2 and "other than http, https, ws and wss" in done.stderr, done.stderr
    assert "config edit" not in done.stderr


@pytest.mark.slow
def test_a_setting_by_its_earlier_name_is_shown_with_a_notice(cli: Cli) -> None:
    file(cli).write_text(f'{CONFIG}allowed_origins = ["http://x"]\n')
    notice = f"{file(cli)}: daemon.allowed_origins is now named http.origins"
    told = f"{notice}. Correct it: `localspec config edit`."
    assert shown(cli)["http.origins"] == ["http://x"]
    assert cli.json("config", "show")["renamed"] == [notice]
    assert " ".join(cli("config", "show").stderr.split()) == told
    cli("daemon", "start")
    assert told in cli("daemon", "logs").stdout
    cli("config", "set", "daemon.allowed_origins", "--unset")
    assert cli.json("config", "show")["renamed"] == []


def test_a_table_of_an_earlier_version_stops_no_command(cli: Cli) -> None:
    file(cli).write_text(f'{CONFIG}[workspaces."/a"]\nk = 3\n')
    done = cli("config", "show")
    assert done.returncode == 0 and "workspaces is not a setting any more" in done.stderr
    assert cli("config", "set", "k", "2").returncode == 0
    assert cli("config", "set", "workspaces", "--unset").returncode == 0
    assert "workspaces" not in file(cli).read_text() and not cli("config", "show").stderr


def test_sections_are_written_by_the_names_that_they_have(cli: Cli) -> None:
    cli("config", "set", "n_ctx", "64", "-m", "stdlib-6m")
    cli("config", "set", "k", "2", "-m", str(bundled_model("stdlib-6m")))
    assert tomllib.loads(file(cli).read_text())["models"] == {"stdlib-6m": {"n_ctx": 64, "k": 2}}
    assert "not on this disk" not in cli("config", "set", "k", "2", "-m", "bundled").stderr
    done = cli("config", "set", "k", "2", "-m", "budnled")
    assert "there is no model named 'budnled'; did you mean" in done.stderr and done.returncode == 0
    done = cli("config", "set", "k", "--unset", "-m", "bundled")
    assert done.stderr.startswith('k of [models."stdlib-6m"] is no longer set')


def test_a_model_that_is_not_here_is_set_with_a_warning(cli: Cli) -> None:
    done = cli("config", "set", "options.model", "missing")
    assert done.returncode == 0
    assert "This model is not on this disk now: there is no model named 'missing'" in done.stderr
    assert shown(cli)["options.model"] == "missing"
    assert "not on this disk" not in cli("config", "set", "options.model", "bundled").stderr
    removed = cli("config", "set", "options.model", "--remove")
    assert removed.returncode == 0 and removed.stderr.startswith("options.model is no longer set in ")


def test_directories_are_named_from_where_they_are_set(cli: Cli, tmp_path: Path) -> None:
    for key, text in (("model_dirs", '["models", "~/more", "/all"]'), ("workspace", "project")):
        assert cli("config", "set", key, text, cwd=tmp_path).returncode == 0
    written = tomllib.loads(file(cli).read_text())
    assert written["model_dirs"] == [f"{tmp_path}/models", "~/more", "/all"]
    assert written["options"]["workspace"] == f"{tmp_path}/project"


def test_a_model_by_a_path_from_here_is_found_from_everywhere(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "one.gguf").touch()
    assert cli("config", "set", "model", "./one.gguf", cwd=tmp_path).returncode == 0
    assert tomllib.loads(file(cli).read_text())["options"]["model"] == str(tmp_path / "one.gguf")
    cli("config", "set", "draft", "none")
    assert tomllib.loads(file(cli).read_text())["options"]["draft"] == "none"
    cli("config", "set", "model", "--unset")


# --- the daemon ----------------------------------------------------------------------------------


def test_a_daemon_with_other_settings_is_told_of(cli: Cli) -> None:
    cli("daemon", "start")
    assert cli.json("config", "set", "k", "4")["daemon"] == "stale"
    assert "The daemon runs with other settings" in cli("config", "set", "k", "5").stderr
    assert "config.toml has changed" in cli("daemon", "status").stderr
    assert cli.json("config", "set", "k", "--unset")["daemon"] == "current"
    done = cli("daemon", "status")
    assert done.stderr == "" and done.returncode == 0
    file(cli).write_text("[engine")
    assert "config.toml is not valid" in cli("daemon", "status").stderr


@pytest.mark.slow
def test_settings_of_a_model_reach_the_engine(cli: Cli, tmp_path: Path) -> None:
    cli("config", "set", "max_tokens", "3")
    cli("config", "set", "n_ctx", "64", "-m", "stdlib-6m")
    asking = ("run", "--json", "--temperature", "0", "--raw")
    for where in ((), ("--no-daemon",)):
        for name in ("bundled", str(bundled_model("stdlib-6m"))):
            done = cli(*asking, *where, "-m", name, "def f(x):", cwd=tmp_path)
            assert '"completion_tokens":3,' in done.stdout, done.stderr
            long = cli(*asking, *where, "-m", name, "x = 1\n" * 200)
            assert '"context_exceeded"' in long.stdout and "64" in long.stdout
    wide = cli(*asking, "--no-daemon", "--opt", "n_ctx=2048", "x = 1\n" * 200, cwd=tmp_path)
    assert '"completion_tokens":3,' in wide.stdout


# --- edit ----------------------------------------------------------------------------------------


def editor(cli: Cli, folder: Path, script: str, *, variable: str = "EDITOR") -> Path:
    """A program that edits the file ``$1``; it writes down what it was given."""
    program = folder / "my editor"
    program.write_text(f'#!/bin/sh\ncp "$1" "{folder}/given"\n{script}\n')
    program.chmod(0o755)
    cli.environment[variable] = f"'{program}'"
    return folder / "given"


def test_the_file_is_edited(cli: Cli, tmp_path: Path) -> None:
    given = editor(cli, tmp_path, 'printf "# mine\\n[engine]\\nn_ctx = 64\\n" > "$1"')
    done = cli("config", "edit")
    assert done.returncode == 0 and f"{file(cli)} was changed and is valid." in done.stderr
    assert given.read_text() == CONFIG and not beside(cli)
    assert file(cli).read_text() == "# mine\n[engine]\nn_ctx = 64\n"


def test_visual_goes_before_editor_and_may_have_arguments(cli: Cli, tmp_path: Path) -> None:
    editor(cli, tmp_path, "exit 1")
    cli.environment["VISUAL"] = "sed -i s/threads/parallel/"
    assert cli("config", "edit").returncode == 0
    assert file(cli).read_text() == CONFIG.replace("threads", "parallel")


def test_who_begins_is_given_all_settings_as_comments(cli: Cli, tmp_path: Path) -> None:
    file(cli).unlink()
    given = editor(cli, tmp_path, "")
    done = cli("config", "edit")
    assert done.returncode == 0 and "Nothing has changed" in done.stderr
    assert not file(cli).exists() and not beside(cli)
    assert all(f"# {setting.name} =" in given.read_text() for setting in settings())
    assert tomllib.loads(given.read_text()) == {table: {} for table in TABLES}
    editor(cli, tmp_path, 'sed -i "s/^# n_ctx = 0 /n_ctx = 64 /" "$1"')
    assert cli("config", "edit").returncode == 0
    assert shown(cli)["engine.n_ctx"] == 64


def test_a_wrong_edit_is_kept_beside_and_never_used(cli: Cli, tmp_path: Path) -> None:
    editor(cli, tmp_path, 'printf "[engine]\\nnctx = 64\\n" > "$1"')
    done = cli("config", "edit")
    assert done.returncode == 2 and "did you mean 'engine.n_ctx'" in done.stderr
    (kept,) = beside(cli)
    assert str(kept) in done.stderr and kept.read_text() == "[engine]\nnctx = 64\n"
    assert file(cli).read_text() == CONFIG


@pytest.mark.parametrize(
    ("script", "told", "is_kept"),
    [
        ('printf "" > "$1"', "the edited file is empty", False),
        ('rm "$1"', "the edited file is empty", False),
        ("exit 3", "failed with exit code 3", False),
        ('echo "# more" >> "$1"; exit 3', "failed with exit code 3", True),
        ("kill -9 $$", "failed with exit code -9", False),
        ('printf "\\377" > "$1"', "is not valid TOML", True),
    ],
)
def test_an_edit_that_fails_changes_nothing(
    cli: Cli, tmp_path: Path, script: str, told: str, is_kept: bool
) -> None:
    editor(cli, tmp_path, script)
    done = cli("config", "edit")
    assert done.returncode and told in done.stderr, done.stderr
    assert file(cli).read_text() == CONFIG and len(beside(cli)) == is_kept


@pytest.mark.parametrize("command", ["/nowhere/editor", "'", "/"])
def test_an_editor_that_is_not_there_is_told(cli: Cli, command: str) -> None:
    cli.environment["EDITOR"] = command
    done = cli("config", "edit")
    assert done.returncode == 1 and "EDITOR=nano" in done.stderr and not beside(cli)
    cli.environment["VISUAL"] = command
    assert "Set $VISUAL" in cli("config", "edit").stderr
    del cli.environment["VISUAL"]
    cli.environment |= {"EDITOR": " ", "PATH": str(cli.home)}
    assert "no editor was found" in cli("config", "edit").stderr


def test_what_another_program_wrote_meanwhile_is_not_lost(cli: Cli, tmp_path: Path) -> None:
    editor(cli, tmp_path, f'echo "# more" >> "$1"; echo "# theirs" >> "{file(cli)}"')
    done = cli("config", "edit")
    assert done.returncode == 1 and "another program has changed" in done.stderr
    assert file(cli).read_text() == CONFIG + "# theirs\n"
    (kept,) = beside(cli)
    assert kept.read_text() == CONFIG + "# more\n"


def test_a_link_is_edited_through(cli: Cli, tmp_path: Path) -> None:
    real = tmp_path / "localspec.toml"
    os.rename(file(cli), real)
    file(cli).symlink_to(real)
    editor(cli, tmp_path, 'echo "# more" >> "$1"')
    assert cli("config", "edit").returncode == 0
    assert file(cli).is_symlink() and real.read_text() == CONFIG + "# more\n"


@pytest.mark.slow
def test_ctrl_c_in_the_editor_is_the_editors(cli: Cli, tmp_path: Path) -> None:
    editor(
        cli,
        tmp_path,
        'trap \'echo "# interrupted" >> "$1"; exit 0\' INT\necho ready\nwhile :; do sleep 0.05; done',
    )
    command, *arguments = (*cli.command, "config", "edit")
    terminal = pexpect.spawn(command, arguments, env=cli.environment, timeout=DEADLINE_S)
    terminal.expect("ready")
    terminal.sendintr()
    terminal.expect("was changed and is valid")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0 and file(cli).read_text() == CONFIG + "# interrupted\n"
