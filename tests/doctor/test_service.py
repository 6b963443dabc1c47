"""Lines on the service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from localspec.doctor import service
from localspec.service.service import Status

WELL = Status(
    manager="systemd",
    file="/u/localspec.service",
    installed=True,
    current=True,
    other_home=None,
    enabled=True,
    state="active (running)",
    pid=7,
    log="/l",
)


@pytest.mark.parametrize(
    ("otherwise", "level", "told", "remedy"),
    [
        ({}, "ok", "starts the daemon at login; now it is active (running).", "None"),
        ({"state": "inactive (dead)", "pid": None}, "ok", "inactive", "None"),
        ({"installed": False, "current": False}, "ok", "No service is installed in systemd", "None"),
        ({"current": False}, "warning", "another localspec", "`localspec service install`"),
        ({"other_home": "LOCALSPEC_HOME=/h", "current": False}, "ok", "LOCALSPEC_HOME=/h", "None"),
        ({"enabled": False}, "warning", "not started at login", "`localspec service install`"),
        ({"state": "failed (failed), last ended with exit-code"}, "problem", "exit-code", "service logs`"),
    ],
)
def test_a_service(otherwise: dict[str, Any], level: str, told: str, remedy: str) -> None:
    found = service.finding_of(replace(WELL, **otherwise))
    assert found.level == level and told in found.sentence and remedy in str(found.remedy)


def test_one_that_ends_with_its_session_is_told() -> None:
    found = service.finding_of(WELL, ends=True)
    assert found.level == "ok" and "loginctl enable-linger" in found.sentence


@pytest.mark.parametrize(("linger", "ends"), [("echo no", True), ("echo yes", False), ("exit 1", False)])
def test_whether_it_lingers_is_asked_where_somebody_comes_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linger: str, ends: bool
) -> None:
    program = tmp_path / "loginctl"
    program.write_text(f"#!/bin/sh\n{linger}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert service.ends_with_session({"SSH_CONNECTION": "a"}, "linux") == ends
    assert not service.ends_with_session({}, "linux")
    assert not service.ends_with_session({"SSH_CONNECTION": "a"}, "darwin")


def test_without_a_manager_nothing_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = service.service()
    assert found.level == "ok" and "does not answer" in found.sentence
    assert "Commands that need the daemon start it." in found.sentence
