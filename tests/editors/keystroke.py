"""The figures that are measured in every editor."""

from __future__ import annotations

from typing import NamedTuple


class Keystroke(NamedTuple):
    """Milliseconds from the key to the ghost text that is drawn, and those of them in the daemon."""

    whole: float
    daemon: float
