"""Downloads that end half-way: killed, interrupted, cut off, out of disk. The part is kept, and resumed."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tests.hub.conftest import Q4, REPO, Puller
from tests.hub.server import Hub
from tests.waiting import DEADLINE_S, until_sync

NAME = "tiny-7b-q4_k_m.gguf"
HALF = len(Q4) // 2


@pytest.fixture
def half(hub: Hub) -> Hub:
    """A hub that sends half of the file, and then waits."""
    hub.add(REPO, {NAME: Q4})
    hub.pauses[NAME] = HALF
    return hub


def begin(cli: Puller) -> subprocess.Popen[str]:
    """A pull in a process of its own, which has written a part of the file."""
    process = subprocess.Popen(
        (*cli.command, "models", "pull", REPO),
        env=cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until_sync(lambda: process.poll() is not None or came(cli) > 0, "a part of the file is there")
    assert process.poll() is None, process.communicate()
    return process


def came(cli: Puller) -> int:
    return sum(partial.stat().st_size for partial in cli.partials())


def assert_resumed(cli: Puller, hub: Hub, asked_before: int = 1) -> None:
    """The same command requests the rest alone, and then the file is complete."""
    hub.go_on.set()
    hub.pauses.clear()
    kept = came(cli)
    assert 0 < kept <= HALF
    pulled = cli.json("models", "pull", REPO)
    assert Path(pulled["path"]).read_bytes() == Q4
    assert hub.ranges_of(Q4)[asked_before:] == [f"bytes={kept}-"]
    assert cli.partials() == []


def test_a_killed_download_is_resumed(cli: Puller, half: Hub) -> None:
    process = begin(cli)
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    assert_resumed(cli, half)


def test_ctrl_c_keeps_the_part_and_says_how_to_resume(cli: Puller, half: Hub) -> None:
    process = begin(cli)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert f"are kept; to resume: localspec models pull {REPO}:Q4_K_M" in printed
    assert "Traceback" not in printed
    assert_resumed(cli, half)


@pytest.mark.slow
def test_two_at_once_do_not_write_the_same_file(cli: Puller, half: Hub) -> None:
    first = begin(cli)
    for command in (("pull", REPO), ("rm", REPO, "--yes")):
        done = cli("models", *command, "--json")
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, error["code"]) == (75, "hub_busy") and NAME in error["message"]
    half.go_on.set()
    path, errors = first.communicate(timeout=DEADLINE_S)
    assert first.returncode == 0 and Path(path.strip()).read_bytes() == Q4, errors


def test_a_disk_that_fills_up_is_an_error_and_the_part_is_kept(cli: Puller, half: Hub) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (HALF, HALF))

    half.go_on.set()
    done = subprocess.run(
        (*cli.command, "models", "pull", REPO, "--json"),
        env=cli.environment,
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE_S,
        preexec_fn=limited,
    )
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (1, "disk_full")
    assert "the same command continues it" in error["remedy"]
    assert_resumed(cli, half)


def test_a_cache_that_is_a_file_is_an_error(cli: Puller, half: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cli.environment["HF_HUB_CACHE"] = str(tmp_path / "file")
    done = cli("models", "pull", REPO)
    assert done.returncode == 1 and "HF_HUB_CACHE" in done.stderr and "Traceback" not in done.stderr
