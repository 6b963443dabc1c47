"""Export and import: nothing lost, nothing believed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import InvalidOptions, TokenizerMismatch
from localspec.memory.archive import BATCH, export_table, import_tables
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
    assert read == len(exported.read_text().splitlines()) - 2 and before.epoch != after.epoch
    other = there.open(name_of("/some/where"))
    assert other is not None and kept == len(entries(after)) + len(entries(other))
    # Two tables of the same text; which few entries were evicted depends on where each puts them.
    assert len(entries(before) - entries(after)) < 0.02 * len(entries(before))
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
    assert len(entries(table) ^ once) < 0.02 * len(once)


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


def test_what_has_no_room_is_not_counted_as_kept(tmp_path: Path) -> None:
    """4,000 n-grams for a table of 1,024; neighbours in their tokens and hashes are told apart."""
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
