"""The registry of proposers: one value for each, from which all that lists proposers is derived.

Read by the options' validation, the help and completion of ``--proposer``, the metrics' labels, the HTTP
server's limits for unauthenticated clients, the chat's colours and dialogs, and by the engine,
which alone imports the factories.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Need = Literal["nothing", "memory", "draft model", "target"]
"""a requirement: nothing, the n-gram memory, a draft model, or a target that has heads or the like"""

AUTO, NONE = "auto", "none"
"""values of ``--proposer`` that are no proposer: the controller's choice among all, and plain decoding"""


class ProposerKind(NamedTuple):
    """The description of a proposer, from which its names, texts and colours are derived."""

    name: str
    """its :attr:`Proposer.name`: the value of ``--proposer``, and the source of its tokens in statistics"""
    meaning: str
    """the source of its drafts, in a few words"""
    factory: str
    """``module:function``; called with the engine's :class:`Parts`, it returns a proposer, or None where
    something is missing that it needs"""
    colour: str
    """of its tokens in the chat: a variable of the theme, or one turned by degrees of hue: ``primary+60``"""
    mark: str
    """of its tokens in a terminal without colours: a style of Rich, such as ``underline``"""
    label: str
    """its name in the chat's legend"""
    needs: Need = "nothing"
    unauthenticated: bool = False
    """True if unauthenticated HTTP clients may use it: it must not show the texts of other users"""


LOOKUP = ProposerKind(
    name="prompt-lookup",
    meaning="text that is already in the prompt or the answer",
    factory="localspec.engine.proposers:prompt_lookup",
    colour="primary",
    mark="bold",
    label="lookup",
    unauthenticated=True,
)
MEMORY = ProposerKind(
    name="memory",
    meaning="text of earlier work, from the n-gram memory",
    factory="localspec.engine.proposers:memory_recall",
    colour="warning",
    mark="reverse",
    label="memory",
    needs="memory",
)
DRAFT = ProposerKind(
    name="draft",
    meaning="the draft model",
    factory="localspec.engine.proposers:draft_model",
    colour="success",
    mark="underline",
    label="draft",
    needs="draft model",
    unauthenticated=True,
)

KINDS: tuple[ProposerKind, ...] = (LOOKUP, MEMORY, DRAFT)
"""all proposers, the cheapest draft first"""


def meanings() -> dict[str, str]:
    """All values of ``--proposer``, each with its meaning."""
    return {
        AUTO: "the best of all each round, by measured costs",
        NONE: "plain decoding, without drafts",
        **{kind.name: kind.meaning for kind in KINDS},
    }
