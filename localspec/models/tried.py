"""How a draft model has fared with a target on this machine: known before either is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from localspec.errors import LocalspecError
from localspec.models.catalogue import place_of, weights_size
from localspec.models.record import Record, learnt_dir

ENOUGH = 64
"""drafted tokens from which on a pair is known"""
HOPELESS = 0.02
"""share of drafted tokens under which it pays nowhere, however long the drafts were"""


class Tried(NamedTuple):
    """``accepted`` of ``drafted`` tokens were right; ``gain`` is how many times as fast as plain decoding the
    best drafts are expected to be, 1 where none pays; None: what steps cost is not known. ``failed`` says why
    the draft could not be loaded when it was last chosen."""

    drafted: int = 0
    accepted: int = 0
    gain: float | None = None
    failed: str = ""

    @property
    def loses(self) -> bool:
        """Whether this draft is known to be of no use."""
        hopeless = self.accepted < HOPELESS * self.drafted
        return self.drafted >= ENOUGH and (hopeless or self.gain == 1.0)

    @property
    def wins(self) -> bool:
        """Whether this draft is known to be of use."""
        return self.drafted >= ENOUGH and self.gain is not None and not self.loses


class TriedRecord:
    """The same as it is written down; see :class:`Learnt`."""

    def __init__(self) -> None:
        self.tried = Tried()

    def state(self) -> dict[str, Any]:
        return self.tried._asdict()

    def restore(self, state: Mapping[str, Any]) -> None:
        drafted, accepted, gain = state["drafted"], state["accepted"], state["gain"]
        if not (type(drafted) is type(accepted) is int and 0 <= accepted <= drafted):
            raise ValueError("more tokens right than drafted")
        if gain is not None and not 1.0 <= (gain := float(gain)) < 1e3:
            raise ValueError("no gain")
        self.tried = Tried(drafted, accepted, gain, str(state.get("failed", "")))


def name_of_pair(target: Path, draft: Path) -> str:
    """What a pair's record is called: other files in their places are another pair."""
    return "pair of " + " and ".join(f"{place_of(p)!r}, {weights_size(p)} bytes" for p in (target, draft))


def note_failure(target: Path, draft: Path, why: str) -> None:
    """Let it be known that this draft cannot be loaded, so that the next choice is another."""
    record = TriedRecord()
    record.tried = known_of(target, draft)._replace(failed=why)
    with contextlib.suppress(LocalspecError, OSError):
        Record(learnt_dir(), name_of_pair(target, draft), record).write()


def known_of(target: Path, draft: Path) -> Tried:
    """What engines with these two models have seen."""
    record = TriedRecord()
    with contextlib.suppress(LocalspecError, OSError):  # where nothing can be kept, nothing is known
        Record(learnt_dir(), name_of_pair(target, draft), record).read()
    return record.tried
