"""The file by which clients find a daemon: deleted, replaced, or only out of reach for a while."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from localspec.daemon.announcement import Announcement
from localspec.protocol.messages import Discovery


@pytest.fixture
def announcement(tmp_path: Path) -> Announcement:
    socket = tmp_path / "daemon.sock"
    socket.touch()
    found = Discovery(pid=os.getpid(), version="0", protocol=1, socket=str(socket), url=None, token_file="")
    made = Announcement(found, tmp_path / "run" / "daemon.json", (tmp_path,))
    made.make()
    return made


@pytest.fixture(autouse=True)
def directory(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()


def test_a_process_without_descriptors_has_lost_nothing(announcement: Announcement) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        lost = announcement._lost()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert lost is None
    announcement.withdraw()


@pytest.mark.parametrize("name", ["daemon.sock", "run"])
def test_what_was_moved_away_is_lost(announcement: Announcement, tmp_path: Path, name: str) -> None:
    (tmp_path / name).rename(tmp_path / "moved")
    assert announcement._lost() == tmp_path / name
    announcement.withdraw()


def test_the_file_of_another_daemon_is_no_announcement_of_this_one(
    announcement: Announcement, tmp_path: Path
) -> None:
    path = tmp_path / "run" / "daemon.json"
    path.write_text("{}")
    assert announcement._lost() == path
    announcement.withdraw()
    assert path.exists()
