"""Downloads that end half-way: killed, interrupted, cut off, out of disk. What came is kept."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.hub.conftest import REPO, Puller, model
from tests.hub.server import Hub
from tests.waiting import DEADLINE_S, until_sync

NAME = "tiny-7b-q4_k_m.gguf"
CONTENT = model()
HALF = len(CONTENT) // 2


@pytest.fixture
def half(hub: Hub) -> Hub:
    """A hub that sends half of the file, and then waits."""
    hub.add(REPO, {NAME: CONTENT})
    hub.pauses[NAME] = HALF
    return hub


def begin(cli: Puller) -> subprocess.Popen[str]:
    """A pull in a process of its own, of which some has come."""
    process = subprocess.Popen(
        (*cli.command, "models", "pull", REPO),
        env=cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until_sync(lambda: process.poll() is not None or bool(came(cli)), "some of the file is there")
    assert process.poll() is None, process.communicate()
    return process


def break_off(cli: Puller, hub: Hub) -> None:
    """A pull that is killed half-way; the next request to the hub waits for nothing."""
    process = begin(cli)
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    hub.go_on.set()


def came(cli: Puller) -> int:
    return sum(partial.stat().st_size for partial in cli.partials())


def goes_on(cli: Puller, hub: Hub, asked_before: int = 1) -> None:
    """The same command requests the rest alone, and then the file is complete."""
    hub.pauses.clear()
    kept = came(cli)
    assert 0 < kept <= HALF
    pulled = cli.json("models", "pull", REPO)
    assert Path(pulled["path"]).read_bytes() == CONTENT
    assert hub.ranges_of(CONTENT)[asked_before:] == [f"bytes={kept}-"]
    assert cli.partials() == []


def test_killed_half_way_and_gone_on_with(cli: Puller, half: Hub) -> None:
    break_off(cli, half)
    goes_on(cli, half)


def test_ctrl_c_keeps_what_came_and_says_how_to_go_on(cli: Puller, half: Hub) -> None:
    process = begin(cli)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert f"are kept; to resume: localspec models pull {REPO}:Q4_K_M" in said and "Traceback" not in said
    half.go_on.set()
    goes_on(cli, half)


@pytest.mark.slow
def test_on_a_terminal_there_is_a_bar(cli: Puller, half: Hub) -> None:
    command, *arguments = (*cli.command, "models", "pull", REPO)
    terminal = pexpect.spawn(
        command, arguments, env=cli.environment, timeout=DEADLINE_S, encoding="utf-8", dimensions=(24, 160)
    )
    terminal.expect(r"━.*1\.\d/3\.2 MB")
    half.go_on.set()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0


@pytest.mark.slow
def test_a_connection_that_is_cut_is_taken_up_again(cli: Puller, hub: Hub) -> None:
    hub.add(REPO, {NAME: CONTENT})
    hub.cuts[NAME] = [1_000_000, 500_000, 300]
    pulled = cli.json("models", "pull", REPO)
    assert Path(pulled["path"]).read_bytes() == CONTENT
    ranges = hub.ranges_of(CONTENT)
    assert len(ranges) == 4 and ranges[0] is None
    starts = [int(each.removeprefix("bytes=").rstrip("-")) for each in ranges[1:] if each]
    assert starts == sorted(starts) and 0 < starts[0] <= 1_000_000


@pytest.mark.slow
def test_a_connection_that_is_cut_for_ever_is_given_up(cli: Puller, hub: Hub) -> None:
    hub.add(REPO, {NAME: CONTENT})
    hub.cuts[NAME] = [HALF, *[0] * 20]
    done = cli("models", "pull", REPO, "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (69, "hub_unavailable")
    assert "the connection to http" in error["message"] and " was lost: " in error["message"]
    assert "the same command continues it" in error["remedy"]
    hub.cuts.clear()
    goes_on(cli, hub, asked_before=len(hub.ranges_of(CONTENT)))


@pytest.mark.slow
def test_a_server_without_ranges_sends_all_again(cli: Puller, half: Hub) -> None:
    break_off(cli, half)
    half.pauses.clear()
    half.ranges = False
    assert Path(cli.json("models", "pull", REPO)["path"]).read_bytes() == CONTENT


@pytest.mark.slow
def test_a_page_in_place_of_the_file_takes_nothing_of_what_is_here(cli: Puller, half: Hub) -> None:
    break_off(cli, half)
    half.pauses.clear()
    (partial,) = cli.partials()
    kept = partial.read_bytes()
    half.ranges, half.altered[NAME] = False, b"<html>Please log in</html>"
    done = cli("models", "pull", REPO, "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (69, "hub_unavailable") and NAME in error["message"]
    assert kept and partial.read_bytes() == kept
    half.ranges = True
    half.altered.clear()
    goes_on(cli, half, asked_before=len(half.ranges_of(CONTENT)))


@pytest.mark.slow
@pytest.mark.parametrize("left", [b"not what it should be", bytes(len(CONTENT) + 1)])
def test_what_was_left_and_is_wrong_does_not_stay(cli: Puller, half: Hub, left: bytes) -> None:
    break_off(cli, half)
    half.pauses.clear()
    (partial,) = cli.partials()
    partial.write_bytes(left)
    done = cli("models", "pull", REPO)
    if len(left) <= len(CONTENT):
        assert done.returncode == 1 and "its checksum is" in done.stderr and not cli.partials()
        done = cli("models", "pull", REPO)
    assert done.returncode == 0 and Path(done.stdout.strip()).read_bytes() == CONTENT


@pytest.mark.slow
def test_two_at_once_do_not_write_the_same_file(cli: Puller, half: Hub) -> None:
    first = begin(cli)
    done = cli("models", "pull", REPO, "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (75, "hub_busy") and NAME in error["message"]
    done = cli("models", "rm", REPO, "--yes", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (75, "hub_busy")
    half.go_on.set()
    said, told = first.communicate(timeout=DEADLINE_S)
    assert first.returncode == 0 and Path(said.strip()).read_bytes() == CONTENT, told


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of four megabytes, where mounting one is allowed."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk))
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if mounted.returncode:
        pytest.skip(f"mounting a small disk is not allowed here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(("umount", str(disk)), check=True)


def test_a_disk_that_is_too_small_is_told_before_it_begins(cli: Puller, half: Hub, small_disk: Path) -> None:
    half.add(REPO, {NAME: model(2_000_000)})
    cli.environment["HF_HUB_CACHE"] = str(small_disk / "hub")
    done = cli("models", "pull", REPO, "--json")
    assert json.loads(done.stdout)["error"]["code"] == "disk_full" and not list(small_disk.rglob("*.gguf"))


def test_a_disk_that_fills_up_on_the_way(cli: Puller, half: Hub, small_disk: Path) -> None:
    cli.environment["HF_HUB_CACHE"] = str(small_disk)
    cli.cache = small_disk
    process = begin(cli)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2_000_000))
    half.go_on.set()
    said, told = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1 and "disk" in told and "is full" in told, said + told
    assert "the same command continues it" in told
    ballast.unlink()
    half.pauses.clear()
    kept = came(cli)
    assert kept
    assert Path(cli.json("models", "pull", REPO)["path"]).read_bytes() == CONTENT
    assert half.ranges_of(CONTENT)[1:] == [f"bytes={kept}-"]


def test_a_limit_on_the_size_of_files_is_a_full_disk(cli: Puller, half: Hub) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (HALF // 2, HALF // 2))

    half.pauses.clear()
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
    goes_on(cli, half)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_is_told(cli: Puller, half: Hub) -> None:
    cli.cache.mkdir(parents=True)
    cli.cache.chmod(0o500)
    done = cli("models", "pull", REPO)
    cli.cache.chmod(0o700)
    assert done.returncode == 1 and "HF_HUB_CACHE" in done.stderr


def test_a_cache_that_is_a_file_is_told(cli: Puller, half: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cli.environment["HF_HUB_CACHE"] = str(tmp_path / "file")
    done = cli("models", "pull", REPO)
    assert done.returncode == 1 and "HF_HUB_CACHE" in done.stderr and "Traceback" not in done.stderr
