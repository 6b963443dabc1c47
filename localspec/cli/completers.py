"""What a shell offers for a word that is being typed; whatever fails offers nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

SHOWN_TITLE = 60


def models(_context: CompletionContext) -> list[str]:
    """The names of models, without a look into their files."""
    from localspec.config import load_config
    from localspec.models.catalogue import model_files

    return sorted({"bundled", *(id for id, _ in model_files(load_config().model_dirs))})


def drafts(context: CompletionContext) -> list[str]:
    """What may be named as a draft model."""
    return ["auto", "none", *models(context)]


def sessions(_context: CompletionContext) -> Iterator[tuple[str, str]]:
    """The sessions that a running daemon knows, with their titles; none is started to be asked."""
    from localspec.cli import answer

    for session in answer.remote(lambda client: client.sessions(), start=False):
        yield session.session, (session.title or "")[:SHOWN_TITLE]
