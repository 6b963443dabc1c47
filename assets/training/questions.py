"""Questions about the library and their answers, and questions about names that do not exist."""

import random
import zlib
from collections.abc import Iterator

from .chat import Example, chat_example, fenced
from .library import Entry, exists
from .words import Identifiers

WHAT = (
    "What does `{path}` do?",
    "What does {path} do?",
    "what does {path} do",
    "What is `{path}`?",
    "What is {path} for?",
    "In Python, what does {path} do?",
    "{path}",
)
EXPLAIN = (
    "Explain `{path}`.",
    "Explain {path}",
    "Tell me about {path} in Python.",
    "Can you explain `{path}`?",
)
USE = (
    "How do I use `{path}`?",
    "How do I use {path}?",
    "how to use {path}",
    "Show me how to use `{path}`.",
    "Give me an example of {path}.",
)
WORDINGS = (*WHAT, *EXPLAIN, *USE)
UNKNOWN = "I do not know `{path}`."
CALL_SHARE = 0.15  # names of functions that are asked for with `()` behind them
HOLD_BACK_EVERY = 8  # pairs of a name and a wording
UNKNOWN_SHARE = 0.25  # of all questions
CONVERSATION_SHARE = 0.12  # of the questions, asked two or three in a row
SYSTEM_SHARE = 0.08
SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful coding assistant.",
    "You are a Python expert. Answer briefly.",
    "Answer questions about Python's standard library.",
)


def is_held_back(path: str, wording: str) -> bool:
    """True if this name is never asked for in this wording while the model is trained."""
    return zlib.crc32(f"{path} {wording}".encode()) % HOLD_BACK_EVERY == 0


def usage(entry: Entry) -> str:
    """The example with its import, in a fence."""
    lines = [f"import {entry.module}", ""] if entry.module and entry.example else []
    return fenced("\n".join([*lines, entry.example or f"import {entry.path}"]))


def description(entry: Entry) -> str:
    """Signature, kind and the first sentences."""
    place = f" of `{entry.module}`" if entry.module else ""
    heading = f"`{entry.path}{entry.signature}` is a {entry.kind}{place}."
    return f"{heading}\n\n{' '.join(entry.sentences)}"


def answer(entry: Entry, wording: str) -> str:
    """The answer to a question in one of WORDINGS."""
    if wording in USE:
        return f"{usage(entry)}\n{entry.sentences[0]}"
    return description(entry) if wording in EXPLAIN else entry.sentences[0]


def asked(path: str, wording: str, *, callable_name: bool, rng: random.Random) -> str:
    """The question, now and then with parentheses behind a function's name."""
    call = callable_name and rng.random() < CALL_SHARE
    return wording.format(path=f"{path}()" if call else path)


def misspelt(name: str, rng: random.Random) -> str:
    """A name with one letter left out, doubled or exchanged."""
    at = rng.randrange(1, max(2, len(name) - 1))
    left_out, doubled = name[:at] + name[at + 1 :], name[:at] + name[at - 1] + name[at:]
    exchanged = name[:at] + rng.choice("aeioulnrst") + name[at + 1 :]
    return rng.choice((left_out, doubled, exchanged))


class Inventor:
    """A source of names that look like the library's and do not exist."""

    def __init__(self, entries: list[Entry], words: list[str], rng: random.Random) -> None:
        self._rng = rng
        self._identifiers = Identifiers(words, rng)
        self._modules = sorted({entry.module for entry in entries if entry.module})
        self._paths = sorted(entry.path for entry in entries)
        self._names = sorted({path.rsplit(".", 1)[-1] for path in self._paths})

    def _candidate(self) -> str:
        rng, identifiers = self._rng, self._identifiers
        module = rng.choice(self._modules)
        path = rng.choice(self._paths)
        head, _, name = path.rpartition(".")
        dot = "." if head else ""
        return rng.choice(
            (
                f"{module}.{identifiers.identifier()}",
                f"{module}.{identifiers.identifier()}",
                f"{module}.{rng.choice(self._names)}",
                f"{head}{dot}{misspelt(name, rng)}",
                f"{identifiers.word()}.{rng.choice(self._names)}",
                f"{identifiers.word()}.{identifiers.identifier()}",
                identifiers.identifier(),
            )
        )

    def name(self) -> str:
        """A dotted name that is nothing in this interpreter."""
        while exists(found := self._candidate()) or found in self._paths:
            pass
        return found


def unknown_names(entries: list[Entry], words: list[str], count: int, seed: str) -> list[str]:
    """`count` different names that do not exist; equal seeds give equal names."""
    inventor = Inventor(entries, words, random.Random(f"unknown {seed}"))
    names: dict[str, None] = {}
    while len(names) < count:
        names[inventor.name()] = None
    return list(names)


def exchanges(entries: list[Entry], words: list[str], seed: str) -> list[tuple[str, str]]:
    """Every name in every wording that is not held back, and unknown names between, shuffled."""
    rng = random.Random(f"questions {seed}")
    found = [
        (
            asked(entry.path, wording, callable_name=entry.kind in ("function", "method"), rng=rng),
            answer(entry, wording),
        )
        for entry in entries
        for wording in WORDINGS
        if not is_held_back(entry.path, wording)
    ]
    count = int(len(found) * UNKNOWN_SHARE / (1 - UNKNOWN_SHARE))
    for path in unknown_names(entries, words, count, seed):
        question = asked(path, rng.choice(WORDINGS), callable_name=True, rng=rng)
        found.append((question, UNKNOWN.format(path=path)))
    rng.shuffle(found)
    return found


def question_examples(entries: list[Entry], words: list[str], seed: str) -> Iterator[Example]:
    """The exchanges, some of them as conversations and some behind a system prompt."""
    rng = random.Random(f"conversations {seed}")
    remaining = exchanges(entries, words, seed)
    while remaining:
        count = rng.randint(2, 3) if rng.random() < CONVERSATION_SHARE else 1
        system = rng.choice(SYSTEM_PROMPTS) if rng.random() < SYSTEM_SHARE else ""
        yield chat_example(remaining[-count:], system=system)
        del remaining[-count:]
