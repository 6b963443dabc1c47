"""Who is measured: the proposers of ours, their fixed lengths, and the references."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from localspec.bench.results import CONTROL, PLAIN, Contestant
from localspec.errors import InvalidOptions, LocalspecError

SWEEP_LENGTHS = (2, 4, 6, 8)
SWEEP_NGRAM = 3
TOLD = 300
"""characters of an error that a document keeps"""


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
            f"there is no contestant {name!r}{hint}", f"Choose among: {', '.join(map(repr, sorted(known)))}."
        )
    if not wanted:
        return list(contestants)
    return [c for c in contestants if c.name in wanted | {PLAIN, CONTROL}]


@contextmanager
def attempt(contestant: Contestant, failures: dict[str, str]) -> Iterator[None]:
    """Inside, an error of the contestant's is written down in ``failures``, and the others go on.

    Plain decoding's is raised: without it nothing can be compared.
    """
    try:
        yield
    except Exception as error:  # a reference is somebody else's code, and may raise anything
        if contestant.name == PLAIN:
            raise
        failures[contestant.name] = sentence_of(error)


def sentence_of(error: BaseException) -> str:
    """What happened, on one line."""
    what = error.message if isinstance(error, LocalspecError) else f"{type(error).__name__}: {error}"
    return textwrap.shorten(what, TOLD, placeholder=" …")
