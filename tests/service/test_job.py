"""The environment that a service takes from the shell that installs it."""

from __future__ import annotations

import ast
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from localspec import home
from localspec.errors import InvalidOptions
from localspec.service.job import as_of, daemon_job, home_of


def test_the_daemon_is_that_of_this_python() -> None:
    assert daemon_job({}).command == (sys.executable, "-P", "-m", "localspec.daemon", "--log")
    assert daemon_job({}).log == str(home.log_path())


def test_what_says_where_files_are_is_carried_and_nothing_else(tmp_path: Path) -> None:
    job = daemon_job(
        {
            "LOCALSPEC_HOME": "~/ls",
            "HF_HOME": "cache",
            "PYTHONPATH": os.pathsep.join(("/a", "b", "")),
            "CUDA_VISIBLE_DEVICES": "1,2",
            "XDG_DATA_HOME": "",
            "HF_TOKEN": "secret",
            "LOCALSPEC_MODEL": "that of one command",
            "LANG": "C",
        }
    )
    assert job.environment == {
        "LOCALSPEC_HOME": str(Path.home() / "ls"),
        "HF_HOME": str(Path.cwd() / "cache"),
        "PYTHONPATH": os.pathsep.join(("/a", str(Path.cwd() / "b"))),
        "CUDA_VISIBLE_DEVICES": "1,2",
    }


def test_what_every_login_sets_is_carried_where_it_was_set_by_hand() -> None:
    usual = {"HOME": pwd.getpwuid(os.getuid()).pw_dir, "XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}"}
    other = {"HOME": "/home/ada", "XDG_RUNTIME_DIR": "/run/ada"}
    assert daemon_job(usual).environment == {}
    assert daemon_job(other).environment == other
    # Its own directory decides where the socket is.
    of_its_own = {"HOME": "/home/ada", "LOCALSPEC_HOME": "/ls"}
    assert daemon_job(other | of_its_own).environment == of_its_own


def test_a_home_is_what_says_where_the_files_are(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    real = {"LOCALSPEC_HOME": str(tmp_path / "real")}
    assert home_of({"LOCALSPEC_HOME": str(tmp_path / "link"), "HF_HOME": "/a", "XDG_DATA_HOME": "/b"}) == real
    assert home_of({"HF_HOME": "/a", "XDG_DATA_HOME": "/b"}) == {"XDG_DATA_HOME": "/b"}
    assert home_of({"PYTHONPATH": "/a"}) == {}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [({}, {"LOCALSPEC_HOME": "/a"}), ({"LOCALSPEC_HOME": "/a 'b'"}, {}), ({"XDG_DATA_HOME": "/d"}, {})],
)
def test_a_command_of_their_home(theirs: dict[str, str], ours: dict[str, str]) -> None:
    command = f"{as_of(theirs, ours)} {sys.executable} -c 'import os; print(dict(os.environ))'"
    environment = {"PATH": os.environ["PATH"], **ours}
    said = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=True)
    names = ("LOCALSPEC_HOME", "XDG_DATA_HOME")
    assert {name: value for name, value in ast.literal_eval(said.stdout).items() if name in names} == theirs


@pytest.mark.parametrize("value", ["/a\nb", "/a\x07", "/\udcff", "/a\x7f"])
def test_what_no_file_of_a_service_can_hold_is_refused(value: str) -> None:
    with pytest.raises(InvalidOptions, match="cannot be written to a service's file"):
        daemon_job({"LOCALSPEC_HOME": value})


def test_what_only_looks_strange_is_carried() -> None:
    assert daemon_job({"LOCALSPEC_HOME": "/a\u00a0b\u3000c\u200b"}).environment["LOCALSPEC_HOME"]
