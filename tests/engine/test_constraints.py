"""Constrained answers in the engine: exact under speculation, with tokens that cost no choice."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest

from localspec.engine.engine import Engine
from localspec.engine.sequence import Sequence as Running
from localspec.errors import EngineError, InvalidOptions
from localspec.protocol.requests import Delta, EngineConfig, Request
from tests.toy import ToyBackend, ToyVocabulary, markov
from tests.toys import request, run_all

CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-c]{1,9}$"},
        "kind": {"enum": ["village", "town", "city"]},
        "code": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "kind", "code"],
    "additionalProperties": False,
}
CONSTRAINTS: list[tuple[dict[str, Any], str]] = [
    ({"schema": CITY}, r'\{"name": "[a-c]{1,9}", "kind": "(village|town|city)", "code": \d{1,2}\}'),
    ({"regex": "(ab|ba){2,30}c"}, "(ab|ba){2,30}c"),
    ({"choice": ("abcabc", "abcba")}, "abcabc|abcba"),
]
WAYS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.0, "repeat_penalty": 1.3},
    {"seed": 3, "temperature": 1.0},
    {"seed": 4, "temperature": 1.3, "top_k": 9, "top_p": 0.9},
]
PROPOSERS = ("none", "auto", "prompt-lookup", "draft")


def engine(seed: int = 0, *, noise: float = 0.0, exact_width: int = 1) -> Engine:
    target = ToyBackend(markov(seed=seed), n_ctx=256)
    target.make_noisy(noise, exact_width=exact_width)
    return Engine(target, ToyBackend(markov(seed=seed), n_ctx=256), config=EngineConfig(prefill_chunk=4))


def outcome(sequence: Running) -> tuple[str, str | None, tuple[int, ...]]:
    assert sequence.error is None
    return sequence.text.text, sequence.finish, tuple(sequence.tokens)


def outcome_of(asks: list[Request], seed: int, **noise: Any) -> set[tuple[str, str | None, tuple[int, ...]]]:
    """The answers to requests that share an engine."""
    one = engine(seed, **noise)
    running = [one.submit(ask) for ask in asks]
    run_all(one, running)
    return {outcome(each) for each in running}


@pytest.mark.parametrize(("constraint", "pattern"), CONSTRAINTS)
@pytest.mark.parametrize("way", WAYS)
def test_every_proposer_gives_the_answer_of_plain_decoding(
    constraint: dict[str, Any], pattern: str, way: dict[str, Any]
) -> None:
    """Alone and together; also a strict request where wide forwards round otherwise."""
    for seed in range(3):
        asks = [request("abc", proposer=p, **constraint, **way) for p in PROPOSERS]
        found = outcome_of(asks, seed).union(*(outcome_of([ask], seed) for ask in asks))
        assert len(found) == 1
        text, finish, _ = found.pop()
        assert re.fullmatch(pattern, text) and finish == "stop"
    strict = [request("abc", proposer=p, exactness="strict", **constraint, **way) for p in PROPOSERS]
    for width in (1, 3):
        noise = {"noise": 1.0, "exact_width": width}
        assert len(set().union(*(outcome_of([ask], 0, **noise) for ask in strict))) == 1


def test_a_strict_answer_is_exact_also_where_its_beginning_is_forced() -> None:
    one = engine(noise=1.0, exact_width=3)
    assert isinstance(one.target, ToyBackend)
    one.target.capabilities = replace(one.target.capabilities, fast_alone=True)
    running = one.submit(request("abcde", temperature=0.0, exactness="strict", schema=CITY))
    run_all(one, [running])
    assert running.stats.exactness == "exact"


def run(one: Engine | None = None, **options: Any) -> tuple[Running, ToyBackend]:
    one = one or engine()
    running = one.submit(request("abc", temperature=0.0, **options))
    run_all(one, [running])
    assert isinstance(one.target, ToyBackend)
    return running, one.target


def test_forced_tokens_cost_no_choice_and_are_no_drafts() -> None:
    """They are fed with others, and the end of the grammar ends the answer without a forward."""
    plain, slow = run(schema=CITY, proposer="none")
    quick, fast = run(schema=CITY)
    assert outcome(plain) == outcome(quick)
    assert "grammar" not in plain.stats.proposers and plain.stats.rounds == plain.completion_tokens - 1
    forced = quick.stats.proposers["grammar"]
    sources = [t.source for e in quick.events if isinstance(e, Delta) for t in e.tokens]
    assert sources.count("grammar") == forced.accepted == forced.drafted > 30
    drafts = [share for name, share in quick.stats.proposers.items() if name != "grammar"]
    assert quick.stats.drafted == sum(share.drafted for share in drafts)
    assert len(fast.forwards) < len(slow.forwards) / 3
    assert quick.stats.exactness == "exact"


@pytest.mark.parametrize(
    ("options", "text", "finish"),
    [
        ({"max_tokens": 12}, '{"name": "', "length"),
        ({"max_tokens": 10}, '{"name": "', "length"),
        ({"max_tokens": 4}, '{"na', "length"),
        ({"stop": ("name",)}, '{"', "stop_string"),
    ],
)
def test_forced_tokens_keep_the_limits_of_the_answer(options: dict[str, Any], text: str, finish: str) -> None:
    for proposer in ("none", "auto"):
        one = engine()
        running, target = run(one, schema=CITY, proposer=proposer, **options)
        assert running.text.text.startswith(text) and running.finish == finish
        assert all(kept.tokens == target.tokens(kept.slot) for kept in one._prefixes.kept)


def test_a_full_context_ends_a_constrained_answer() -> None:
    running, target = run(regex="(abc){99,}", proposer="auto")
    assert running.finish == "context_full" and running.text.text == ("abc" * 99)[:254]


def test_log_probabilities_need_every_row() -> None:
    running, _ = run(choice=("abcabc",), logprobs=True)
    tokens = [t for e in running.events if isinstance(e, Delta) for t in e.tokens]
    assert len(tokens) == 6 and all(t.logprob is not None and t.logprob < 0 for t in tokens)


def test_a_row_without_a_possible_token_ends_the_request_with_an_error() -> None:
    def rule(context: Any) -> list[float]:
        return [-float("inf") if token in (97, 98) else 0.0 for token in range(ToyVocabulary.size)]

    one = Engine(ToyBackend(rule))
    running = [one.submit(request("x", regex="[ab]+", temperature=t)) for t in (0.0, 1.0)]
    other = one.submit(request("x", regex="[abc]+d", temperature=0.0, max_tokens=9))
    run_all(one, [*running, other])
    assert all(isinstance(each.error, EngineError) for each in running)
    assert other.text.text == "c" * 9


def test_a_wrong_grammar_is_refused_before_the_request_is_queued() -> None:
    with pytest.raises(InvalidOptions, match="Unimplemented keys"):
        engine().submit(request("x", schema={"not": {}}))


class City(msgspec.Struct, forbid_unknown_fields=True):
    size: Literal["small", "large"]


def test_a_type_stands_for_its_schema() -> None:
    text = engine().generate("abc", schema=City, seed=1).finish().text
    assert msgspec.json.decode(text, type=City).size in ("small", "large")
