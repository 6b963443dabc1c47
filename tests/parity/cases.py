"""Generated cases: a model, earlier requests, and requests that run together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hypothesis import strategies as st

KINDS = (
    "always-wrong",
    "right-then-wrong",
    "over-long",
    "past-the-end",
    "end-at-once",
    "random",
    "not-a-token",
    "moody",
    "fails-late",
    "oracle",
)
"""the hostile family of tests/hostile.py"""
RIGHT = ("oracle", "over-long", "right-then-wrong", "moody")
"""those of them whose drafts are accepted at length"""
Taught = Literal["true", "false", "random"]


@dataclass(frozen=True)
class Asked:
    """One request. ``proposer`` may be one of the hostile family; ``start`` and ``cancel`` count steps."""

    prompt: str
    proposer: str = "none"
    k: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    start: int = 0
    cancel: int | None = None
    follows: bool = False
    """the prompt continues the last answer before"""


@dataclass(frozen=True)
class Case:
    """``history`` runs first, one after the other; ``asks`` run together."""

    asks: tuple[Asked, ...]
    history: tuple[Asked, ...] = ()
    chunk: int = 256
    taught: tuple[Taught, ...] | None = None
    """the part of every answer that a memory was taught; None: there is no memory"""
    draft_lives: int | None = None
    """forwards after which the draft model fails"""
    prices: str | None = None
    """one of PRICES; None: as measured"""


@dataclass(frozen=True)
class ToyModel:
    """A toy target and its draft. ``grain`` makes exact ties, ``noise`` near-ties in
    forwards of more than ``exact_width`` tokens."""

    seed: int
    sharpness: float
    order: int = 2
    grain: float = 0.0
    noise: float = 0.0
    exact_width: int = 1
    rollback: int | Literal["replay"] | None = None
    n_ctx: int = 96
    sequences: int = 4
    spelling: bytes = b""


@dataclass(frozen=True)
class Texts:
    """The material of prompts and stop strings: the beginning of one of ``bases``, and a tail."""

    bases: tuple[str, ...]
    tails: st.SearchStrategy[str]
    stops: st.SearchStrategy[str]
    chunks: tuple[int, ...]
    max_tokens: tuple[int | None, ...]


FAST: dict[str, Any] = {"exactness": "auto"}
"""its text is its own unless the receipt says exact, but it leaves cells behind and widens rounds"""
PRICES = {
    "flat": (1.0, 1.02, 1.04, 1.06),
    "steps": (1.0, 1.6, 1.61, 1.62, 2.4, 2.41, 2.42),
    "steep": (1.0, 1.9, 2.8, 3.7),
}
"""scripted costs of forwards, by width"""


FORMS: tuple[dict[str, Any], ...] = (
    {"regex": "([a-f]{1,3}xy){1,9}z?"},
    {"choice": ("abcabcabd", "abcabcéa", "fed")},
    {"grammar": 'root ::= ("ab" | "\\n" [a-e]* "--")+ "."', "grammar_syntax": "gbnf"},
    {
        "schema": {
            "type": "object",
            "properties": {"abc": {"type": "string", "maxLength": 9}, "def": {"enum": [1, 12, None]}},
            "required": ["abc"],
            "additionalProperties": False,
        }
    },
)
"""forms of answers, with forced tokens at their beginnings, inside and at their ends"""


def samplings() -> st.SearchStrategy[dict[str, Any]]:
    """Greedy, greedy with penalties, seeded with any cuts: where the text is promised."""
    penalties = st.sampled_from(
        [
            {},
            {"repeat_penalty": 1.3},
            {"repeat_penalty": 0.7},
            {"frequency_penalty": 0.4, "presence_penalty": 0.2},
            {"repeat_penalty": 1.1, "frequency_penalty": -0.3},
        ]
    )
    cuts = st.sampled_from(
        [{}, {"top_k": 1}, {"top_k": 5}, {"top_p": 0.5}, {"top_p": 0.95}, {"min_p": 0.2}]
        + [{"top_k": 40, "top_p": 0.9, "min_p": 0.05}, {"top_k": 3, "min_p": 0.5}]
    )
    seeds = st.builds(
        lambda t, seed: {"temperature": t, "seed": seed},
        st.sampled_from([0.1, 0.8, 1.5]),
        st.integers(0, 2**63 - 1),
    )
    greedy = st.just({"temperature": 0.0})
    merged = st.builds(
        lambda *parts: {k: v for part in parts for k, v in part.items()}, seeds, cuts, penalties
    )
    return st.one_of(greedy, st.builds(lambda a, b: a | b, greedy, penalties), merged)


def asked(texts: Texts, proposers: tuple[str, ...], *, steps: int) -> st.SearchStrategy[Asked]:
    """A request that starts and is perhaps cancelled within ``steps``."""

    def make(base: str, share: float, tail: str, sampling: dict[str, Any], **rest: Any) -> Asked:
        options = sampling | rest.pop("form") | {name: rest.pop(name) for name in ("stop", "max_tokens")}
        return Asked((base[: int(share * len(base))] + tail) or base[:1], options=options, **rest)

    return st.builds(
        make,
        base=st.sampled_from(texts.bases),
        share=st.sampled_from([0.3, 0.6, 0.95, 1.0]),
        tail=texts.tails,
        sampling=samplings(),
        form=st.sampled_from(({}, {}, {}, *FORMS)),
        stop=st.lists(texts.stops, max_size=2).map(tuple),
        max_tokens=st.sampled_from(texts.max_tokens),
        proposer=st.sampled_from(proposers),
        k=st.none() | st.integers(1, 20) | st.integers(6, 20),
        start=st.integers(0, steps),
        cancel=st.none() | st.none() | st.integers(0, 2 * steps),
        follows=st.sampled_from([False, False, False, True]),
    )


def cases(texts: Texts) -> st.SearchStrategy[Case]:
    """Cases for one model."""
    own = ("auto", "auto", "prompt-lookup", "memory", "draft", "none")
    history = asked(texts, ("none", "auto", "draft"), steps=0)
    request = asked(texts, own + KINDS + RIGHT, steps=6)
    history = history | history.map(_hasty)
    request = request | request | request | request.map(_hasty)
    together = st.lists(request, min_size=1, max_size=4)
    return st.builds(
        Case,
        asks=together.map(_first_stays),
        history=st.lists(history, max_size=3).map(tuple),
        chunk=st.sampled_from(texts.chunks),
        taught=st.none()
        | st.lists(st.sampled_from(("true", "false", "random")), min_size=1, max_size=4).map(tuple),
        draft_lives=st.none() | st.none() | st.integers(0, 20),
        prices=st.sampled_from((None, *PRICES)),
    )


def _hasty(ask: Asked) -> Asked:
    return replace(ask, options=ask.options | FAST)


def _first_stays(asks: list[Asked]) -> tuple[Asked, ...]:
    """At least one request must remain to compare."""
    first, *others = asks
    options = {name: value for name, value in first.options.items() if name not in FAST}
    return (replace(first, options=options, cancel=None), *others)


TOY_MODELS = st.builds(
    ToyModel,
    seed=st.integers(0, 10_000),
    sharpness=st.sampled_from([0.3, 1.0, 4.0]),
    order=st.sampled_from([1, 2, 4]),
    grain=st.sampled_from([0.0, 0.0, 0.5]),
    noise=st.sampled_from([0.0, 0.02, 0.2, 0.2]),
    exact_width=st.sampled_from([1, 1, 2, 4]),
    rollback=st.sampled_from([None, None, None, 0, 1, 3, 8, "replay", "replay"]),
    n_ctx=st.sampled_from([24, 96, 160, 160]),
    sequences=st.integers(1, 4),
    spelling=st.sampled_from([b"", b"", "éß".encode() + b"a\n"]),
)
TOY_TEXTS = Texts(
    bases=("abcabcabdabc", "fedcbafedcba", "aé\néßé\naé"),
    tails=st.text("abcdefé", max_size=8),
    stops=st.text("abcé", min_size=1, max_size=3),
    chunks=(2, 3, 4, 8, 64),
    max_tokens=(None, 0, 5, 17, 40, 40),
)
