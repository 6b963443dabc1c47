"""Statistics and forgetting of the memory's files, also while engines have them open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from localspec.memory.files import USER, TableFiles, name_of
from localspec.memory.sources import tag_of
from localspec.memory.workspace import workspace_of
from localspec.protocol.messages import TableStats

Notice = Callable[[str], None]


def vocabularies(directory: Path, notice: Notice) -> Iterator[TableFiles]:
    """The tables of each vocabulary."""
    if directory.is_dir():
        for folder in sorted(directory.iterdir()):
            if folder.is_dir() and not folder.is_symlink():
                yield TableFiles(folder, notice)


def stats(directory: Path, notice: Notice) -> list[TableStats]:
    """All tables, the user-wide one of each vocabulary first. Raises :class:`StorageError`."""
    return [
        _table_stats(files, name, notice)
        for files in vocabularies(directory, notice)
        for name in sorted(files.names(), key=lambda name: (name != USER, name))
    ]


def forget(
    directory: Path, notice: Notice, *, workspace: str | None = None, source: str | None = None
) -> int:
    """Forget a workspace, a source, a source in a workspace, or, without either, everything.

    ``workspace`` is the path of a workspace or of anything in it. Returns the number of tables (or, for a
    source, of entries) that were forgotten. Raises :class:`StorageError`, or :class:`InvalidOptions` for an
    invalid path.
    """
    selected = _selected(directory, notice, workspace)
    if source is not None:
        return sum(files.forget_source(name, source) for files, name in selected)
    for files, name in selected:
        files.forget(name)
    return len(selected)


def count(directory: Path, notice: Notice, *, workspace: str | None = None) -> int:
    """The number of tables that :func:`forget` would forget."""
    return len(_selected(directory, notice, workspace))


def _selected(directory: Path, notice: Notice, workspace: str | None) -> list[tuple[TableFiles, str]]:
    """The tables of a workspace in all vocabularies; None: all tables."""
    wanted = None if workspace is None else _name(directory, notice, workspace)
    named = ((files, name) for files in vocabularies(directory, notice) for name in files.names())
    return [(files, name) for files, name in named if wanted in (None, name)]


def _name(directory: Path, notice: Notice, workspace: str) -> str:
    """The name of the tables of ``workspace``; if it has none, of those of its git repository."""
    own = name_of(workspace)  # first: it raises for an invalid path
    root = workspace_of(Path(workspace))
    has_own = any(own in files.names() for files in vocabularies(directory, notice))
    return own if has_own or root is None else name_of(str(root))


def _table_stats(files: TableFiles, name: str, notice: Notice) -> TableStats:
    table = None
    try:
        table = files.open(name)
    except OSError as error:
        notice(f"the table {name} cannot be opened: {error.strerror}")
    quarantined = tuple(path.name for path in files.set_aside(name))
    if table is None:
        workspace = None if name == USER else name
        where = str(files.folder / name)
        return TableStats(workspace=workspace, vocab_fp=files.vocab_fp, path=where, quarantined=quarantined)
    entries, state, header = table.entries(), table.state, table.header
    table.close()
    names = {tag_of(source): source for source in files.sources(name).names()}
    tags, counts = np.unique(entries.tags, return_counts=True)
    by_source = {names.get(int(t), f"#{int(t)}"): int(n) for t, n in zip(tags, counts, strict=True)}
    return TableStats(
        workspace=header.workspace or None,
        vocab_fp=header.vocab_fp,
        path=str(table.path),
        bytes=header.file_bytes,
        capacity=1 << header.bits,
        entries=len(entries.tokens),
        occupancy=len(entries.tokens) / (1 << header.bits),
        tokens=state.tokens,
        last_use=state.last_use or None,
        sources=dict(sorted(by_source.items(), key=lambda item: -item[1])),
        quarantined=quarantined,
    )
