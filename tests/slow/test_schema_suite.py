"""The JSON-Schema test suite: no instance that it calls invalid is a complete answer of its schema.

``LOCALSPEC_SCHEMA_SUITE`` names the folder of its repository, which holds ``tests/draft2020-12``.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.backends.toy import END, ToyVocabulary
from localspec.constraints.constraint import Grammars, grammar_of_schema
from localspec.errors import InvalidOptions

pytestmark = pytest.mark.slow

SUITE = "LOCALSPEC_SCHEMA_SUITE"
DRAFTS = {
    "draft2020-12": ("https://json-schema.org/draft/2020-12/schema", "Draft202012Validator"),
    "draft2019-09": ("https://json-schema.org/draft/2019-09/schema", "Draft201909Validator"),
    "draft7": ("http://json-schema.org/draft-07/schema#", "Draft7Validator"),
    "draft6": ("http://json-schema.org/draft-06/schema#", "Draft6Validator"),
    "draft4": ("http://json-schema.org/draft-04/schema#", "Draft4Validator"),
}
"""with the name of each and of its validator"""
ANNOTATIONS = ("optional/content",)
"""assertions of draft 7 that are annotations since, and here"""
MOST_ORDERS, LONGEST, WALKS = 24, 300, 4
CLOSES = (*b'"]}', END)
GRAMMARS = Grammars(ToyVocabulary())


def orders(value: Any) -> Iterator[Any]:
    """The value with its objects' names in other orders: a schema's grammar has one of them."""
    if isinstance(value, list):
        yield from map(list, product(*(list(islice(orders(each), MOST_ORDERS)) for each in value)))
    elif isinstance(value, dict):
        for names in permutations(value):
            inner = (list(islice(orders(value[name]), MOST_ORDERS)) for name in names)
            yield from (dict(zip(names, each, strict=True)) for each in product(*inner))
    else:
        yield value


def is_answer(grammar: str, value: Any) -> bool:
    """True if the value, written in any order of names, is a complete answer."""
    for one in islice(orders(value), MOST_ORDERS):
        for is_ascii in (True, False):
            constraint = GRAMMARS.constraint(grammar)
            for byte in json.dumps(one, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass"):
                if constraint.ended or not constraint.allows(byte, ()):
                    break
                constraint.accept(byte)
            else:
                if constraint.ended or constraint.allows(END, ()):
                    return True
    return False


def written(grammar: str, dice: random.Random) -> str | None:
    """An answer of random tokens; None if it does not end."""
    constraint, text = GRAMMARS.constraint(grammar), bytearray()
    while not constraint.ended:
        allowed = np.flatnonzero(constraint.allowed(()))
        closes = [token for token in allowed if token in CLOSES]
        token = int(dice.choice(closes if closes and dice.random() < 0.3 else list(allowed)))
        if token == END:
            break
        if len(text) == LONGEST:
            return None
        constraint.accept(token)
        text.append(token)
    return text.decode()


def taken(schema: dict[str, Any]) -> str | None:
    """The schema's grammar; None if it is refused."""
    try:
        grammar = grammar_of_schema(schema)
        GRAMMARS.constraint(grammar)
    except InvalidOptions:
        return None
    return grammar


def wrong_answers(
    case: Any, schema: dict[str, Any], make: Callable[..., Any], count: Counter[str]
) -> Iterator[Any]:
    """Invalid instances that are answers, and answers that the validator made by ``make`` calls invalid."""
    grammar = taken(schema)
    count["schemas taken" if grammar else "schemas refused"] += 1
    if grammar is None:
        return
    validator = make(schema, validate_formats=True)
    for test in case["tests"]:
        accepted = is_answer(grammar, test["data"])
        kind = "valid" if test["valid"] else "invalid"
        count[f"{kind}, {'taken' if accepted else 'refused'}"] += 1
        if accepted and not test["valid"]:
            yield schema, test["data"]
    for number in range(WALKS):
        text = written(grammar, random.Random(number))
        # A number can lie beyond those of Python and of the validator.
        if text is not None and "Infinity" not in json.dumps(value := json.loads(text)):
            count["answers"] += 1
            if not validator.is_valid(value):
                yield schema, text


@pytest.mark.parametrize("draft", DRAFTS)
def test_no_invalid_instance_is_an_answer(draft: str) -> None:
    folder = Path(os.environ.get(SUITE, "/nowhere"), "tests", draft)
    if not folder.exists():
        pytest.skip(f"set {SUITE} to the folder of the JSON-Schema test suite")
    uri, validator = DRAFTS[draft]
    make = getattr(pytest.importorskip("jsonschema_rs"), validator)
    wrong, total = list[Any](), Counter[str]()
    for file in sorted(folder.rglob("*.json")):
        name, count = str(file.relative_to(folder).with_suffix("")), Counter[str]()
        cases = [] if name in ANNOTATIONS else json.loads(file.read_text("utf-8"))
        for case in cases:
            if isinstance(case["schema"], dict):
                wrong += wrong_answers(case, {"$schema": uri, **case["schema"]}, make, count)
        print(f"{draft} {name}: {dict(sorted(count.items()))}")
        total += count
    print(f"{draft}: {dict(sorted(total.items()))}")
    assert not wrong, wrong
    assert total["schemas taken"] > 150 and total["answers"] > 500
