"""The files of the services: as they are meant to be, and as systemd and plists read them."""

from __future__ import annotations

import plistlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.service.service import Job, plist, unit
from tests.service.jobs import JOB, STRANGE, words

GOLDEN = Path(__file__).parent / "golden"


def test_the_unit_is_the_golden_one() -> None:
    assert unit(JOB) == (GOLDEN / "localspec.service").read_text()


def test_the_agent_is_the_golden_one() -> None:
    assert plist(JOB) == (GOLDEN / "localspec.daemon.plist").read_text()


def strange_job(folder: Path) -> Job:
    """A job of a program that exists, in a directory with a strange name."""
    place = folder / STRANGE
    place.mkdir()
    program = place / "python"
    program.symlink_to(sys.executable)
    return Job((str(program), "-c", STRANGE), {"LOCALSPEC_HOME": str(place)}, str(place / "log"))


def test_a_plist_gives_back_what_was_put_in(tmp_path: Path) -> None:
    job = strange_job(tmp_path)
    read = plistlib.loads(plist(job).encode())
    assert tuple(read["ProgramArguments"]) == job.command
    assert read["EnvironmentVariables"] == job.environment
    assert read["StandardErrorPath"] == read["StandardOutPath"] == job.log
    assert read["KeepAlive"] == {"SuccessfulExit": False}


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


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_names_what_it_does_not_know(tmp_path: Path) -> None:
    text = unit(JOB._replace(command=("/no/such/program",))).replace("KillMode", "KilMode")
    said = verify(tmp_path, text).stderr
    assert "/no/such/program" in said and "KilMode" in said


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
