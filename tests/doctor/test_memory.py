"""Lines on the machine's memory and on the n-gram memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localspec.doctor import memory
from localspec.memory.files import TableFiles
from localspec.memory.header import HEADER_BYTES
from localspec.models.fit import Needs
from localspec.units import GB, MB


@pytest.mark.parametrize(("available", "level"), [(8 * GB, "ok"), (100 * MB, "warning")])
def test_little_memory_is_a_warning(available: int, level: str) -> None:
    found = memory.machine(available, 16 * GB)
    assert found.level == level and "of 16.0 GB" in found.sentence


@pytest.mark.parametrize(("room", "level"), [(6 * GB, "warning"), (7 * GB, "ok")])
def test_a_pair_that_does_not_fit_is_a_warning(room: int, level: str) -> None:
    found = memory.machine(6 * GB, 16 * GB, "a with b", Needs(5 * GB, GB, GB), room)
    assert found.level == level and "a with b" in found.sentence and "7.0 GB" in found.sentence
    assert (found.remedy is None) == (level == "ok")


@pytest.mark.parametrize(("n_ctx", "shrinks"), [(None, True), (8192, True), (2048, False)])
def test_a_context_is_only_made_smaller_if_it_is_large(n_ctx: int | None, shrinks: bool) -> None:
    found = memory.machine(6 * GB, 16 * GB, "a", Needs(5 * GB, GB, GB), 6 * GB, n_ctx)
    assert found.remedy is not None and ("set n_ctx 2048" in found.remedy) == shrinks


def table(folder: Path) -> Path:
    files = TableFiles(folder / "0123456789abcdef", print, start_bits=4)
    files.folder.mkdir(parents=True)
    made = files.open_or_create("user", None)
    made.close()
    return made.path


def test_nothing_is_remembered_yet_or_ever(tmp_path: Path) -> None:
    (found,) = memory.ngrams(tmp_path / "memory", True)
    assert found.level == "ok" and "yet" in found.sentence
    (found,) = memory.ngrams(tmp_path / "memory", False)
    assert found.level == "ok" and "is off" in found.sentence


def test_sound_tables_are_counted(tmp_path: Path) -> None:
    table(tmp_path)
    (found,) = memory.ngrams(tmp_path, True)
    assert found.level == "ok" and found.sentence.startswith("1 table of n-grams, ")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path: path.write_bytes(b""), "the file is too short"),
        (lambda path: path.write_bytes(bytes(2 * HEADER_BYTES)), "the file is not an n-gram table"),
        (lambda path: os.truncate(path, HEADER_BYTES), "the file's size is not that of its header"),
        (lambda path: (path.unlink(), path.mkdir()), "Is a directory"),
    ],
)
def test_a_table_that_cannot_be_used(tmp_path: Path, spoil: object, told: str) -> None:
    path = table(tmp_path)
    assert callable(spoil)
    spoil(path)
    (found,) = memory.ngrams(tmp_path, True)
    assert found.level == "warning" and told in found.sentence and str(path) in str(found.remedy)


def test_what_was_set_aside_is_told(tmp_path: Path) -> None:
    path = table(tmp_path)
    aside = path.with_name(f"{path.name}.quarantine-1")
    aside.touch()
    (found,) = memory.ngrams(tmp_path, True)
    assert found.level == "warning" and str(found.remedy).endswith(f"`rm {aside}`")


def test_a_file_in_its_place_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "memory").touch()
    (found,) = memory.ngrams(tmp_path / "memory", True)
    assert found.level == "problem" and str(found.remedy).endswith(f"`rm {tmp_path}/memory`")
