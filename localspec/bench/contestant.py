"""The contestants of the benchmark: localspec's proposers, their fixed lengths, and the references."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from localspec.bench.results import CONTROL, PLAIN, Contestant
from localspec.errors import InvalidOptions, LocalspecError
from localspec.protocol.proposer_kinds import AUTO, KINDS

LONGEST_ERROR = 300
"""characters of an error in a document"""


def own_contestants(drafts: Sequence[str]) -> list[Contestant]:
    """Plain twice, then every proposer but a target's own; those that need a draft model once per label of
    ``drafts``.

    With several draft models ``auto`` and ``draft`` use the first one.
    """
    found = [Contestant(PLAIN), Contestant(CONTROL)]
    found += [Contestant(AUTO, AUTO, draft=drafts[0] if drafts else None)]
    found += [Contestant(kind.name, kind.name) for kind in KINDS if kind.needs in ("nothing", "memory")]
    with_model = [kind.name for kind in KINDS if kind.needs == "draft model"]
    found += [Contestant(name, name, draft=label) for label in drafts[:1] for name in with_model]
    for label in drafts[1:]:
        found += [Contestant(f"{name}, {label}", name, draft=label) for name in (AUTO, *with_model)]
    return found


def chosen(contestants: Sequence[Contestant], names: Iterable[str]) -> list[Contestant]:
    """The named contestants, and plain decoding with its control, to which they are compared.

    No names: all. Raises :class:`InvalidOptions` for an unknown name, with the nearest one.
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
    """Record an error of the contestant in ``failures`` instead of raising it.

    That of plain decoding is raised: all others are compared with it.
    """
    try:
        yield
    except Exception as error:  # a reference is code of another project, and may raise anything
        if contestant.name == PLAIN:
            raise
        failures[contestant.name] = sentence_of(error)


def sentence_of(error: BaseException) -> str:
    """The message of an error on one line, at most :data:`LONGEST_ERROR` characters."""
    what = error.message if isinstance(error, LocalspecError) else f"{type(error).__name__}: {error}"
    return textwrap.shorten(what, LONGEST_ERROR, placeholder=" …")
