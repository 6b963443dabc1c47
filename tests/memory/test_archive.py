"""Export and import: nothing lost, nothing believed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import InvalidOptions, TokenizerMismatch
from localspec.memory.archive import BATCH, Step, export_table, import_tables
from localspec.memory.files import TableFiles, name_of
from localspec.memory.hashing import hashes_in, hashes_of
from localspec.memory.table import NgramTable
from tests.memory.tables import FP, files_in, refuse, teach, words

TEXT = [(7 * i * i + 3 * i) % 1000 for i in range(200)]
SIZE = 1000


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    files = files_in(tmp_path / "a", start_bits=12)
    for name, workspace in (("user", None), ("w-1", "/some/where")):
        table = files.open_or_create(name, workspace)
        teach(table, TEXT, tag=77)
        found = table.find(hashes_of(TEXT[:50]))
        assert found is not None
        table.credit(found.slot, found.token, accepted=True)
        table.close()
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"".join(line for name in files.names() for line in export_table(files, name)))
    return path


def entries(table: NgramTable) -> set[tuple[int, ...]]:
    found = table.entries()
    return set(
        zip(
            *(part.tolist() for part in (found.hashes, found.tokens, found.orders, found.scores)), strict=True
        )
    )


def test_what_is_imported_is_what_was_exported(tmp_path: Path, exported: Path) -> None:
    there = files_in(tmp_path / "b", start_bits=12)
    read, kept = import_tables(there, exported, vocabulary_size=SIZE)
    before, after = files_in(tmp_path / "a").open("user"), there.open("user")
    assert before is not None and after is not None
    assert read == kept == len(exported.read_text().splitlines()) - 2
    other = there.open(name_of("/some/where"))
    assert other is not None and kept == len(entries(after)) + len(entries(other))
    assert entries(before) == entries(after)
    found = after.find(hashes_of(TEXT[:50]))
    assert found is not None and (found.token, found.score) == (TEXT[50], 4)
    assert there.sources("user").names() == ["#77"]


def test_importing_twice_changes_nothing(tmp_path: Path, exported: Path) -> None:
    files = files_in(tmp_path / "b", start_bits=12)
    import_tables(files, exported, vocabulary_size=SIZE)
    table = files.open("user")
    assert table is not None
    once = entries(table)
    import_tables(files, exported, vocabulary_size=SIZE)
    assert entries(table) == once and not table.is_superseded


def test_a_small_table_grows_while_it_is_filled(tmp_path: Path) -> None:
    head = {"type": "table", "format": "localspec-memory-1", "vocab_fp": FP, "workspace": None}
    lines: list[dict[str, Any]] = [head]
    chance = random.Random(1)  # evenly spaced hashes would all fall together under some salts
    hashes = [chance.getrandbits(64) for _ in range(1, 2 * BATCH)]
    lines += [gram(hash=f"{value:016x}") for value in hashes]
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    files = TableFiles(tmp_path / FP, refuse, start_bits=10, max_bits=14)
    read, kept = import_tables(files, path, vocabulary_size=2)
    table = files.open("user")
    assert table is not None and table.header.bits > 10
    assert read == 2 * BATCH - 1 and kept == len(entries(table))


def fill(folder: Path, *, count: int, workspace: str | None = None, seed: int = 1) -> NgramTable:
    """A table that grew to 2**16 entries while it learnt."""
    files = files_in(folder, start_bits=10, max_bits=16)
    table = files.open_or_create(name_of(workspace), workspace)
    chance = random.Random(seed)
    for at in range(0, count, 100):
        some = [chance.getrandbits(64) for _ in range(100)]
        table.insert(words(some), words([value % SIZE for value in some]), 3, 1 + at % 7)
        if table.is_crowded and files.may_grow(table):
            table = files.grow(table)
    return table


def export_to(path: Path, files: TableFiles) -> Path:
    path.write_bytes(b"".join(line for name in files.names() for line in export_table(files, name)))
    return path


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(25_000, marks=pytest.mark.slow),
        60_000,
        pytest.param(100_000, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_on_the_way_to_a_table_of_the_same_size(tmp_path: Path, count: int) -> None:
    """However full it is: each n-gram has the place it had."""
    before = fill(tmp_path / "a", count=count)
    path = export_to(tmp_path / "out", files_in(tmp_path / "a"))
    there = files_in(tmp_path / "b", start_bits=10, max_bits=16)
    read, kept = import_tables(there, path, vocabulary_size=SIZE)
    after = there.open("user")
    assert after is not None and after.header.bits == before.header.bits == 16
    assert read == kept > 20_000 and entries(after) == entries(before)


def test_an_export_that_does_not_tell_its_size_gets_a_table_that_need_not_grow(tmp_path: Path) -> None:
    fill(tmp_path / "a", count=20_000)
    head, *grams = export_to(tmp_path / "out", files_in(tmp_path / "a")).read_text().splitlines()
    told = {key: value for key, value in json.loads(head).items() if key not in ("bits", "epoch")}
    (tmp_path / "out").write_text("\n".join((json.dumps(told), *grams)))
    there = files_in(tmp_path / "b", start_bits=10, max_bits=16)
    read, kept = import_tables(there, tmp_path / "out", vocabulary_size=SIZE)
    table = there.open("user")
    assert table is not None and (table.header.bits, table.header.generation) == (16, 1)
    # Other n-grams share a bucket there: at 31 % of the room five seldom do.
    assert read == len(grams) and 0.98 * read < kept <= read


def test_a_table_that_is_there_grows_before_it_is_filled(tmp_path: Path) -> None:
    fill(tmp_path / "a", count=20_000)
    path = export_to(tmp_path / "out", files_in(tmp_path / "a"))
    before = fill(tmp_path / "b", count=500, seed=2)
    there = files_in(tmp_path / "b", start_bits=10, max_bits=16)
    read, kept = import_tables(there, path, vocabulary_size=SIZE)
    after = there.open("user")
    assert after is not None and before.is_superseded and after.epoch == before.epoch
    assert (after.header.bits, after.header.generation) == (16, 2) and 0.98 * read < kept
    assert len(entries(before) - entries(after)) < 40, "of 500, which the old size would have lost"


def test_a_table_grows_no_larger_than_it_may_whatever_the_export_says(tmp_path: Path) -> None:
    fill(tmp_path / "a", count=20_000)
    path = export_to(tmp_path / "out", files_in(tmp_path / "a"))
    for bits in (16, 64):
        path.write_text(path.read_text().replace('"bits":16', f'"bits":{bits}'))
        there = files_in(tmp_path / f"to {bits}", start_bits=10, max_bits=12)
        read, kept = import_tables(there, path, vocabulary_size=SIZE)
        table = there.open("user")
        assert table is not None and table.header.bits == 12 and kept == len(entries(table)) < read


def test_who_cannot_grow_a_table_now_fills_it_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has the lock, as one that grows a table of the same vocabulary has it."""
    fill(tmp_path / "a", count=20_000)
    path = export_to(tmp_path / "out", files_in(tmp_path / "a"))
    before = fill(tmp_path / "b", count=100, seed=2)
    there = files_in(tmp_path / "b", start_bits=10, max_bits=16)
    grow = TableFiles.grow

    def late(files: TableFiles, table: NgramTable, bits: int | None = None) -> NgramTable:
        with there.lock():
            return grow(files, table, bits)

    monkeypatch.setattr(TableFiles, "grow", late)
    importing = files_in(tmp_path / "b", start_bits=10, max_bits=16)
    read, kept = import_tables(importing, path, vocabulary_size=SIZE)
    assert not before.is_superseded and 0 < kept == len(entries(before)) <= 1024 < read


def test_it_is_told_how_far_an_import_is(tmp_path: Path, exported: Path) -> None:
    steps: list[Step] = []
    there = files_in(tmp_path / "b", start_bits=12)
    total, _ = import_tables(there, exported, vocabulary_size=SIZE, progress=steps.append)
    assert [step.what for step in steps] == ["checking"] * 2 + ["importing"] * 3
    assert all(0 <= step.done <= step.total for step in steps)
    first, half, last = steps[2:]
    assert first == Step("importing", 0, total) and 0 < half.done < last.done == last.total == total
    steps.clear()
    lines = list(export_table(there, "user", steps.append))
    assert steps == [Step("exporting", 0, len(lines) - 1)]


def test_what_has_no_room_is_not_counted_as_kept(tmp_path: Path) -> None:
    """4,000 n-grams for a table of 1,024; neighbours in their tokens and hashes are distinguished."""
    head = {"type": "table", "format": "localspec-memory-1", "vocab_fp": FP, "workspace": None}
    values = hashes_in(words([3 * i % SIZE for i in range(4000)]))[3]
    grams = (gram(hash=f"{value:016x}", token=i % SIZE) for i, value in enumerate(values.tolist()))
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in (head, *grams)) + "\n")
    files = TableFiles(tmp_path / FP, refuse, start_bits=10, max_bits=10)
    read, kept = import_tables(files, path, vocabulary_size=SIZE)
    table = files.open("user")
    assert table is not None
    held = {(value, token) for value, token, *_ in entries(table)}
    pairs = [(value, i % SIZE) for i, value in enumerate(values.tolist())]
    assert read == len(values) and kept == sum(pair in held for pair in pairs) < read


def gram(**changes: object) -> dict[str, object]:
    return {"type": "ngram", "hash": "0" * 16, "n": 3, "token": 1, "score": 3, "source": "run", **changes}


def head(**changes: object) -> dict[str, object]:
    return {"type": "table", "format": "localspec-memory-1", "vocab_fp": FP, "workspace": None, **changes}


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        "{}",
        "\xff",
        json.dumps(gram(hash="g" * 16)),
        json.dumps(gram(hash="0" * 15)),
        json.dumps(gram(token=SIZE)),
        json.dumps(gram(token=-1)),
        json.dumps(gram(token="1")),
        json.dumps(gram(n=0)),
        json.dumps(gram(n=256)),
        json.dumps(gram(score=0)),
        json.dumps(gram(score=256)),
        json.dumps(gram(more=1)),
        json.dumps({**gram(), "type": "other"}),
        json.dumps(gram(source="x" * 100_000)),
        json.dumps(gram())[:-5],
        json.dumps(head(bits=-1)),
        json.dumps(head(bits=65)),
        json.dumps(head(epoch="1")),
        json.dumps({"type": "table", "format": "localspec-memory-2", "vocab_fp": FP, "workspace": None}),
    ],
)
def test_one_bad_line_and_nothing_is_imported(tmp_path: Path, exported: Path, line: str) -> None:
    with exported.open("ab") as file:
        file.write(line.encode("latin-1") + b"\n")
    files = files_in(tmp_path / "b")
    with pytest.raises(InvalidOptions) as caught:
        import_tables(files, exported, vocabulary_size=SIZE)
    assert "line" in caught.value.message and files.names() == []


def test_another_vocabulary_is_refused(tmp_path: Path, exported: Path) -> None:
    files = TableFiles(tmp_path / "b" / ("f" * 16), refuse)
    with pytest.raises(TokenizerMismatch):
        import_tables(files, exported, vocabulary_size=SIZE)
    assert files.names() == []


@pytest.mark.parametrize("content", [b"", json.dumps(gram()).encode()], ids=["empty", "no head"])
def test_an_export_begins_with_its_table(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in").write_bytes(content)
    with pytest.raises(InvalidOptions):
        import_tables(files_in(tmp_path / "b"), tmp_path / "in", vocabulary_size=SIZE)


def test_a_file_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match="cannot be read"):
        import_tables(files_in(tmp_path), tmp_path / "nothing", vocabulary_size=SIZE)


def test_there_is_nothing_to_export_of_no_table(tmp_path: Path) -> None:
    assert list(export_table(files_in(tmp_path), "user")) == []
