"""The time of the masks of constrained answers, without a model's forwards.

    python -m assets.bench.masks --model FILE.gguf [--turns 20]

The texts below are read token by token under their forms, with the file's vocabulary and without its weights.
A row has the positions with a choice, whose masks are timed, and the forced ones, which have none; the
microseconds of a step to the next position with its mask; and those of the grammar's compilation. They are
those of the thread's own time, so that other programs do not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from localspec.backends.base import Vocabulary
from localspec.backends.llama_cpp.native import load_vocabulary
from localspec.backends.llama_cpp.vocabulary import LlamaVocabulary
from localspec.constraints.constraint import Constraint, Grammars, grammar_of
from localspec.protocol.options import parse_options

PERSON = {
    "name": {"type": "string", "maxLength": 40},
    "born": {"type": "string", "format": "date"},
    "mail": {"type": "string", "format": "email"},
    "role": {"enum": ["engineer", "editor", "manager"]},
    "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "score": {"type": "number"},
    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
    "notes": {"type": "string"},
}
RECORD = {
    "name": "Ada Lovelace",
    "born": "1815-12-10",
    "mail": "ada@example.org",
    "role": "engineer",
    "age": 36,
    "score": 9.75,
    "tags": ["mathematics", "poetry", "first programmer"],
    "notes": 'She wrote "Notes" on the Analytical Engine,\nand what it could do beyond numbers.',
}
SCHEMA = {"type": "object", "properties": PERSON, "required": list(PERSON)}
SUM = "(12 + total) * rate - (discount / 2 + 7) * (a + b + c)"
CITIES = [
    f"{a} {b}" for a in ("New", "Old", "Upper", "Lower") for b in ("Town", "Bridge", "Field", "Port", "York")
]
LARK = r"""start: term (OP term)*
term: NAME | NUMBER | "(" start ")"
OP: / [-+*\/] /
NAME: /[a-z]+/
NUMBER: /[0-9]+/"""
GBNF = r"""root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (pair (", " pair)*)? "}"
pair ::= string ": " value
array ::= "[" (value (", " value)*)? "]"
string ::= "\"" ([^"\\\n] | "\\" ["\\nrt])* "\""
number ::= "-"? [0-9]+ ("." [0-9]+)?"""
LINE = r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} (INFO|WARN|ERROR) [a-z.]+: \S+( \S+)*"
FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "JSON schema": ({"schema": SCHEMA}, json.dumps(RECORD)),
    "JSON schema, any object": ({"schema": {"type": "object"}}, json.dumps(RECORD)),
    "regular expression": (
        {"regex": LINE},
        "2026-11-26 17:40:02 WARN http.server: 3 requests wait, 2 are served",
    ),
    "choice of 20": ({"choice": CITIES}, "Lower York"),
    "Lark, sums": ({"grammar": LARK}, SUM),
    "GBNF, JSON": ({"grammar": GBNF, "grammar_syntax": "gbnf"}, json.dumps(RECORD)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=20)
    given = parser.parse_args()
    vocabulary = LlamaVocabulary(load_vocabulary(str(given.model)))
    grammars = Grammars(vocabulary)
    grammars.constraint("start: /a/")  # reads the vocabulary
    print(f"{vocabulary.size:,} tokens\n\n| form | choices | forced | median | p99 | most | compiled |")
    print("|---|---|---|---|---|---|---|")
    for name, (options, text) in FORMS.items():
        before = time.thread_time()
        grammar = str(grammar_of(parse_options(options)))
        grammars.constraint(grammar)
        compiled = 1e6 * (time.thread_time() - before)
        rounds = [steps(grammars.constraint(grammar), vocabulary, text) for _ in range(given.turns)]
        micros = [each for chosen, _ in rounds for each in chosen]
        p99 = statistics.quantiles(micros, n=100, method="inclusive")[-1]
        figures = (len(rounds[0][0]), rounds[0][1], statistics.median(micros), p99, max(micros), compiled)
        print(f"| {name} | {' | '.join(f'{each:,.0f}' for each in figures)} |")


def steps(constraint: Constraint, vocabulary: Vocabulary, text: str) -> tuple[list[float], int]:
    """Read the text; return the microseconds of steps to a choice, and the number of forced tokens."""
    micros, forced = list[float](), 0
    while text:
        only = constraint.only(())
        token = vocabulary.encode(text, special=False)[0] if only is None else only
        text = text.encode()[len(vocabulary.piece(token)) :].decode()
        before = time.thread_time()
        constraint.accept(token)
        constraint.allowed(())
        if constraint.only(()) is None:
            micros.append(1e6 * (time.thread_time() - before))
        else:
            forced += 1
    return micros, forced


if __name__ == "__main__":
    main()
