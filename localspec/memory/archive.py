"""A table as lines of JSON: to read, to keep, to carry to another machine."""

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
    """log2 of the entries the table had room for; 0: not told"""
    epoch: Annotated[str, Meta(pattern=HEX)] | None = None
    """what decides which n-grams share a bucket of the table: what was in one has room in one again"""


class Gram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ngram"):
    """After the ``n`` tokens of this hash came this token."""

    hash: Annotated[str, Meta(pattern=HEX)]
    n: Annotated[int, Meta(ge=1, le=255)]
    token: Annotated[int, Meta(ge=0)]
    score: Annotated[int, Meta(ge=1, le=255)]
    source: str


class Imported(NamedTuple):
    """What became of a file's n-grams; a table is a cache, and a full bucket has no room for all."""

    read: int
    kept: int


class Step(NamedTuple):
    """How far an export or import is: ``done`` of ``total`` bytes checked, else n-grams."""

    what: Literal["checking", "importing", "exporting"]
    done: int
    total: int


Progress = Callable[[Step], None]


class _Wanted(NamedTuple):
    """What a file holds for one table."""

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
    """Add what was exported to what is known.

    Nothing is changed unless every line is sound. A table that is made for what was exported has room for all
    of it, if it may be as large; what others have in theirs may be in the way. Raises
    :class:`InvalidOptions` for a file that cannot be read and for a line that is none of an export,
    :class:`TokenizerMismatch` for another vocabulary, :class:`StorageError`.
    """
    if path.exists() and not path.is_file():
        raise InvalidOptions(
            f"{path} is no regular file: it is read twice", "Save the export to a file first."
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
    """A table that need not grow while it is filled: n-grams of one bucket would evict each other before."""
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
    """At most :data:`BATCH` n-grams of one table each."""
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
    """What tells n-grams apart: a word each, made as a table makes those of its entries."""
    marks: Words = hashes * np.uint64(salt_of(0)) ^ (tokens | orders << np.uint64(ORDER_AT))
    return marks


def _held(files: TableFiles, name: str, wanted: Words) -> NDArray[np.bool_]:
    """Which of the n-grams with these marks a table holds."""
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
                    raise msgspec.ValidationError("no table before it, or a token that there is not")
                yield record
    except OSError as error:
        raise InvalidOptions(f"{path} cannot be read: {error.strerror}", "Give the path of a file.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidOptions(
            f"{path}, line {number}, is not of an export: {error}", "Make it with `localspec memory export`."
        ) from None
    if head is None:
        raise InvalidOptions(
            f"{path} is empty: nothing had been learned where it was exported, or it is no export",
            "Export again where `localspec memory stats` shows something.",
        )


def _of_this_vocabulary(head: Head, vocab_fp: str) -> Head:
    if head.vocab_fp != vocab_fp:
        raise TokenizerMismatch(
            f"the export is of the vocabulary {head.vocab_fp[:40]!r}, the model has {vocab_fp}",
            "Name a model with that vocabulary with -m.",
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
    files.note(name, *sources, since=now)  # whoever grew the table meanwhile dropped names without entries
    if table.is_crowded and files.may_grow(table):
        grown = files.grow(table)
        table.close()
        table = grown
    table.close()
