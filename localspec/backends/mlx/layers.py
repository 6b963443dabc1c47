"""The state of a model per layer, made from the caches that mlx-lm would make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import mlx.core as mx
from mlx.utils import tree_flatten

from localspec.backends.mlx.attention import Attention, ForwardStep
from localspec.backends.mlx.lm import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from localspec.errors import EngineError
from localspec.models.fit import CellBytes

TRIMMABLE = {ChunkedKVCache, ConcatenateKVCache, KVCache, QuantizedKVCache}
"""caches that can always be cut back; others are ``is_trimmable`` in mlx-lm only until it is too late"""

State = Any
"""The state of one sequence in one layer, without cells: arrays that are replaced, never written to."""


class Layer(ABC):
    """A cache of the model's."""

    batches = False
    """True if several sequences can be computed at once"""

    @abstractmethod
    def new(self) -> State:
        """The state of an empty sequence."""

    @abstractmethod
    def view(self, step: ForwardStep, state: State) -> Any:
        """The object passed to the model as its cache in one forward."""

    @abstractmethod
    def after(self, view: Any) -> State:
        """The state that a forward left in ``view``."""

    def trim(self, state: State, n: int) -> None:
        """Take back ``n`` tokens of a state that changes in place."""
        return

    def holds(self, state: State, length: int) -> bool:
        """Return True if a state that changes in place can be cut to ``length`` tokens."""
        return True

    def copy(self, state: State) -> State:
        """A copy of the state for another sequence."""
        return state

    def arrays(self, state: State) -> list[mx.array]:
        """The arrays to evaluate after a forward, without cells."""
        return []

    def measure_bytes(self, state: State) -> CellBytes:
        """The bytes that sequences take, from the state of a sequence of one token."""
        return CellBytes(0, sum(array.nbytes for array in self.arrays(state)))


class Recurrent(Layer):
    """A recurrent state or a short convolution: it cannot be rolled back, so earlier ones are kept."""

    def __init__(self, size: int) -> None:
        self._size = size

    def new(self) -> State:
        return [None] * self._size

    def view(self, step: ForwardStep, state: State) -> ArraysCache:
        cache = ArraysCache(self._size)
        cache.cache = list(state)
        return cache

    def after(self, view: ArraysCache) -> State:
        return list(view.cache)

    def arrays(self, state: State) -> list[mx.array]:
        return [array for array in state if array is not None]


class Cells(Layer):
    """Attention: a sequence has no state beside its row of cells in ``attention``."""

    batches = True

    def __init__(self, attention: Attention) -> None:
        self.attention = attention

    def new(self) -> State:
        return None

    def view(self, step: ForwardStep, state: State) -> Any:
        return self.attention.view(step)

    def after(self, view: Any) -> State:
        return None

    def measure_bytes(self, state: State) -> CellBytes:
        ring = self.attention.ring
        each = sum(array.nbytes // array.shape[2] for array in self.attention.arrays())
        return CellBytes(each) if ring is None else CellBytes(0, each * ring)


class Foreign(Layer):
    """A cache of mlx-lm's for which localspec has no layer of its own: it changes in place."""

    def __init__(self, kind: type, make: Callable[[], Any]) -> None:
        self._make, self.name = make, kind.__name__
        self.trims = _always_trims(make())

    def new(self) -> State:
        return self._make()

    def view(self, step: ForwardStep, state: State) -> Any:
        return state

    def after(self, view: Any) -> State:
        return view

    def holds(self, state: State, length: int) -> bool:
        if type(state) is not ChunkedKVCache:
            return True
        # It drops cells that no later token attends to, and does not count them when it is trimmed.
        return bool(state.start_position <= length - length % state.chunk_size)

    def trim(self, state: State, n: int) -> None:
        trimmed = state.trim(n)
        if trimmed != n:
            raise EngineError(f"internal error: mlx-lm's {self.name} rolled back {trimmed} tokens, not {n}")

    def copy(self, state: State) -> State:
        return deepcopy(state)

    def arrays(self, state: State) -> list[mx.array]:
        return [array for _, array in tree_flatten(state.state) if isinstance(array, mx.array)]

    def measure_bytes(self, state: State) -> CellBytes:
        cells = [array for array in self.arrays(state) if array.ndim == len(("row", "head", "cell", "n"))]
        return CellBytes(sum(array.nbytes // array.shape[2] for array in cells))


class Layers(NamedTuple):
    """All layers of a model. Those that share an entry of its list of caches, such as attention and a
    recurrent state side by side, are listed one by one."""

    parts: Sequence[Layer] = ()
    entries: Sequence[int] = ()
    """the number of layers that share each entry; 0: the entry is a layer"""

    def new(self) -> list[State]:
        return [part.new() for part in self.parts]

    def views(self, step: ForwardStep, states: Sequence[State]) -> list[Any]:
        views = (part.view(step, state) for part, state in zip(self.parts, states, strict=True))
        return [CacheList(*islice(views, n)) if n else next(views) for n in self.entries]

    def after(self, views: Sequence[Any]) -> list[State]:
        each = (
            v for view, n in zip(views, self.entries, strict=True) for v in (view.caches if n else [view])
        )
        return [part.after(view) for part, view in zip(self.parts, each, strict=True)]


def layers_of(model: Any, *, slack: int, bits: int) -> Layers:
    """Make the layers for the caches that mlx-lm makes for ``model``; see :class:`Attention`."""
    parts, entries = list[Layer](), list[int]()
    for i, cache in enumerate(make_prompt_cache(model)):
        make = partial(_entry, model, i)
        is_shared = type(cache) is CacheList and not _always_trims(cache)
        entries.append(len(cache.caches) if is_shared else 0)
        if is_shared:
            shared = enumerate(cache.caches)
            parts += [_layer(each, slack, bits, partial(_part, make, n)) for n, each in shared]
        else:
            parts.append(_layer(cache, slack, bits, make))
    return Layers(parts, entries)


def _entry(model: Any, i: int) -> Any:
    return make_prompt_cache(model)[i]


def _part(make: Callable[[], Any], n: int) -> Any:
    return make().caches[n]


def _layer(cache: Any, slack: int, bits: int, make: Callable[[], Any]) -> Layer:
    kind = type(cache)
    if kind is KVCache:
        return Cells(Attention(None, slack=slack, bits=bits))
    if kind is RotatingKVCache and not cache.keep:
        return Cells(Attention(cache.max_size, slack=slack))
    if kind is ArraysCache:
        return Recurrent(len(cache.cache))
    return Foreign(kind, make)


def _always_trims(cache: Any) -> bool:
    """Return True if the cache can always be cut back. An entry of several caches of plain attention counts
    as one: the models that have it (sparse attention) write to its arrays, so it stays mlx-lm's."""
    if type(cache) is CacheList:
        return all(_always_trims(each) for each in cache.caches)
    return type(cache) in TRIMMABLE
