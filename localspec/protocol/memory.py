"""What can be asked of the n-gram memory's files, and what comes back."""

from __future__ import annotations

from typing import Literal

import msgspec


class TableStats(msgspec.Struct, frozen=True, kw_only=True):
    """One table, or what was set aside in its place."""

    workspace: str | None
    """a path, or the table's name where only a damaged file is left; None: the user-wide table"""
    vocab_fp: str
    path: str
    bytes: int = 0
    capacity: int = 0
    """entries there is room for"""
    entries: int = 0
    occupancy: float = 0.0
    tokens: int = 0
    """tokens learned since it was made; a text learned twice counts twice"""
    last_use: float | None = None
    """seconds since 1970; None: never"""
    sources: dict[str, int] = {}
    """entries by who taught them; those whose name was lost are under the tag's number"""
    quarantined: tuple[str, ...] = ()


class MemoryStats(msgspec.Struct, frozen=True):
    """Every table there is."""

    tables: tuple[TableStats, ...]


class Forgotten(msgspec.Struct, frozen=True):
    """How much was forgotten: n-grams of one source, else whole tables."""

    forgotten: int
    unit: Literal["tables", "n-grams"]


class Primed(msgspec.Struct, frozen=True):
    """How much was learned; ``skipped`` files were no text."""

    files: int
    skipped: int
    tokens: int
