"""The options: allowed values, messages of refusals, and the precedence of layers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import InvalidOptions
from localspec.protocol.options import Options, parse_options

LARGEST_SEED = 2**63 - 1
EDGES: list[tuple[str, list[Any], list[Any]]] = [
    ("k", [1, 20], [0, 21, -1, 1.5, "4", True, 2**70]),
    ("temperature", [0, 0.0, 5, 5.0], [-0.1, 5.1, float("nan"), float("inf"), "0.5", True]),
    ("top_k", [0, 1_000_000], [-1, 1_000_001, 0.5]),
    ("top_p", [0.001, 1], [0, 1.001, -1, float("nan")]),
    ("min_p", [0, 1], [-0.001, 1.001]),
    ("repeat_penalty", [0.001, 5], [0, 5.001]),
    ("frequency_penalty", [-2, 2], [-2.001, 2.001]),
    ("presence_penalty", [-2, 2], [-2.001, 2.001]),
    ("seed", [0, LARGEST_SEED], [-1, LARGEST_SEED + 1, 0.5]),
    ("stop", [[], ["a"], ["x" * 256], ["a"] * 64], [[""], ["x" * 257], ["a"] * 65, "a", [1]]),
    ("max_tokens", [0, 10_000_000], [-1, 10_000_001]),
    ("proposer", ["auto", "none", "prompt-lookup", "memory", "draft"], ["Draft", "", "lookup", 1]),
    ("backend", ["auto", "llama_cpp", "mlx"], ["llama.cpp", "toy", ""]),
    ("exactness", ["auto", "strict", "fast"], ["sloppy"]),
    ("model", ["bundled", ""], [1, ["a"]]),
    ("draft", ["none", "auto"], [1]),
    ("workspace", ["/home/me"], [1]),
    ("remember", [True, False], ["yes", 1]),
    ("logprobs", [True, False], [0]),
    ("top_logprobs", [0, 20], [-1, 21]),
    ("repeat_last_n", [-1, 0, 100_000_000], [-2, 0.5]),
    ("logit_bias", [[], [[0, -10_000]], [[2**31 - 1, 10_000]]], [[[0]], [[-1, 0]], [[0, 10_001]], {"0": 1}]),
    ("think", [0, 10_000_000], [-1, 10_000_001, 0.5]),
    ("overflow", ["cut", "refuse"], ["truncate"]),
    ("schema", [{}, {"type": "object"}], ["{}", True, [{}]]),
    ("grammar", ['start: "a"', "x" * 2**20], ["", "x" * (2**20 + 1), {}]),
    ("grammar_syntax", ["lark", "gbnf"], ["ebnf"]),
    ("regex", ["a", "x" * 2**16], ["", "x" * (2**16 + 1)]),
    ("choice", [["a"], ["x" * 4096] * 1024], [[], [""], ["a"] * 1025, ["x" * 4097], "a", [1]]),
]
GOOD = [(name, value) for name, good, _ in EDGES for value in good]
BAD = [(name, value) for name, _, bad in EDGES for value in bad]


def test_every_option_has_its_edges_here() -> None:
    assert [name for name, _, _ in sorted(EDGES)] == sorted(Options.__struct_fields__)


def as_tuple(value: Any) -> Any:
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_a_value_in_range_is_taken(name: str, value: Any) -> None:
    expected = as_tuple(value)
    assert getattr(parse_options({name: value}), name) == expected


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_value_out_of_range_is_refused_naming_its_field(name: str, value: Any) -> None:
    with pytest.raises(InvalidOptions, match=f"^invalid option: {name}"):
        parse_options({name: value})


def test_an_unknown_option_is_refused_naming_the_nearest() -> None:
    with pytest.raises(InvalidOptions, match="no option named 'temprature'; did you mean 'temperature'"):
        parse_options({"temprature": 1})


def test_what_is_said_goes_over_the_base_also_if_it_is_falsy() -> None:
    base = Options(k=4, temperature=0.7, model="a")
    assert Options(temperature=0.0, seed=1).over(base) == Options(k=4, temperature=0.0, model="a", seed=1)
    base = Options(temperature=0.7, max_tokens=9, remember=True, stop=("a",), model="a")
    said = Options(temperature=0.0, max_tokens=0, remember=False, stop=(), model="")
    assert said.over(base) == said


good_options = st.builds(
    Options,
    k=st.none() | st.integers(1, 20),
    temperature=st.none() | st.floats(0, 5),
    stop=st.none() | st.lists(st.text(min_size=1, max_size=9), max_size=3).map(tuple),
    remember=st.none() | st.booleans(),
    proposer=st.none() | st.sampled_from(["auto", "none", "draft"]),
)


@given(good_options, good_options, good_options)
def test_layers_can_be_laid_in_any_order(one: Options, two: Options, three: Options) -> None:
    assert one.over(two).over(three) == one.over(two.over(three))
    assert one.over(Options()) == Options().over(one) == one.over(one) == one


@given(good_options)
def test_options_come_back_from_json(options: Options) -> None:
    assert msgspec.json.decode(msgspec.json.encode(options), type=Options) == options
    assert parse_options(msgspec.to_builtins(options)) == options


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates()
anything = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(), scalars, max_size=3)


@given(st.dictionaries(st.sampled_from([*Options.__struct_fields__, "zz"]), anything, max_size=4))
def test_any_values_give_options_or_a_refusal(values: dict[str, Any]) -> None:
    try:
        assert isinstance(parse_options(values), Options)
    except InvalidOptions as error:
        assert error.message
