"""Generated forms on the bundled pair and both backends: answers are valid, and those of plain decoding."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import localspec
from localspec.engine.engine import Engine
from localspec.engine.sequence import Sequence
from localspec.models.catalogue import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.protocol.options import Options
from localspec.protocol.requests import Request, TextPrompt
from tests.parity.loaded import measured, quantised
from tests.slow.share import share
from tests.toys import run_all

pytestmark = pytest.mark.slow

FORMS = share(1000)
PARTS = 8
"""tests of one backend that share the forms"""
TOKENS = 120
WORDS = ("name", "path", "size", "return", "self", "text wrap", "été", 'a"b', "x/y", "default_value")
PROPOSERS = {"none": None, "auto": None, "prompt-lookup": 5, "draft": 5}
"""and their ``k``"""
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
    kind = dice.choice((*kinds, *("array", "object") * 2**depth * bool(depth)))
    low = dice.randrange(3)
    match kind:
        case "text":
            return {"type": "string", "minLength": low, "maxLength": low + dice.randrange(30)}
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
        long_enough = bool(of.get("minLength", 0) <= len(value) <= of.get("maxLength", 999))
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


class Words(NamedTuple):
    """A bounded language as a regular expression, and as an expression of Lark and of GBNF."""

    regex: str
    lark: str
    gbnf: str


def words(dice: random.Random, depth: int = 3) -> Words:
    kind = dice.choice(("word", "letters", *("one of", "row", "again") * bool(depth)))
    if kind == "word":
        word = dice.choice(WORDS)
        return Words(re.escape(word), *[json.dumps(word, ensure_ascii=False)] * 2)
    if kind == "letters":
        letters = dice.choice(("[a-f]", "[0-9]", "[^a-z\\n]", "[é-ü_]"))
        return Words(letters, f"/{letters}/", letters)
    if kind == "again":
        one, low = words(dice, depth - 1), dice.randrange(3)
        return Words(*(f"({each}){{{low},{low + 2}}}" for each in one))
    parts = [words(dice, depth - 1) for _ in range(dice.randrange(2, 4))]
    between = Words("|", " | ", " | ") if kind == "one of" else Words("", " ", " ")
    return Words(*(f"({by.join(each)})" for by, each in zip(between, zip(*parts, strict=True), strict=True)))


def form(dice: random.Random) -> tuple[dict[str, Any], Callable[[str], bool]]:
    """Options that ask for a form, a JSON schema in 3 of 5 cases; and what says if an answer has it."""
    kind = dice.choice(("schema",) * 6 + ("regex", "choice", "lark", "gbnf"))
    if kind == "schema":
        of = schema(dice)
        return {"schema": of}, lambda text: is_valid(json.loads(text), of)
    if kind == "choice":
        texts = dice.sample(WORDS, 3)
        return {"choice": texts}, texts.__contains__
    language = words(dice)

    def fits(text: str) -> bool:
        return re.fullmatch(language.regex, text) is not None

    if kind == "regex":
        return {"regex": language.regex}, fits
    grammar = f"start: {language.lark}" if kind == "lark" else f"root ::= {language.gbnf}"
    return {"grammar": grammar, "grammar_syntax": kind}, fits


@pytest.fixture(scope="module", params=("Q8_0", "mlx"))
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, str]]:
    """Q8_0, because F16 has no drafts in ``strict``."""
    target, draft = map(bundled_model, (BUNDLED_TARGET, BUNDLED_DRAFT))
    if request.param == "mlx":
        pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
        from tests.mlx_pair import mlx_model

        target, draft = map(mlx_model, (BUNDLED_TARGET, BUNDLED_DRAFT))
    else:
        target = quantised(target, tmp_path_factory.mktemp("target"), request.param)
    with localspec.load(str(target), draft=str(draft), threads=1, n_ctx=1024) as engine:
        measured(engine.target)
        yield engine, request.param


def answers(engine: Engine, options: list[dict[str, Any]], prompt: str) -> list[Sequence]:
    """The answers to requests that run together, over no cells of others."""
    engine.forget("run")
    running = [engine.submit(Request(prompt=TextPrompt(prompt), options=Options(**each))) for each in options]
    run_all(engine, running)
    assert all(each.error is None for each in running), options
    return running


def said(running: Sequence) -> tuple[str | None, str]:
    return running.finish, running.text.text


def checked(engine: Engine, number: int) -> Counter[str]:
    """Count the answers of a form by every proposer, alone and together: ``strict`` ones are equal, ``auto``
    where the receipt says ``exact``. Prompts hold an earlier answer, so that drafts are taken."""
    dice, counts = random.Random(number), Counter[str]()
    (asked, fits), prompt = form(dice), f"def {dice.choice(WORDS[:5])}(self):\n    return "
    how = dice.choice(({"temperature": 0.0}, {"temperature": 0.9, "seed": number}))
    asked |= {"max_tokens": TOKENS, **how}
    prompt = f"# {answers(engine, [asked], prompt)[0].text.text}\n{prompt}"
    for exactness in ("strict", "auto"):
        asks = [{"proposer": p, "k": k, "exactness": exactness, **asked} for p, k in PROPOSERS.items()]
        runs = [answers(engine, [ask], prompt)[0] for ask in asks] + answers(engine, asks, prompt)
        for run in runs:
            receipt, equal = str(run.stats.exactness), said(run) == said(runs[0])
            may_differ = exactness == "auto" and receipt != "exact"
            assert equal or may_differ, (number, asked, *map(said, runs))
            assert run.finish != "stop" or fits(run.text.text), (number, asked, said(run))
            counts[f"{exactness}, {run.finish}"] += 1
            counts[f"{exactness}, {receipt}, {'equal' if equal else 'differs'}"] += 1
            counts[f"{exactness}, drafted"] += run.stats.drafted
            counts[f"{exactness}, forced"] += getattr(run.stats.proposers.get("grammar"), "accepted", 0)
    return counts


@pytest.mark.parametrize("part", range(PARTS))
def test_every_proposer_gives_the_same_valid_answer(engine: tuple[Engine, str], part: int) -> None:
    one, backend = engine
    numbers = range(part, FORMS, PARTS)
    counts = sum((checked(one, number) for number in numbers), Counter[str]())
    print(f"{backend}, part {part}: {dict(counts)}")
    assert counts["auto, stop"] >= 0.5 * len(numbers) * 2 * len(PROPOSERS)
    drafted = counts["strict, drafted" if backend == "Q8_0" else "auto, drafted"]
    assert (drafted and counts["auto, forced"]) or FORMS < 1000
