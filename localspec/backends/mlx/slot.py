"""One sequence of an MLX model: its row of cells, and what its layers hold beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.backends.mlx.layers import Cells, Foreign, Layer, Recurrent, State, parts_of


@dataclass(eq=False, slots=True)
class Slot:
    """``place`` is its row in every attention layer."""

    place: int
    states: list[State]
    """one per layer"""
    length: int = 0
    written: int = 0
    """cells that were ever written, those of rejected tokens included"""
    kept: dict[int, list[State]] = field(default_factory=dict)
    """earlier states by the length they belong to: before the last forward, and at the mark"""
    mark: int = 0


class Rewinding:
    """How sequences go back, with these layers: cells by forgetting their number, states by what was kept."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers
        parts = parts_of(layers)
        self._rings = {
            (p.attention.window, p.attention.ring)
            for p in parts
            if isinstance(p, Cells) and p.attention.window and p.attention.ring
        }
        self.replays = any(isinstance(p, Recurrent) for p in parts)
        """whether what is cut off may be more than was asked for, and is to be fed again"""
        foreign = [p for p in parts if isinstance(p, Foreign)]
        self.in_place = bool(foreign)
        """whether a forward changes what its states were before"""
        stuck = sorted({p.name for p in foreign if self.replays or not p.trims})
        self.obstacle = f"mlx-lm's {', '.join(stuck)} cannot be rolled back" if stuck else ""
        """why nothing can be cut off; empty: it can"""

    def advance(self, slot: Slot, n: int, written: int, before: list[State]) -> None:
        """A forward appended ``n`` tokens and wrote ``written`` cells; its layers held ``before``."""
        if self.replays:
            slot.kept = {at: states for at, states in slot.kept.items() if at == slot.mark}
            slot.kept[slot.length] = before
        slot.written = max(slot.written, slot.length + written)
        slot.length += n

    def mark(self, slot: Slot) -> None:
        """Let :meth:`cut` come back to the present length."""
        slot.mark = slot.length
        if self.replays:
            slot.kept = {**slot.kept, slot.length: slot.states}

    def reach(self, slot: Slot, length: int) -> int:
        """The longest start of at most ``length`` tokens that is still there: with a window or a recurrent
        state what is past may be gone, and only some places are left, if any."""
        if length == slot.length:
            return length
        if self.obstacle:
            return 0
        places = [at for at in slot.kept if at <= length] if self.replays else [length]
        return max((at for at in places if self._holds(slot, at)), default=0)

    def _holds(self, slot: Slot, length: int) -> bool:
        """Whether all that a token at ``length`` looks at is still there."""
        states = zip(self._layers, slot.states, strict=True)
        return all(layer.holds(state, length) for layer, state in states) and all(
            slot.written <= ring or max(0, length - window + 1) >= slot.written - ring
            for window, ring in self._rings
        )

    def cut(self, slot: Slot, length: int) -> int:
        """Keep as many of the first ``length`` tokens as :meth:`reach` says; returns how many."""
        length = self.reach(slot, length)
        if length == slot.length:
            return length
        if not length:
            slot.states, slot.written = [layer.new() for layer in self._layers], 0
        elif self.replays:
            slot.states = slot.kept[length]
        else:
            for layer, state in zip(self._layers, slot.states, strict=True):
                layer.trim(state, slot.length - length)
        slot.kept = {at: states for at, states in slot.kept.items() if at <= length}
        slot.length, slot.mark = length, min(slot.mark, length)
        return length

    def copy(self, slot: Slot, copy: Slot, length: int) -> None:
        """Make ``copy``, whose cells were copied already, what ``slot`` is, cut to ``length`` tokens."""
        copy.states = [layer.copy(state) for layer, state in zip(self._layers, slot.states, strict=True)]
        copy.length, copy.written, copy.kept, copy.mark = slot.length, slot.written, slot.kept, slot.mark
        self.cut(copy, length)
