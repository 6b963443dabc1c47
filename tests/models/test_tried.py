"""Records of a pair from earlier runs, before it is loaded."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from localspec import home
from localspec.models.model import model_at
from localspec.models.record import (
    ENOUGH,
    Failure,
    Record,
    Tried,
    TriedRecord,
    known_of,
    learnt_dir,
    name_of_pair,
    note_failure,
)
from tests.models import directories
from tests.models.ggufs import DRAFT, TARGET


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))


def note(target: Path, draft: Path, tried: Tried) -> None:
    """Write down what an engine with these models would."""
    record = TriedRecord()
    record.tried = tried
    Record(learnt_dir(), name_of_pair(model_at(target), model_at(draft)), record).write()


def test_what_was_seen_is_known_the_next_time() -> None:
    seen = Tried(100, 80, 1.5)
    note(TARGET, DRAFT, seen)
    assert known_of(model_at(TARGET), model_at(DRAFT)) == seen
    assert known_of(model_at(DRAFT), model_at(TARGET)) == Tried()
    (path,) = (home.cache_dir() / "learnt").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("tried", "loses", "wins"),
    [
        (Tried(), False, False),
        (Tried(ENOUGH - 1, 0, 1.0), False, False),
        (Tried(ENOUGH - 1, 60, 1.5), False, False),
        (Tried(ENOUGH, 60, None), False, False),
        (Tried(ENOUGH, 60, 1.0), True, False),
        (Tried(ENOUGH, 60, 1.01), False, True),
        (Tried(1000, 19, None), True, False),
        (Tried(1000, 20, None), False, False),
    ],
)
def test_when_a_pair_is_known_to_win_or_to_lose(tried: Tried, loses: bool, wins: bool) -> None:
    assert (tried.loses, tried.wins) == (loses, wins)


def test_another_file_in_its_place_is_another_pair(tmp_path: Path) -> None:
    path = tmp_path / "draft.gguf"
    path.write_bytes(b"one")
    note(TARGET, path, Tried(100, 80, 1.5))
    assert known_of(model_at(TARGET), model_at(path)).wins
    path.write_bytes(b"another")
    assert known_of(model_at(TARGET), model_at(path)) == Tried()


def test_a_failure_is_noted_beside_what_was_seen_before() -> None:
    note(TARGET, DRAFT, Tried(100, 80, 1.5))
    before = time.time()
    note_failure(model_at(TARGET), model_at(DRAFT), "a tensor is missing")
    tried = known_of(model_at(TARGET), model_at(DRAFT))
    assert tried.failure is not None and tried._replace(failure=None) == Tried(100, 80, 1.5)
    assert tried.failure.why == "a tensor is missing" and before <= tried.failure.at <= time.time()


def failed(target: Path, draft: Path) -> bool:
    return known_of(model_at(target), model_at(draft)).failure is not None


@pytest.mark.parametrize(("seconds", "holds"), [(-60, False), (60, True), (86_300, True), (86_500, False)])
def test_a_failure_is_forgotten_after_a_day(tmp_path: Path, seconds: float, holds: bool) -> None:
    target, draft = (Path(shutil.copy(path, tmp_path)) for path in (TARGET, DRAFT))
    for path in (target, draft):
        os.utime(path, (0, 0))
    note(target, draft, Tried(100, 80, 1.5, Failure("there was no memory", time.time() - seconds)))
    assert failed(target, draft) == holds and known_of(model_at(target), model_at(draft)).drafted == 100


@pytest.mark.parametrize("which", ["target", "draft"])
def test_a_failure_is_forgotten_when_a_file_changes(tmp_path: Path, which: str) -> None:
    target, draft = tmp_path / "target", tmp_path / "draft.gguf"
    directories.write(tmp_path, name="target")
    draft.write_bytes(b"one")
    changed = {"target": target / "config.json", "draft": draft}[which]
    note_failure(model_at(target), model_at(draft), "a tensor is missing")
    assert failed(target, draft)
    os.utime(changed, (time.time() + 60,) * 2)
    assert not failed(target, draft)


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"drafted": 1, "accepted": 2, "gain": None, "failure": None},
        {"drafted": -1, "accepted": -1, "gain": None, "failure": None},
        {"drafted": "9", "accepted": 1, "gain": None, "failure": None},
        {"drafted": True, "accepted": False, "gain": None, "failure": None},
        {"drafted": 9, "accepted": 1, "gain": 0.5, "failure": None},
        {"drafted": 9, "accepted": 1, "gain": float("nan"), "failure": None},
        {"drafted": 9, "accepted": 1, "gain": [], "failure": None},
        {"drafted": 9, "accepted": 1, "gain": 1.5, "failure": "x"},
        {"drafted": 9, "accepted": 1, "gain": 1.5, "failure": ["why", "when"]},
    ],
)
def test_a_record_with_nonsense_is_refused(state: dict[str, object]) -> None:
    record = TriedRecord()
    with pytest.raises((ValueError, KeyError, TypeError)):
        record.restore(state)
    assert record.tried == Tried()


def test_where_nothing_can_be_kept_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "file"))
    note_failure(model_at(TARGET), model_at(DRAFT), "a tensor is missing")
    assert known_of(model_at(TARGET), model_at(DRAFT)) == Tried()
