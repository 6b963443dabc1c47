"""Lines on the disk and the service, and checks that fail."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from localspec.doctor.examination import disk, finding_of, guarded, room, service
from localspec.doctor.finding import Finding
from localspec.errors import InvalidOptions
from localspec.service.service import Status


def test_an_exception_is_a_problem_beside_earlier_findings() -> None:
    well = Finding("x", "ok", "Well.")

    def refused() -> Iterator[Finding]:
        yield well
        raise InvalidOptions("there is no key", "Mend it.")

    def broken(error: Exception) -> Iterator[Finding]:
        yield well
        raise error

    assert guarded("x", refused) == [well, Finding("x", "problem", "There is no key.", "Mend it.")]
    for error, remedy in ((ZeroDivisionError("oh"), "Report this sentence."), (OSError("oh"), None)):
        first, second = guarded("x", partial(broken, error))
        assert first == well and (second.level, second.remedy) == ("problem", remedy)
        assert f"{type(error).__name__}: oh" in second.sentence


def test_the_disk_of_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (found,) = disk()
    assert f"free for {tmp_path}/data, {tmp_path}/cache" in found.sentence


def test_a_directory_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "data").write_text("no directory")
    found, _ = disk()
    assert found.level == "problem" and f"{tmp_path}/data" in found.sentence
    assert "LOCALSPEC_HOME" in str(found.remedy)


@pytest.mark.parametrize(
    ("free", "level", "sentence"),
    [
        (5 * 10**9, "ok", "5.0 GB are free for it."),
        (100 * 10**6, "warning", "100.0 MB are free for it."),
        (0, "problem", "0.0 kB are free for it."),
    ],
)
def test_little_room_is_a_warning_and_none_a_problem(free: int, level: str, sentence: str) -> None:
    found = room(free, "it")
    assert (found.level, found.sentence) == (level, sentence)
    assert (found.remedy is None) == (level == "ok")


WELL = Status(
    manager="systemd",
    file="/u/localspec.service",
    installed=True,
    current=True,
    other_home=False,
    state="active (running)",
    pid=7,
    log="/l",
)


@pytest.mark.parametrize(
    ("otherwise", "level", "sentence", "remedy"),
    [
        ({}, "ok", "starts the daemon at login; now it is active (running).", "None"),
        ({"state": "inactive (dead)", "pid": None}, "ok", "inactive", "None"),
        ({"installed": False, "current": False}, "ok", "No service is installed for this home", "None"),
        ({"current": False}, "warning", "another localspec", "`localspec service install`"),
        ({"other_home": True, "current": False}, "ok", "for this home", "None"),
        ({"state": "failed (failed), last ended with exit-code"}, "problem", "exit-code", "daemon logs`"),
    ],
)
def test_a_service(otherwise: dict[str, Any], level: str, sentence: str, remedy: str) -> None:
    found = finding_of(replace(WELL, **otherwise))
    assert found.level == level and sentence in found.sentence and remedy in str(found.remedy)


def test_without_a_manager_nothing_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = service()
    assert found.level == "ok" and "does not answer" in found.sentence
    assert "Commands that need the daemon start it." in found.sentence
