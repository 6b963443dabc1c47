"""The proposers that an engine can have, made of its parts.

A factory returns None where what its proposer needs is missing. Their names are in
:mod:`localspec.protocol.proposer_kinds`.
"""

from __future__ import annotations

import pkgutil
from typing import NamedTuple

from localspec.backends.base import Backend
from localspec.engine.learning import Learning
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.proposer_kinds import DRAFT, KINDS, ProposerKind
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.lookup import PromptLookup
from localspec.speculation.memory import MemoryRecall
from localspec.speculation.proposer import Proposer


class Parts(NamedTuple):
    """The parts of an engine that proposers are made of."""

    target: Backend
    draft: Backend | None
    """one of its draft models"""
    config: EngineConfig
    learning: Learning


def make_all(parts: Parts) -> list[Proposer]:
    """The registered proposers that these parts allow, in the order of the registry: those that need a draft
    model if there is one, otherwise the others."""
    made = (make(kind, parts) for kind in KINDS if (kind.needs == DRAFT.needs) == (parts.draft is not None))
    return [proposer for proposer in made if proposer is not None]


def make(kind: ProposerKind, parts: Parts) -> Proposer | None:
    """The proposer, or None where what it needs is missing."""
    made: Proposer | None = pkgutil.resolve_name(kind.factory)(parts)
    if made is not None and made.name != kind.name:
        raise ValueError(f"{kind.factory} makes the proposer {made.name!r}, not {kind.name!r}")
    return made


def prompt_lookup(parts: Parts) -> Proposer:
    return PromptLookup(n_min=parts.config.ngram_min, n_max=parts.config.ngram_max)


def memory_recall(parts: Parts) -> Proposer | None:
    memory = parts.learning.memory
    return None if memory is None else MemoryRecall(memory.tables, memory)


def draft_model(parts: Parts) -> Proposer | None:
    if parts.draft is None:
        return None
    return DraftModel(parts.draft, parts.target.vocabulary.size, parts.learning.know_draft(parts.draft).costs)
