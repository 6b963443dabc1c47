"""A limit of tokens on a model's thoughts: behind it, the mark that ends a thought is forced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.constraints.constraint import Constraint


class Thoughts(NamedTuple):
    """The marks around thoughts, the tokens ``closing`` of the second one with what stands behind it, and the
    text between a thought and the next; ``opened``: the answer begins within one."""

    opens: bytes
    closes: bytes
    closing: tuple[int, ...]
    link: bytes = b""
    opened: bool = False


class Budget:
    """The state of one answer, as of a :class:`Constraint`: thoughts end within ``most`` tokens of it, and
    ``inner``, if there is one, holds as well. ``piece`` returns a token's text. What is forced depends on the
    tokens before alone, so that it is the same however they were found."""

    def __init__(
        self,
        most: int,
        thoughts: Thoughts,
        piece: Callable[[int], bytes],
        size: int,
        inner: Constraint | None,
    ) -> None:
        self._most, self._thoughts, self._piece, self._size, self._inner = most, thoughts, piece, size, inner
        self._accepted: list[int] = []
        self._text = thoughts.opens if thoughts.opened else b""

    @property
    def ended(self) -> bool:
        return self._inner is not None and self._inner.ended

    def mask_allowed(self, drafted: Sequence[int]) -> NDArray[np.bool_]:
        token = self._due(drafted)
        if token is None and self._inner is not None:
            return self._inner.mask_allowed(drafted)
        mask = np.full(self._size, token is None)
        if token is not None:
            mask[token] = True
        return mask

    def allows(self, token: int, drafted: Sequence[int]) -> bool:
        due = self._due(drafted)
        return token == due if due is not None else self._inner is None or self._inner.allows(token, drafted)

    def only(self, drafted: Sequence[int]) -> int | None:
        due = self._due(drafted)
        return self._inner.only(drafted) if due is None and self._inner is not None else due

    def prefix(self, draft: Sequence[int]) -> int:
        length = len(draft) if self._inner is None else self._inner.prefix(draft)
        wrong = (i for i in range(length) if self._due(draft[:i]) not in (None, draft[i]))
        return next(wrong, length)

    def find_forced(self, most: int) -> list[int]:
        if self._inner is not None and self._due(()) is None and not self._thinks(self._text):
            return self._inner.find_forced(most)
        found: list[int] = []
        while len(found) < most and (token := self.only(found)) is not None:
            found.append(token)
        return found

    def accept(self, token: int) -> None:
        self._accepted.append(token)
        self._text += self._piece(token)
        if self._inner is not None:
            self._inner.accept(token)

    def _due(self, drafted: Sequence[int]) -> int | None:
        """Return the token that follows ``drafted`` in the end of a thought; None where none must end."""
        if len(self._accepted) + len(drafted) < self._most:
            return None
        text, closing = self._text + b"".join(map(self._piece, drafted)), self._thoughts.closing
        last = (*self._accepted[-len(closing) :], *drafted)
        for n in range(min(len(closing) - 1, len(last)), 0, -1):
            before = len(text) - sum(len(self._piece(token)) for token in last[-n:])
            if last[-n:] == closing[:n] and self._thinks(text[:before]):
                return closing[n]
        return closing[0] if self._thinks(text) else None

    def _thinks(self, text: bytes) -> bool:
        """True if ``text``, from the answer's beginning on, is thoughts of which the last one goes on."""
        thoughts = self._thoughts
        while (text := text.lstrip()).startswith(thoughts.opens):
            _, ended, text = text.partition(thoughts.closes)
            if not ended:
                return True
            text = text.lstrip().removeprefix(thoughts.link)
        return False
