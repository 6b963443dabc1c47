"""The environment that a service takes from the shell that installs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec import home
from localspec.errors import InvalidOptions
from localspec.service.service import Job, daemon_job, home_of, plist, unit


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


@pytest.mark.parametrize("render", [unit, plist])
@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"LOCALSPEC_HOME": "/a b", "HF_HOME": "/a", "XDG_DATA_HOME": "/b"}, "LOCALSPEC_HOME=/a b"),
        ({"XDG_STATE_HOME": "/c", "XDG_DATA_HOME": "/b"}, "XDG_DATA_HOME=/b, XDG_STATE_HOME=/c"),
        ({"PYTHONPATH": "/a"}, "the default directories"),
    ],
)
def test_a_home_is_what_says_where_the_files_are(
    render: Callable[[Job], str], environment: dict[str, str], place: str
) -> None:
    assert home_of(render(Job(("python",), environment, "/log"))) == place


@pytest.mark.parametrize("value", ["/a\nb", "/a\x07", "/\udcff", "/a\x7f"])
def test_what_no_file_of_a_service_can_hold_is_refused(value: str) -> None:
    with pytest.raises(InvalidOptions, match="cannot be written to a service's file"):
        daemon_job({"LOCALSPEC_HOME": value})


def test_what_only_looks_strange_is_carried() -> None:
    assert daemon_job({"LOCALSPEC_HOME": "/a\u00a0b\u3000c\u200b"}).environment["LOCALSPEC_HOME"]
