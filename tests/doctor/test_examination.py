"""Lines on the disk, and checks that fail."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from localspec.doctor import Finding
from localspec.doctor.examination import disk, room, run_check
from localspec.errors import InvalidOptions


def test_an_exception_is_a_problem_beside_earlier_findings() -> None:
    well = Finding("x", "ok", "Well.")

    def refused() -> Iterator[Finding]:
        yield well
        raise InvalidOptions("there is no key", "Mend it.")

    def broken(error: Exception) -> Iterator[Finding]:
        yield well
        raise error

    assert run_check("x", refused) == [well, Finding("x", "problem", "There is no key.", "Mend it.")]
    for error, remedy in ((ZeroDivisionError("oh"), "Report this sentence."), (OSError("oh"), None)):
        first, second = run_check("x", partial(broken, error))
        assert first == well and (second.level, second.remedy) == ("problem", remedy)
        assert f"{type(error).__name__}: oh" in second.sentence


def test_the_disk_of_a_home_and_a_directory_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (found,) = disk()
    assert f"free for {tmp_path}/data, {tmp_path}/cache" in found.sentence
    (tmp_path / "data").rmdir()
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
