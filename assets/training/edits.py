"""Rename edits: the task in which most of the answer is a copy of the question."""

import keyword
import random
import re
from collections import Counter
from dataclasses import dataclass

from .chat import fenced

NEW_NAMES = (
    *("value", "item", "target", "data", "source", "result", "node", "entry", "payload"),
    *("handle", "count", "index", "name", "text", "buffer", "limit", "record", "token"),
)
LAST_RESORT = "renamed"
NOT_RENAMED = frozenset(keyword.kwlist) | {"self", "cls"}
NAME_PATTERN = re.compile(r"\b[a-z_][a-z0-9_]{2,}\b")

FIRST_REQUESTS = (
    "Rename `{old}` to `{new}` in this function:\n{code}",
    "In the code below, replace the name `{old}` with `{new}`.\n{code}",
    "Please rename {old} to {new}:\n{code}",
)
CONVERSATION_OPENERS = (
    "Rename `{old}` to `{new}` in this code:\n{code}",
    "In the code below, replace the name `{old}` with `{new}`.\n{code}",
    "Please rename {old} to {new}:\n{code}",
    "Here is some code:\n{code}\nRename `{old}` to `{new}`.",
)
FOLLOW_UPS = (
    "Now rename `{old}` to `{new}`.",
    "Next, replace `{old}` with `{new}`.",
    "Good. Rename `{old}` to `{new}` as well.",
    "Also rename {old} to {new}.",
)


@dataclass(frozen=True, slots=True)
class RenameEdit:
    """One rename: the source before and after, and the two names."""

    old: str
    new: str
    before: str
    after: str

    def request(self, templates: tuple[str, ...], rng: random.Random) -> str:
        """The user's message, in one of the given wordings."""
        wording = rng.choice(templates)
        return wording.format(old=self.old, new=self.new, code=fenced(self.before))

    def answer(self) -> str:
        """The assistant's message: the whole edited code."""
        return fenced(self.after)


def mentions(source: str, name: str) -> int:
    """How often `name` occurs in `source` as a whole word."""
    return len(re.findall(rf"\b{re.escape(name)}\b", source))


def rename(source: str, old: str, new: str) -> str:
    """Replace `old` wherever it is a whole word (code, strings and comments alike)."""
    return re.sub(rf"\b{re.escape(old)}\b", new, source)


def repeated_names(source: str, *, most: int) -> list[str]:
    """Names that occur 2 to `most` times, in order of first appearance; no keywords."""
    counts = Counter(NAME_PATTERN.findall(source))
    return [name for name, count in counts.items() if 2 <= count <= most and name not in NOT_RENAMED]


def fresh_name(source: str, rng: random.Random) -> str:
    """A new name that `source` does not use yet, so that the edit can be undone."""
    unused = [name for name in NEW_NAMES if not mentions(source, name)]
    return rng.choice(unused or [LAST_RESORT])


def rename_one_of(source: str, names: list[str], rng: random.Random) -> RenameEdit:
    """Rename one of `names` (not empty) to a name that is new in `source`."""
    old = rng.choice(names)
    new = fresh_name(source, rng)
    return RenameEdit(old=old, new=new, before=source, after=rename(source, old, new))
