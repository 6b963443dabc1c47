"""Generated schemas on the bundled pair: every answer is valid, and that of plain decoding."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

import localspec
from localspec.engine.engine import Engine
from localspec.protocol.options import Options
from localspec.protocol.requests import Request, TextPrompt
from tests.slow.share import share
from tests.toys import run_all

pytestmark = pytest.mark.slow

SCHEMAS = share(1000)
WORDS = ("name", "path", "size", "return", "self", "text wrap", "été", 'a"b', "x/y", "default_value")
PROPOSERS = ("none", "auto", "prompt-lookup", "draft")
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}


def schema(dice: random.Random, depth: int = 2) -> dict[str, Any]:
    """A schema of bounded answers."""
    kinds = ("text", "pattern", "integer", "number", "boolean", "enum", "any")
    kind = dice.choice((*kinds, *("array", "object") * 2 * bool(depth)))
    low = dice.randrange(3)
    match kind:
        case "text":
            return {"type": "string", "minLength": low, "maxLength": low + dice.randrange(9)}
        case "pattern":
            return {
                "type": "string",
                "pattern": dice.choice(("^[a-z_]{1,8}$", "^[0-9]{4}-[0-9]{2}$", "^(ab|c)+d$")),
            }
        case "integer":
            return {"type": "integer", "minimum": -low, "maximum": dice.choice((low, 10, 99_999))}
        case "number":
            return {"type": "number", "minimum": 0, "maximum": 10**low}
        case "boolean":
            return {"type": dice.choice(("boolean", "null"))}
        case "enum":
            return {"enum": [dice.choice((dice.choice(WORDS), dice.randrange(100), None)) for _ in range(3)]}
        case "any":
            return {"anyOf": [schema(dice, 0), {"type": "integer", "minimum": 0, "maximum": 9}]}
        case "array":
            return {"type": "array", "items": schema(dice, depth - 1), "minItems": low, "maxItems": low + 2}
    names = dice.sample(WORDS, dice.randrange(1, 5))
    needs = [name for name in names if dice.random() < 0.7]
    properties = {name: schema(dice, depth - 1) for name in names}
    return {"type": "object", "properties": properties, "required": needs, "additionalProperties": False}


def is_valid(value: Any, of: dict[str, Any]) -> bool:
    if "anyOf" in of:
        return any(is_valid(value, each) for each in of["anyOf"])
    if "enum" in of:
        return bool(value in of["enum"]) and not isinstance(value, bool)
    if not isinstance(value, TYPES[of["type"]]) or (isinstance(value, bool) and of["type"] != "boolean"):
        return False
    if isinstance(value, str):
        long_enough = bool(of.get("minLength", 0) <= len(value) <= of.get("maxLength", 99))
        return long_enough and re.search(of.get("pattern", ""), value) is not None
    if isinstance(value, int | float):
        return isinstance(value, bool) or bool(of["minimum"] <= value <= of["maximum"])
    if isinstance(value, list):
        fits = bool(of["minItems"] <= len(value) <= of["maxItems"])
        return fits and all(is_valid(v, of["items"]) for v in value)
    if isinstance(value, dict):
        inner = of["properties"]
        return set(of["required"]) <= set(value) and all(is_valid(v, inner[k]) for k, v in value.items())
    return value is None


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with localspec.load("bundled", threads=1, n_ctx=1024) as engine:
        while engine.rest():
            pass
        yield engine


def answers(engine: Engine, options: list[dict[str, Any]], prompt: str, number: int) -> list[str]:
    """The texts of requests that run together, over no cells of others."""
    engine.forget("run")
    running = [
        engine.submit(Request(prompt=TextPrompt(prompt), options=Options(exactness="strict", **each)))
        for each in options
    ]
    run_all(engine, running)
    assert all(each.error is None for each in running), number
    return [f"{each.finish}: {each.text.text}" for each in running]


@pytest.mark.parametrize("part", range(4))
def test_every_proposer_gives_the_same_valid_answer(engine: Engine, part: int) -> None:
    ended = 0
    for number in range(part, SCHEMAS, 4):
        dice = random.Random(number)
        form, prompt = schema(dice), f"def {dice.choice(WORDS[:5])}(self):\n    return "
        how = dice.choice(({"temperature": 0.0}, {"temperature": 0.9, "seed": number}))
        asks = [{"schema": form, "proposer": p, "max_tokens": 200, **how} for p in PROPOSERS]
        alone = {answers(engine, [ask], prompt, number)[0] for ask in asks}
        assert alone == set(answers(engine, asks, prompt, number)) and len(alone) == 1, (number, form, alone)
        finish, _, text = alone.pop().partition(": ")
        if finish == "stop":
            ended += 1
            assert is_valid(json.loads(text), form), (number, form, text)
    assert ended >= 0.5 * SCHEMAS / 4
