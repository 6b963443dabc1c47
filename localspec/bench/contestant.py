"""Who is measured: the proposers of ours, their fixed lengths, and the references."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from localspec.bench.results import CONTROL, PLAIN, Contestant
from localspec.errors import InvalidOptions

SWEEP_LENGTHS = (2, 4, 6, 8)
SWEEP_NGRAM = 3


def own_contestants(drafts: Sequence[str]) -> list[Contestant]:
    """Plain twice, then every proposer; those that need a draft model once per label of ``drafts``.

    With several draft models ``auto`` and ``draft`` are the first one's.
    """
    found = [Contestant(PLAIN), Contestant(CONTROL)]
    found += [Contestant("auto", "auto", draft=drafts[0] if drafts else None)]
    found += [Contestant("prompt-lookup", "prompt-lookup"), Contestant("memory", "memory")]
    found += [Contestant("draft", "draft", draft=label) for label in drafts[:1]]
    for label in drafts[1:]:
        found.append(Contestant(f"auto, {label}", "auto", draft=label))
        found.append(Contestant(f"draft, {label}", "draft", draft=label))
    return found


def sweep_contestants(drafts: Sequence[str]) -> list[Contestant]:
    """Lookup n=3, memory and the first draft model at fixed lengths, with plain to compare."""
    found = [Contestant(PLAIN)]
    for k in SWEEP_LENGTHS:
        found.append(Contestant(f"lookup n=3 k={k}", "prompt-lookup", k, ngram=SWEEP_NGRAM))
        found.append(Contestant(f"memory k={k}", "memory", k))
        found += [Contestant(f"draft k={k}", "draft", k, draft=label) for label in drafts[:1]]
    return found


def chosen(contestants: Sequence[Contestant], names: Iterable[str]) -> list[Contestant]:
    """Those that are named, and plain with its control, without which nothing can be compared.

    No names: all. Raises :class:`InvalidOptions` naming the nearest one.
    """
    known = {contestant.name for contestant in contestants}
    wanted = set(names)
    for name in sorted(wanted - known):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidOptions(
            f"there is no contestant {name!r}{hint}", f"Choose among: {', '.join(sorted(known))}."
        )
    if not wanted:
        return list(contestants)
    return [c for c in contestants if c.name in wanted | {PLAIN, CONTROL}]
