"""The JSON-Schema test suite: no instance that it calls invalid is a complete answer of its schema.

``LOCALSPEC_SCHEMA_SUITE`` names the folder of its repository, which holds ``tests/draft2020-12``.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.constraints.constraint import grammar_of_schema
from localspec.errors import InvalidOptions
from tests.constraints.test_constraint import BYTES, is_answer
from tests.toy import END

pytestmark = pytest.mark.slow

SUITE = "LOCALSPEC_SCHEMA_SUITE"
DRAFTS = [
    ("draft2020-12", "https://json-schema.org/draft/2020-12/schema", "Draft202012Validator"),
    ("draft2019-09", "https://json-schema.org/draft/2019-09/schema", "Draft201909Validator"),
    ("draft7", "http://json-schema.org/draft-07/schema#", "Draft7Validator"),
    ("draft6", "http://json-schema.org/draft-06/schema#", "Draft6Validator"),
    ("draft4", "http://json-schema.org/draft-04/schema#", "Draft4Validator"),
]
"""with the name of each and of its validator"""
MOST_ORDERS, LONGEST, WALKS = 24, 300, 4
CLOSES = (*b'"]}', END)


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


def is_taken(grammar: str, value: Any) -> bool:
    """True if the value, written in any order of names, is a complete answer."""
    texts = (json.dumps(one, ensure_ascii=False) for one in islice(orders(value), MOST_ORDERS))
    return any(is_answer(grammar, text.encode("utf-8", "surrogatepass")) for text in texts)


def write_answer(grammar: str, dice: random.Random) -> str | None:
    """Return an answer of random tokens; None if it does not end, or has a number beyond Python's."""
    constraint, text = BYTES.constraint(grammar), bytearray()
    while not constraint.ended and len(text) < LONGEST:
        allowed = np.flatnonzero(constraint.mask_allowed(()))
        closes = [token for token in allowed if token in CLOSES]
        token = int(dice.choice(closes if closes and dice.random() < 0.3 else list(allowed)))
        if token == END:
            break
        constraint.accept(token)
        text.append(token)
    is_whole = len(text) < LONGEST and "Infinity" not in json.dumps(json.loads(text))
    return text.decode() if is_whole else None


@pytest.mark.parametrize(("draft", "uri", "validator"), DRAFTS)
def test_no_invalid_instance_is_an_answer(draft: str, uri: str, validator: str) -> None:
    """Nor is an answer of random tokens invalid."""
    folder = Path(os.environ.get(SUITE, "/nowhere"), "tests", draft)
    if not folder.exists():
        pytest.skip(f"set {SUITE} to the folder of the JSON-Schema test suite")
    make, (taken, answers), wrong = getattr(pytest.importorskip("jsonschema_rs"), validator), (0, 0), []
    # Assertions of draft 7 in optional/content are annotations since, and here.
    files = (path for path in folder.rglob("*.json") if path != folder / "optional" / "content.json")
    for case in (case for path in files for case in json.loads(path.read_text("utf-8"))):
        try:
            schema = {"$schema": uri, **case["schema"]}
            BYTES.constraint(grammar := grammar_of_schema(schema))
        except (TypeError, InvalidOptions):  # it may be true or false
            continue
        tests = [test["data"] for test in case["tests"] if not test["valid"]]
        wrong += [(schema, each) for each in tests if is_taken(grammar, each)]
        texts = [write_answer(grammar, random.Random(number)) for number in range(WALKS)]
        valid = make(schema, validate_formats=True).is_valid
        wrong += [(schema, text) for text in texts if text is not None and not valid(json.loads(text))]
        taken, answers = taken + 1, answers + WALKS - texts.count(None)
    assert not wrong, wrong
    assert taken > 150 and answers > 500
