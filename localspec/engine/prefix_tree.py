"""A radix tree of token sequences, which finds those that share the longest beginning with a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from localspec.speculation.draft import shared_length

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Node(Generic[T]):
    """A node: ``tokens`` lead to it from its parent; ``values`` are those whose tokens end here."""

    tokens: list[int]
    values: list[T] = field(default_factory=list)
    children: dict[int, _Node[T]] = field(default_factory=dict)

    def everything(self) -> Iterator[T]:
        yield from self.values
        for child in self.children.values():
            yield from child.everything()

    def split(self, at: int) -> None:
        """Split the node after ``at`` of its tokens: the rest leads to a new child with all its content."""
        child = _Node(self.tokens[at:], self.values, self.children)
        self.tokens, self.values, self.children = self.tokens[:at], [], {child.tokens[0]: child}


class PrefixTree(Generic[T]):
    """Values by lists of tokens; a list can have several values."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node([])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[T]:
        return self._root.everything()

    def add(self, tokens: Sequence[int], value: T) -> None:
        """Add ``value`` under ``tokens``."""
        node, rest = self._root, list(tokens)
        while rest:
            child = node.children.get(rest[0])
            if child is None:
                child = node.children[rest[0]] = _Node(rest)
            shared = shared_length(child.tokens, rest)
            if shared < len(child.tokens):
                child.split(shared)
            node, rest = child, rest[shared:]
        node.values.append(value)

    def remove(self, tokens: Sequence[int], value: T) -> None:
        """Remove ``value`` from ``tokens``; raises KeyError or ValueError if it is not there."""
        path, rest = [self._root], list(tokens)
        while rest:
            node = path[-1].children[rest[0]]
            if rest[: len(node.tokens)] != node.tokens:
                raise KeyError(rest[0])
            path.append(node)
            rest = rest[len(node.tokens) :]
        path[-1].values.remove(value)
        for parent, node in zip(path[-2::-1], path[:0:-1], strict=True):
            if node.values or node.children:
                break
            del parent.children[node.tokens[0]]

    def matches(self, tokens: Sequence[int]) -> Iterator[tuple[int, T]]:
        """Yield (number of leading tokens shared with ``tokens``, value) of all values, the longest first."""
        path: list[tuple[int, _Node[T]]] = [(0, self._root)]
        at, rest = 0, list(tokens)
        while rest and (node := path[-1][1].children.get(rest[0])) is not None:
            shared = shared_length(node.tokens, rest)
            at, rest = at + shared, rest[shared:]
            path.append((at, node))
            if shared < len(node.tokens):
                break
        below: _Node[T] | None = None
        for at, node in reversed(path):
            yield from ((at, value) for value in node.values)
            for child in node.children.values():
                if child is not below:
                    yield from ((at, value) for value in child.everything())
            below = node
