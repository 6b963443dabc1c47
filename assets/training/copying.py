"""The first lessons of renaming: copies and copies with a substitution, of invented lines."""

import keyword
import random
from collections.abc import Iterator

from .chat import Example, chat_example, fenced
from .edits import CONVERSATION_OPENERS, FIRST_REQUESTS, FOLLOW_UPS, RenameEdit, mentions, rename
from .words import Identifiers

COPY_SHARE = 0.15  # plain copies, the simplest case of all
RELATED_SHARE = 0.3  # lines with a name that contains the one to be renamed
FOLLOW_UP_SHARE = 0.2
COPY_REQUESTS = ("Repeat this code:\n{code}", "Copy the code below.\n{code}", "{code}\nWrite this again.")
LINES = (
    *("{a} = {b}({c})", "{a} = {b}.{c}", "{a}.{b} = {c}", "return {a}", "return {a}.{b}({c})", "if {a}:"),
    *("{a} = {b}[{c}]", "for {a} in {b}:", "{a}({b}, {c}={d})", "if {a} is None:", "while {a} < {b}:"),
    *("{a} = [{b}({c}) for {c} in {d}]", '{a} = "{b}"', "# {a} the {b} of {c}", "del {a}[{b}]", "{a} += {b}"),
    *("with {a}({b}) as {c}:", "raise {a}({b})", "{a}, {b} = {c}", "assert {a} == {b}", "yield {a}"),
    *(
        "def {a}({b}, {c}):",
        "def {a}(self, {b}):",
        "self.{a} = {a}",
        "self.{a}({b}, {c})",
        "return self.{a}[{b}]",
    ),
    *(
        "{a} = {b} or {c}",
        "{a} = {{{b}: {c}}}",
        "not {a} and {b}",
        "except {a} as {b}:",
        "import {a}",
        "{a} = {b} - 1",
    ),
    *(
        'print(f"{a}: {{{b}}}")',
        "{a} = lambda {b}: {c}",
        "class {a}({b}):",
        "elif {a} in {b}:",
        "{a}.{b}.{c}({d})",
    ),
)
INDENTS = ("", "", "    ", "    ", "    ", "        ", "        ", "            ")
LITTLE_NAMES = ("value", "self", "name", "data", "None", "x", "i", "key", "0", "1")


def invented_code(names: list[str], lines: int, rng: random.Random) -> str:
    """`lines` lines that mention `names`, each ended by a line feed."""
    written = []
    for _ in range(lines):
        chosen = [rng.choice(names if rng.random() < 0.85 else LITTLE_NAMES) for _ in range(4)]
        line = rng.choice(LINES).format(**dict(zip("abcd", chosen, strict=True)))
        written.append(rng.choice(INDENTS) + line + "\n")
    return "".join(written)


def related_names(name: str, identifiers: Identifiers, rng: random.Random) -> list[str]:
    """Names that contain `name` as a part and are not it."""
    other = identifiers.word()
    return rng.sample([f"{name}_{other}", f"{other}_{name}", f"{name}s", f"_{name}", f"{name}2"], 2)


def substitution(lines: int, identifiers: Identifiers, rng: random.Random) -> RenameEdit:
    """A rename in invented code that mentions the old name at least once."""
    while True:
        old, new, *others = identifiers.several(rng.randint(4, 5 + lines // 2))
        if rng.random() < RELATED_SHARE:
            others += related_names(old, identifiers, rng)
        source = invented_code([old, *others, *([old] * (len(others) // 3))], lines, rng)
        if mentions(source, old) and not mentions(source, new) and not keyword.iskeyword(old):
            return RenameEdit(old, new, source, rename(source, old, new))


def next_substitution(before: str, identifiers: Identifiers, rng: random.Random) -> RenameEdit | None:
    """A rename of another name in code that was just edited; None where there is no name."""
    names = [each for each in identifiers.several(1) if not mentions(before, each)]
    found = sorted(set(word for word in before.replace(".", " ").split() if word.isidentifier()))
    usable = [word for word in found if not keyword.iskeyword(word) and word != "self"]
    if not usable or not names:
        return None
    old = rng.choice(usable)
    return RenameEdit(old, names[0], before, rename(before, old, names[0]))


def copying_examples(count: int, most_lines: int, words: list[str], seed: str) -> Iterator[Example]:
    """`count` copies and substitutions of 1 to `most_lines` lines, short ones more often."""
    rng = random.Random(f"copying {seed}")
    identifiers = Identifiers(words, rng)
    for _ in range(count):
        lines = rng.randint(1, rng.randint(1, most_lines))
        if rng.random() < COPY_SHARE:
            code = fenced(invented_code(identifiers.several(4 + lines // 2), lines, rng))
            yield chat_example([(rng.choice(COPY_REQUESTS).format(code=code), code)])
            continue
        edit = substitution(lines, identifiers, rng)
        wordings = rng.choice((FIRST_REQUESTS, CONVERSATION_OPENERS))
        exchanges = [(edit.request(wordings, rng), edit.answer())]
        again = next_substitution(edit.after, identifiers, rng) if rng.random() < FOLLOW_UP_SHARE else None
        if again is not None:
            exchanges.append((again.request(FOLLOW_UPS, rng), again.answer()))
        yield chat_example(exchanges)
