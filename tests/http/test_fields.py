"""Fields that choose tokens have an effect in all dialects, or are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from localspec.errors import InvalidOptions
from localspec.http.app import DIALECTS
from localspec.http.endpoint import Refused, refuse
from tests.http.server import HttpServer

TABLES = [(each.path, each.refused) for dialect in DIALECTS for each in dialect.endpoints if each.refused]


@pytest.mark.parametrize(("path", "refused"), TABLES, ids=[path for path, _ in TABLES])
def test_fields_that_change_an_answer_are_refused(path: str, refused: Refused) -> None:
    for name, harmless in refused.items():
        if isinstance(harmless, Mapping):  # fields of an object, or of the objects of a list
            for within in harmless:
                for inside in ({within: "other"}, [{}, {within: "other"}]):
                    with pytest.raises(InvalidOptions, match=f"{within} is not supported"):
                        refuse({name: inside}, refused)
            continue
        for value in ("other", 0.5, [7], {"a": 7}, 0, False):
            is_harmless = any(value == each and type(value) is type(each) for each in harmless)
            with nullcontext() if is_harmless else pytest.raises(InvalidOptions, match=name):
                refuse({name: value}, refused)
        for value in (None, *harmless, *((-3, -0.5) if -1 in harmless else ())):
            refuse({name: value, "unknown": "other"}, refused)


def test_a_refusal_names_the_harmless_values(echo: HttpServer) -> None:
    refused = echo.ask("POST", "/completion", {"prompt": "x", "min_keep": 2})
    sentence = "min_keep is not supported. Leave min_keep out, or set it to 0 or 1."
    assert refused.status_code == 400 and sentence in refused.text


def options(echo: HttpServer, **said: Any) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads(echo.post("/completion", {"prompt": "options", **said})["content"])
    return {name: value for name, value in seen.items() if value is not None}


SAID = {"temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.1, "repeat_penalty": 1.5}
NAMES = ["penalties", "top_k", "top_p", "min_p", "temperature"]


@pytest.mark.slow
def test_samplers_that_are_left_out_do_nothing(echo: HttpServer) -> None:
    plain = options(echo, **SAID)
    assert plain | SAID == plain
    neutral = ["dry", "top_n_sigma", "typ_p", "xtc"]
    here = ["penalties", "temperature", "top_k", "top_p", "min_p"]
    aliases = ["penalties", "Top-K", "nucleus", "minp", "temp"]
    for all_of_them in (None, NAMES, [*neutral, *NAMES], here, aliases):
        assert options(echo, samplers=all_of_them, **SAID) == plain
    few = options(echo, samplers=["top_k", "top_p", "infill"], **SAID)
    off = {"temperature": 1, "min_p": 0, "repeat_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0}
    assert few == plain | off
    unsaid = options(echo, samplers=["top_k", "top_p"])
    assert "temperature" not in unsaid and "top_k" not in unsaid and unsaid["min_p"] == 0
    assert options(echo, samplers=[], **SAID) == few | {"top_k": 0, "top_p": 1}


def test_a_negative_temperature_is_greedy(echo: HttpServer) -> None:
    assert options(echo, temperature=-1)["temperature"] == 0
    assert options(echo, temperature=0.5)["temperature"] == 0.5


@pytest.mark.parametrize("seed", [-1, 2**32 - 1])
def test_seeds_that_are_none(echo: HttpServer, seed: int) -> None:
    assert "seed" not in options(echo, seed=seed)
    assert options(echo, seed=7)["seed"] == 7
