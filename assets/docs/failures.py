"""Table of all typed errors, from the error tree."""

from __future__ import annotations

from collections.abc import Iterator

from assets.docs.parts import table
from localspec.errors import LocalspecError


def body() -> str:
    """Return a row for each error class with a code: code, class, exit code, usual remedy."""
    coded = [kind for kind in kinds() if "code" in vars(kind)]
    return table(("code", "class", "exit code", "what to do"), map(_row, sorted(coded, key=_order)))


def kinds(root: type[LocalspecError] = LocalspecError) -> Iterator[type[LocalspecError]]:
    """Yield the classes of :mod:`localspec.errors`, parents first."""
    if root.__module__ == LocalspecError.__module__:
        yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


def _order(kind: type[LocalspecError]) -> tuple[str, str]:
    return kind.code, kind.__name__


def _row(kind: type[LocalspecError]) -> tuple[str, ...]:
    return f"`{kind.code}`", f"`{kind.__name__}`", str(int(kind.exit_code)), kind.default_remedy
