"""Settings of llama-server's speculation, as its command line takes them."""

from __future__ import annotations

from typing import NamedTuple


class Setting(NamedTuple):
    """One setting of llama-server: its name and arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    remembers: bool = False
    """True if the state of earlier questions speeds up later ones"""
    needs_draft: bool = False
    """True if a draft model must be given"""


PLAIN = Setting("plain")


def ngram_simple(n: int = 12, m: int = 48) -> Setting:
    """The newest earlier occurrence of the last ``n`` tokens drafts up to ``m`` tokens that followed it.

    llama-server drops drafts of fewer than ``n`` tokens, so ``m`` must not be smaller than ``n``.
    """
    sizes = ("--spec-ngram-simple-size-n", str(n), "--spec-ngram-simple-size-m", str(m))
    return Setting(f"ngram-simple {n}/{m}", ("--spec-type", "ngram-simple", *sizes))


def ngram_mod(match: int = 24, n_min: int = 48, n_max: int = 64) -> Setting:
    """A hash table of all texts since the server started: ``match`` tokens to the next one, chained.

    Drafts have ``n_min`` to ``n_max`` tokens.
    """
    sizes = (
        *("--spec-ngram-mod-n-match", str(match)),
        *("--spec-ngram-mod-n-min", str(n_min), "--spec-ngram-mod-n-max", str(n_max)),
    )
    name = f"ngram-mod {match}/{n_min}/{n_max}"
    return Setting(name, ("--spec-type", "ngram-mod", *sizes), remembers=True)


def draft_simple(n_max: int = 3) -> Setting:
    """A draft model that offers ``n_max`` tokens every round."""
    sizes = ("--spec-draft-n-max", str(n_max))
    return Setting(f"draft-simple {n_max}", ("--spec-type", "draft-simple", *sizes), needs_draft=True)


SETTINGS = (
    PLAIN,
    # The defaults first, then smaller ones: code is edited every few tokens, and on a CPU width costs.
    ngram_simple(),
    *(ngram_simple(n, m) for n, m in ((3, 8), (4, 16), (8, 32))),
    ngram_mod(),
    *(ngram_mod(*sizes) for sizes in ((16, 16, 32), (12, 4, 16), (8, 2, 8))),
    draft_simple(),
    draft_simple(1),
)
"""The settings tried to find the best one of a workload; the first of each kind are the defaults.

Five more were tried on the edits (2 cores, Q8_0): 2/4 and 3/4 came to 0.84 to 1.09 of plain decoding,
4/2/4 to 0.99 and 1.08, the draft model with 5 and 8 tokens to 0.19 to 0.26.
"""
