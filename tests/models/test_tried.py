"""Records of a pair from earlier runs, before it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec import home
from localspec.models.model import model_at
from localspec.models.records import (
    ENOUGH,
    PairRecord,
    PairResults,
    Record,
    learnt_dir,
    name_of_pair,
    read_pair_results,
)
from tests.models.ggufs import DRAFT, TARGET


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))


def note(target: Path, draft: Path, tried: PairResults) -> None:
    """Write down what an engine with these models would."""
    record = PairRecord()
    record.tried = tried
    Record(learnt_dir(), name_of_pair(model_at(target), model_at(draft)), record).write()


def test_what_was_seen_is_known_the_next_time() -> None:
    seen = PairResults(100, 80, 1.5)
    note(TARGET, DRAFT, seen)
    assert read_pair_results(model_at(TARGET), model_at(DRAFT)) == seen
    assert read_pair_results(model_at(DRAFT), model_at(TARGET)) == PairResults()
    (path,) = (home.cache_dir() / "learnt").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("tried", "loses", "wins"),
    [
        (PairResults(), False, False),
        (PairResults(ENOUGH - 1, 0, 1.0), False, False),
        (PairResults(ENOUGH - 1, 60, 1.5), False, False),
        (PairResults(ENOUGH, 60, None), False, False),
        (PairResults(ENOUGH, 60, 1.0), True, False),
        (PairResults(ENOUGH, 60, 1.01), False, True),
        (PairResults(1000, 19, None), True, False),
        (PairResults(1000, 20, None), False, False),
    ],
)
def test_when_a_pair_is_known_to_win_or_to_lose(tried: PairResults, loses: bool, wins: bool) -> None:
    assert (tried.loses, tried.wins) == (loses, wins)


def test_another_file_in_its_place_is_another_pair(tmp_path: Path) -> None:
    path = tmp_path / "draft.gguf"
    path.write_bytes(b"one")
    note(TARGET, path, PairResults(100, 80, 1.5))
    assert read_pair_results(model_at(TARGET), model_at(path)).wins
    path.write_bytes(b"another")
    assert read_pair_results(model_at(TARGET), model_at(path)) == PairResults()


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"drafted": 1, "accepted": 2, "gain": None},
        {"drafted": -1, "accepted": -1, "gain": None},
        {"drafted": "9", "accepted": 1, "gain": None},
        {"drafted": True, "accepted": False, "gain": None},
        {"drafted": 9, "accepted": 1, "gain": 0.5},
        {"drafted": 9, "accepted": 1, "gain": float("nan")},
        {"drafted": 9, "accepted": 1, "gain": []},
    ],
)
def test_a_record_with_nonsense_is_refused(state: dict[str, object]) -> None:
    record = PairRecord()
    with pytest.raises((ValueError, KeyError, TypeError)):
        record.restore(state)
    assert record.tried == PairResults()


def test_where_nothing_can_be_kept_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "file"))
    assert read_pair_results(model_at(TARGET), model_at(DRAFT)) == PairResults()
