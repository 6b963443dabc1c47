"""Downloads that end half-way: killed, interrupted, cut off, out of disk. The part is kept, and resumed."""

from __future__ import annotations

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


def begin(cli: Puller, most: int = resource.RLIM_INFINITY) -> subprocess.Popen[str]:
    """A pull in a process of its own, whose files have at most so many bytes; a part of one is written."""
    process = subprocess.Popen(
        (*cli.command, "models", "pull", REPO),
        env=cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY)),
    )
    until_sync(lambda: process.poll() is not None or came(cli) > 0, "a part of the file is there")
    return process


def came(cli: Puller) -> int:
    return sum(partial.stat().st_size for partial in cli.partials())


@pytest.mark.parametrize(
    ("sent", "most", "code", "text"),
    [
        (signal.SIGKILL, resource.RLIM_INFINITY, -9, ""),
        (signal.SIGINT, resource.RLIM_INFINITY, 130, "are kept; the same command resumes."),
        (None, HALF, 1, "the disk of the hub's cache is full"),
    ],
    ids=["killed", "Ctrl-C", "full disk"],
)
def test_the_part_of_a_download_is_kept_and_the_same_command_requests_the_rest(
    cli: Puller, half: Hub, sent: signal.Signals | None, most: int, code: int, text: str
) -> None:
    process = begin(cli, most)
    if sent is None:
        half.go_on.set()
    else:
        process.send_signal(sent)
    _, printed = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code and text in printed and "Traceback" not in printed
    assert sent is not None or "the same command continues it" in printed
    half.go_on.set()
    half.pauses.clear()
    kept = came(cli)
    assert 0 < kept <= HALF
    assert cli.pull(REPO).read_bytes() == Q4
    assert half.ranges_of(Q4)[1:] == [f"bytes={kept}-"] and cli.partials() == []


@pytest.mark.slow
def test_two_at_once_do_not_write_the_same_file(cli: Puller, half: Hub) -> None:
    first = begin(cli)
    for command in (("pull", REPO), ("rm", REPO, "--yes")):
        error = cli.refusal(*command)
        assert (error["exit"], error["code"]) == (75, "hub_busy") and NAME in error["message"]
    half.go_on.set()
    path, errors = first.communicate(timeout=DEADLINE_S)
    assert first.returncode == 0 and Path(path.strip()).read_bytes() == Q4, errors


def test_a_cache_that_is_a_file_is_an_error(cli: Puller, half: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cli.environment["HF_HUB_CACHE"] = str(tmp_path / "file")
    assert "HF_HUB_CACHE" in cli.refusal("pull", REPO)["remedy"]
