"""Lines on the chats; for a file that a daemon has set aside see tests/daemon/test_history.py."""

from __future__ import annotations

from pathlib import Path

from localspec.doctor.finding import Finding
from localspec.doctor.history import history


def test_none_are_kept_before_the_first(tmp_path: Path) -> None:
    nowhere = tmp_path / "none" / "history.sqlite"
    assert history(nowhere) == Finding("history", "ok", "No chats are stored yet.")


def test_of_many_that_were_set_aside_some_are_told_and_all_are_removed(tmp_path: Path) -> None:
    for number in range(5):
        for suffix in ("", "-wal", "-shm"):
            (tmp_path / f"history.sqlite.damaged-{number}{suffix}").touch()
    found = history(tmp_path / "history.sqlite")
    assert "damaged-2, and 2 more; a new one was started" in found.sentence
    assert found.remedy is not None and found.remedy.count("history.sqlite.damaged-") == 5
    assert "damaged-4*" in found.remedy and "-wal" not in found.sentence + found.remedy
