"""Export and import of tables as lines of JSON."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from localspec.errors import InvalidOptions, TokenizerMismatch
from localspec.memory.files import TableFiles, name_of
from localspec.memory.hashing import Words, salt_of
from localspec.memory.sources import tag_of
from localspec.memory.table import ORDER_AT, NgramTable
from localspec.protocol.bounds import Place

BATCH = 1024
MAX_LINE = 64 * 1024
HEX = "^[0-9a-f]{16}$"


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="table"):
    """The line before the n-grams of one table."""

    format: Literal["localspec-memory-1"] = "localspec-memory-1"
    vocab_fp: str
    workspace: Place | None
    """None: the user-wide table"""
    bits: Annotated[int, Meta(ge=0, le=64)] = 0
    """log2 of the table's capacity in entries; 0: unknown"""
    epoch: Annotated[str, Meta(pattern=HEX)] | None = None
    """the table's epoch, which selects the buckets: in a table with the same one each entry has room"""


class Gram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ngram"):
    """One n-gram: the ``token`` that followed the ``n`` tokens of this ``hash``."""

    hash: Annotated[str, Meta(pattern=HEX)]
    n: Annotated[int, Meta(ge=1, le=255)]
    token: Annotated[int, Meta(ge=0)]
    score: Annotated[int, Meta(ge=1, le=255)]
    source: str


class Imported(NamedTuple):
    """Numbers of n-grams in a file and kept by the tables; a table is a cache, and full buckets drop some."""

    read: int
    kept: int


class Step(NamedTuple):
    """Progress of an export or import: ``done`` of ``total`` bytes when checking, else n-grams."""

    what: Literal["checking", "importing", "exporting"]
    done: int
    total: int


Progress = Callable[[Step], None]


class _Wanted(NamedTuple):
    """The content of a file for one table."""

    head: Head
    marks: Words


def export_table(files: TableFiles, name: str, progress: Progress = lambda step: None) -> Iterator[bytes]:
    """A table's lines, newlines included; none if there is no such table. Raises :class:`StorageError`."""
    table = files.open(name)
    if table is None:
        return
    entries, header, epoch = table.entries(), table.header, table.epoch
    table.close()
    names = {tag_of(source): source for source in files.sources(name).names()}
    encode = msgspec.json.Encoder().encode
    place = header.workspace or None
    head = Head(vocab_fp=header.vocab_fp, workspace=place, bits=header.bits, epoch=f"{epoch:016x}")
    yield encode(head) + b"\n"
    rows = zip(*(part.tolist() for part in entries), strict=True)
    for number, (value, token, n, tag, score) in enumerate(rows):
        if number % BATCH == 0:
            progress(Step("exporting", number, len(entries.tokens)))
        source = names.get(tag, f"#{tag}")
        yield encode(Gram(hash=f"{value:016x}", n=n, token=token, score=score, source=source)) + b"\n"


def import_tables(
    files: TableFiles, path: Path, *, vocabulary_size: int, progress: Progress = lambda step: None
) -> Imported:
    """Add an export's n-grams to the tables.

    Nothing is changed unless every line is sound. A new table has room for the whole export, up to its
    largest size; in an existing one earlier entries may take the room. Raises :class:`InvalidOptions` for a
    file that cannot be read and for a line that is not of an export, :class:`TokenizerMismatch` for another
    vocabulary, :class:`StorageError`.
    """
    if path.exists() and not path.is_file():
        raise InvalidOptions(
            f"an import reads its file twice, so {path} must be a regular file",
            "Save the export to a file first.",
        )
    wanted = _survey(_read(path, files.vocab_fp, vocabulary_size, progress))
    total, done = sum(len(each.marks) for each in wanted.values()), 0
    progress(Step("importing", done, total))
    for name, each in wanted.items():
        _make_room(files, name, each)
    for head, grams in _batches(_read(path, files.vocab_fp, vocabulary_size)):
        _insert(files, head, grams)
        done += len(grams)
        progress(Step("importing", done, total))
    kept = sum(np.count_nonzero(_held(files, name, each.marks)) for name, each in wanted.items())
    return Imported(total, int(kept))


def _survey(records: Iterator[Head | Gram]) -> dict[str, _Wanted]:
    """All records, by the names of their tables; reads them to the end."""
    heads: dict[str, Head] = {}
    marks: dict[str, list[Words]] = defaultdict(list)
    for head, grams in _batches(records):
        name = name_of(head.workspace)
        heads.setdefault(name, head)
        columns = np.array([(int(gram.hash, 16), gram.token, gram.n) for gram in grams], np.uint64).T
        marks[name].append(_marks(*columns))
    return {name: _Wanted(head, np.concatenate(marks[name])) for name, head in heads.items()}


def _make_room(files: TableFiles, name: str, wanted: _Wanted) -> None:
    """Make a table that need not grow while it is filled: else n-grams of a bucket would evict each other."""
    head, held = wanted.head, _held(files, name, wanted.marks)
    new = len(np.unique(wanted.marks[~held]))
    bits = files.grown_bits(head.bits, new)
    epoch = None if head.epoch is None else int(head.epoch, 16)
    table = files.open_or_create(name, head.workspace, bits=bits, epoch=epoch)
    bits = files.grown_bits(table.header.bits, new + len(table.entries().tokens))
    if bits > table.header.bits:
        grown = files.grow(table, bits)
        table.close()
        table = grown
    table.close()


def _batches(records: Iterator[Head | Gram]) -> Iterator[tuple[Head, list[Gram]]]:
    """Batches of at most :data:`BATCH` n-grams of one table."""
    head: Head | None = None
    batch: list[Gram] = []
    for record in records:
        if isinstance(record, Gram):
            batch.append(record)
        if head is not None and batch and (isinstance(record, Head) or len(batch) == BATCH):
            yield head, batch
            batch = []
        if isinstance(record, Head):
            head = record
    if head is not None and batch:
        yield head, batch


def _marks(hashes: Words, tokens: Words, orders: Words) -> Words:
    """A word that identifies each n-gram, computed like that of a table's entry."""
    marks: Words = hashes * np.uint64(salt_of(0)) ^ (tokens | orders << np.uint64(ORDER_AT))
    return marks


def _held(files: TableFiles, name: str, wanted: Words) -> NDArray[np.bool_]:
    """A mask of the shape of ``wanted``: True for the n-grams that the table holds."""
    table = files.open(name)
    if table is None:
        return np.zeros(len(wanted), np.bool_)
    entries = table.entries()
    table.close()
    return np.isin(wanted, _marks(entries.hashes, entries.tokens, entries.orders))


def _read(
    path: Path, vocab_fp: str, vocabulary_size: int, progress: Progress = lambda step: None
) -> Iterator[Head | Gram]:
    decode = msgspec.json.Decoder(Head | Gram).decode
    number, head = 0, None
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while line := file.readline(MAX_LINE):
                if number % BATCH == 0:
                    progress(Step("checking", file.tell(), size))
                number += 1
                record = decode(line)
                if isinstance(record, Head):
                    head = _of_this_vocabulary(record, vocab_fp)
                elif head is None or record.token >= vocabulary_size:
                    raise msgspec.ValidationError("no table precedes it, or the vocabulary lacks its token")
                yield record
    except OSError as error:
        raise InvalidOptions(f"{path} cannot be read: {error.strerror}", "Give the path of a file.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidOptions(
            f"{path}, line {number}, is not a line of an export: {error}",
            "Give a file that `localspec memory export` has written.",
        ) from None
    if head is None:
        raise InvalidOptions(
            f"{path} is empty: it is not an export, or nothing had been learned before the export",
            "Export again once `localspec memory stats` lists a table.",
        )


def _of_this_vocabulary(head: Head, vocab_fp: str) -> Head:
    if head.vocab_fp != vocab_fp:
        raise TokenizerMismatch(
            f"the export is of the vocabulary {head.vocab_fp[:40]!r}, but the model has {vocab_fp}",
            "Name a model with the export's vocabulary with -m.",
        )
    return head


def _insert(files: TableFiles, head: Head, grams: list[Gram]) -> None:
    name = name_of(head.workspace)
    groups: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    for gram in grams:
        groups[gram.n, tag_of(gram.source), gram.score].append((int(gram.hash, 16), gram.token))
    table: NgramTable = files.open_or_create(name, head.workspace)
    sources = dict.fromkeys(gram.source for gram in grams)
    now = time.time()
    files.note(name, *sources, since=now)
    for (n, tag, score), pairs in groups.items():
        hashes, tokens = np.array(pairs, np.uint64).T
        table.insert(hashes, tokens, n, tag, score=score)
    table.count(tokens=0, entries=len(grams))
    files.note(name, *sources, since=now)  # a concurrent growth of the table drops names without entries
    if table.is_crowded and files.may_grow(table):
        grown = files.grow(table)
        table.close()
        table = grown
    table.close()
