"""Results of the methods ``memory/…`` and of ``localspec memory``."""

from __future__ import annotations

from typing import Literal

import msgspec


class TableStats(msgspec.Struct, frozen=True, kw_only=True):
    """One table, or the damaged files that were set aside in its place."""

    workspace: str | None
    """path; the table's name if only a damaged file is left; None: the user-wide table"""
    vocab_fp: str
    path: str
    bytes: int = 0
    capacity: int = 0
    """most entries"""
    entries: int = 0
    occupancy: float = 0.0
    tokens: int = 0
    """tokens learnt since it was made; a text learnt twice counts twice"""
    last_use: float | None = None
    """seconds since 1970; None: never"""
    sources: dict[str, int] = {}
    """entries by source; those of a source whose name was lost are under the tag's number"""
    quarantined: tuple[str, ...] = ()


class MemoryStats(msgspec.Struct, frozen=True):
    """All tables."""

    tables: tuple[TableStats, ...]


class Forgotten(msgspec.Struct, frozen=True):
    """The amount forgotten: n-grams of one source, else whole tables."""

    forgotten: int
    unit: Literal["tables", "n-grams"]


class Primed(msgspec.Struct, frozen=True):
    """The amount learnt; ``skipped`` files were not text."""

    files: int
    skipped: int
    tokens: int
