"""A table as lines of JSON: to read, to keep, to carry to another machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from localspec.errors import InvalidOptions, TokenizerMismatch
from localspec.memory.files import TableFiles, name_of
from localspec.memory.hashing import Words, salt_of
from localspec.memory.sources import tag_of
from localspec.memory.table import ORDER_AT, NgramTable
from localspec.protocol.memory import Place

BATCH = 1024
MAX_LINE = 64 * 1024


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="table"):
    """The line before the n-grams of one table."""

    format: Literal["localspec-memory-1"] = "localspec-memory-1"
    vocab_fp: str
    workspace: Place | None
    """None: the user-wide table"""


class Gram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ngram"):
    """After the ``n`` tokens of this hash came this token."""

    hash: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    n: Annotated[int, Meta(ge=1, le=255)]
    token: Annotated[int, Meta(ge=0)]
    score: Annotated[int, Meta(ge=1, le=255)]
    source: str


class Imported(NamedTuple):
    """What became of a file's n-grams; a table is a cache, and a full bucket has no room for all."""

    read: int
    kept: int


def export_table(files: TableFiles, name: str) -> Iterator[bytes]:
    """A table's lines, newlines included; none if there is no such table. Raises :class:`StorageError`."""
    table = files.open(name)
    if table is None:
        return
    entries, header = table.entries(), table.header
    table.close()
    names = {tag_of(source): source for source in files.sources(name).names()}
    encode = msgspec.json.Encoder().encode
    yield encode(Head(vocab_fp=header.vocab_fp, workspace=header.workspace or None)) + b"\n"
    for value, token, n, tag, score in zip(*(part.tolist() for part in entries), strict=True):
        source = names.get(tag, f"#{tag}")
        yield encode(Gram(hash=f"{value:016x}", n=n, token=token, score=score, source=source)) + b"\n"


def import_tables(files: TableFiles, path: Path, *, vocabulary_size: int) -> Imported:
    """Add what was exported to what is known.

    Nothing is changed unless every line is sound. Raises :class:`InvalidOptions` for a file that cannot
    be read and for a line that is none of an export, :class:`TokenizerMismatch` for another vocabulary,
    :class:`StorageError`.
    """
    if path.exists() and not path.is_file():
        raise InvalidOptions(
            f"{path} is no regular file: it is read twice", "Save the export to a file first."
        )
    for _ in _read(path, files.vocab_fp, vocabulary_size):
        pass
    read: dict[str, list[Words]] = defaultdict(list)
    for head, grams in _batches(_read(path, files.vocab_fp, vocabulary_size)):
        _insert(files, head, grams)
        columns = np.array([(int(gram.hash, 16), gram.token, gram.n) for gram in grams], np.uint64).T
        read[name_of(head.workspace)].append(_marks(*columns))
    marks = {name: np.concatenate(parts) for name, parts in read.items()}
    kept = sum(_held(files, name, wanted) for name, wanted in marks.items())
    return Imported(sum(map(len, marks.values())), kept)


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


def _held(files: TableFiles, name: str, wanted: Words) -> int:
    """How many of the n-grams with these marks a table holds."""
    table = files.open(name)
    if table is None:
        return 0
    entries = table.entries()
    table.close()
    return int(np.count_nonzero(np.isin(wanted, _marks(entries.hashes, entries.tokens, entries.orders))))


def _read(path: Path, vocab_fp: str, vocabulary_size: int) -> Iterator[Head | Gram]:
    decode = msgspec.json.Decoder(Head | Gram).decode
    number, head = 0, None
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE):
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
        raise InvalidOptions(f"{path} is empty", "Make it with `localspec memory export`.")


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
    files.sources(name).add(*sources)
    for (n, tag, score), pairs in groups.items():
        hashes, tokens = np.array(pairs, np.uint64).T
        table.insert(hashes, tokens, n, tag, score=score)
    table.count(tokens=0, entries=len(grams))
    files.sources(name).add(*sources)  # whoever grew the table meanwhile dropped names without entries
    if table.is_crowded and files.may_grow(table):
        grown = files.grow(table)
        table.close()
        table = grown
    table.close()
