"""One sequence of an MLX model: its row of cells, the states of its layers, and its cells as bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import mlx.core as mx

from localspec.backends.mlx.layers import Cells, Foreign, Layers, Recurrent, State
from localspec.errors import EngineError


class SlotContent(NamedTuple):
    """The content of a sequence: the number of its tokens and the states after them. A forward or a cut
    replaces it as a whole, so that an exception at any point leaves a consistent sequence."""

    length: int = 0
    states: Sequence[State] = ()
    """one per layer; empty for an empty sequence"""
    kept: Mapping[int, Sequence[State]] = {}
    """earlier states by the length they belong to: before the last forward, and at the mark"""
    mark: int = 0


@dataclass(eq=False, slots=True)
class Slot:
    """A sequence; ``place`` is its row in every attention layer."""

    place: int
    held: SlotContent = SlotContent()
    written: int = 0
    """cells that may have been written so far, those of rejected tokens included"""

    @property
    def length(self) -> int:
        return self.held.length


class Rewinding:
    """Rollback of sequences with these layers: cells by lowering their number, states by copies kept."""

    def __init__(self, layers: Layers) -> None:
        self._layers, parts = layers, layers.parts
        self._rings = {
            (p.attention.window, p.attention.ring)
            for p in parts
            if isinstance(p, Cells) and p.attention.window and p.attention.ring
        }
        self.replays = any(isinstance(p, Recurrent) for p in parts)
        """True if a cut may drop more tokens than requested, which must then be fed again"""
        foreign = [p for p in parts if isinstance(p, Foreign)]
        self.in_place = bool(foreign)
        """True if a forward changes the states before it in place"""
        stuck = sorted({p.name for p in foreign if self.replays or not p.trims})
        self.obstacle = f"mlx-lm's {', '.join(stuck)} cannot be rolled back" if stuck else ""
        """the reason why nothing can be cut off; empty: it can"""

    def states(self, held: SlotContent) -> Sequence[State]:
        """The states of ``held``; new ones if it is empty."""
        return held.states or self._layers.new()

    def take(self, slot: Slot) -> SlotContent:
        """Return the content of ``slot`` for a change of its states. If they change in place, the slot is
        empty until the change is complete: after a failure their content is unknown."""
        held = slot.held
        if self.in_place:
            slot.held = SlotContent()
        return held

    def advance(self, slot: Slot, before: SlotContent, n: int, states: Sequence[State]) -> None:
        """Record a forward that appended ``n`` tokens to ``before`` and led to ``states``."""
        kept: dict[int, Sequence[State]] = {}
        if self.replays:
            kept = {at: each for at, each in before.kept.items() if at == before.mark}
            kept[before.length] = before.states
        slot.held = SlotContent(before.length + n, states, kept, before.mark)

    def mark(self, slot: Slot) -> None:
        """Let :meth:`cut` come back to the present length later."""
        held = slot.held
        kept = {**held.kept, held.length: held.states} if self.replays else held.kept
        slot.held = held._replace(kept=kept, mark=held.length)

    def reach(self, slot: Slot, length: int) -> int:
        """The largest length, at most ``length``, to which the slot can be cut. With a window or a recurrent
        state earlier data may be gone, so that only some lengths are left, or 0 alone."""
        if length == slot.length:
            return length
        if self.obstacle:
            return 0
        places = [at for at in slot.held.kept if at <= length] if self.replays else [length]
        return max((at for at in places if self._holds(slot, at)), default=0)

    def _holds(self, slot: Slot, length: int) -> bool:
        """Return True if all that a token at ``length`` attends to is still there."""
        states = zip(self._layers.parts, slot.held.states, strict=True)
        return all(layer.holds(state, length) for layer, state in states) and all(
            slot.written <= ring or max(0, length - window + 1) >= slot.written - ring
            for window, ring in self._rings
        )

    def cut(self, slot: Slot, length: int) -> int:
        """Keep as many of the first ``length`` tokens as :meth:`reach` says; return how many."""
        length = self.reach(slot, length)
        if length == slot.length:
            return length
        if not length:
            slot.held, slot.written = SlotContent(), 0
            return length
        held = self.take(slot)
        states = held.kept[length] if self.replays else held.states
        if not self.replays:
            for layer, state in zip(self._layers.parts, states, strict=True):
                layer.trim(state, held.length - length)
        kept = {at: each for at, each in held.kept.items() if at <= length}
        slot.held = SlotContent(length, states, kept, min(held.mark, length))
        return length

    def copy(self, slot: Slot, copy: Slot, length: int) -> None:
        """Copy ``slot``, cut to ``length`` tokens, to ``copy``, whose cells were copied already."""
        states = zip(self._layers.parts, self.states(slot.held), strict=True)
        copy.written = slot.written
        copy.held = slot.held._replace(states=[layer.copy(state) for layer, state in states])
        self.cut(copy, length)


def pack(length: int, written: int, layers: Sequence[Sequence[mx.array]]) -> bytearray:
    """Return a sequence of ``length`` tokens, with ``written`` cells ever written, as bytes."""
    arrays = {f"{i}.{n}": array for i, layer in enumerate(layers) for n, array in enumerate(layer)}
    facts = {"sequence": json.dumps([length, written, [len(layer) for layer in layers]])}
    file = io.BytesIO()
    mx.save_safetensors(file, arrays, facts)
    return bytearray(file.getbuffer())


def unpack(state: bytearray) -> tuple[int, int, list[list[mx.array]]]:
    """Return the arguments of :func:`pack`; raises :class:`EngineError` for bytes of any other format."""
    try:
        arrays, facts = mx.load(io.BytesIO(state), format="safetensors", return_metadata=True)
        length, written, sizes = json.loads(facts["sequence"])
        layers = [[arrays[f"{i}.{n}"] for n in range(size)] for i, size in enumerate(sizes)]
        mx.eval(layers)
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        raise EngineError(f"the saved sequence cannot be restored: {error}") from None
    return length, written, layers
