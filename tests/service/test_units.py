"""The files of the services, as systemd and plists read them, and what they take from the environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from localspec import home
from localspec.service.service import ServiceJob, daemon_job, plist, unit

JOB = ServiceJob(
    ("/usr/bin/python3", "-m", "localspec.daemon", "--log"),
    {"LOCALSPEC_HOME": "/home/ada/local spec", "OLLAMA_MODELS": "/models/100%"},
    "/home/ada/local spec/state/daemon.log",
)
STRANGE = "a b  %h %% $HOME ${HOME} \"q\" 'p' back\\slash\\n \\x41 ;semi #hash é 日本語 🦊 <&>"
"""a directory's name"""


def words(text: str) -> list[str]:
    """The words of a line of a unit, as systemd reads the quoted ones."""
    quoted = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
    return [re.sub(r"\\(.)", r"\1", word).replace("%%", "%") for word in quoted]


GOLDEN = Path(__file__).parent / "golden"


def test_unit_and_agent_are_the_golden_ones() -> None:
    assert unit(JOB) == (GOLDEN / "localspec.service").read_text()
    assert plist(JOB) == (GOLDEN / "localspec.daemon.plist").read_text()


def strange_job(folder: Path) -> ServiceJob:
    """A job of a program that exists, in a directory with a strange name."""
    place = folder / STRANGE
    place.mkdir()
    program = place / "python"
    program.symlink_to(sys.executable)
    return ServiceJob((str(program), "-c", STRANGE), {"LOCALSPEC_HOME": str(place)}, str(place / "log"))


def test_a_unit_gives_back_what_was_put_in(tmp_path: Path) -> None:
    job = strange_job(tmp_path)
    (start,) = re.findall(r"^ExecStart=:(.*)$", unit(job), re.M)
    assert tuple(words(start)) == job.command
    (variable,) = re.findall(r"^Environment=(.*)$", unit(job), re.M)
    assert words(variable) == [f"LOCALSPEC_HOME={job.environment['LOCALSPEC_HOME']}"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("strange", [False, True], ids=["plain", "strange paths"])
def test_systemd_finds_nothing_wrong(tmp_path: Path, strange: bool) -> None:
    job = strange_job(tmp_path) if strange else JOB
    job = job._replace(command=(sys.executable, *job.command[1:]))
    verified = verify(tmp_path, unit(job))
    assert (verified.returncode, verified.stderr) == (0, "")


def verify(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    file = folder / "localspec.service"
    file.write_text(text, encoding="utf-8")
    (folder / "run").mkdir(mode=0o700)
    return subprocess.run(
        ("systemd-analyze", "--user", "--man=no", "verify", str(file)),
        capture_output=True,
        text=True,
        env={"XDG_RUNTIME_DIR": str(folder / "run"), "HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )


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
