"""Fields that choose tokens have an effect in all dialects, or are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.server import HttpServer

CHANGING: dict[str, tuple[Any, ...]] = {
    "adaptive_target": (0.5,),
    "min_keep": (2,),
    "post_sampling_probs": (True,),
    "preserved_tokens": (["<think>"],),
    "reasoning_budget_tokens": (64,),
    "thinking_budget_tokens": (0,),
    "thinking_token_budget": (64,),
    "reasoning_format": ("deepseek",),
    "include_stop_str_in_output": (True,),
    "skip_special_tokens": (False,),
    "truncate_prompt_tokens": (100, -1),
    "prompt_logprobs": (0, 1),
    "logits_processors": (["x"],),
    "return_tokens_as_token_ids": (True,),
    "structural_tag": ({"type": "structural_tag"},),
}
"""fields of llama.cpp's and vLLM's servers that would change an answer, with such values"""
UNCHANGING: dict[str, Any] = {
    "adaptive_target": -0.5,
    "adaptive_decay": 0.5,
    "dynatemp_range": -1,
    "min_keep": 0,
    "post_sampling_probs": False,
    "preserved_tokens": [],
    "reasoning_budget_tokens": -1,
    "thinking_token_budget": None,
    "reasoning_format": "auto",
    "include_stop_str_in_output": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "truncate_prompt_tokens": None,
    "top_n_sigma": -3,
    "verbose": True,
    "sse_ping_interval": 5,
    "n_cache_reuse": 256,
    "n_keep": 5,
    "cache_salt": "x",
    "metadata": {"a": "b"},
    "store": False,
    "user": "x",
}
"""values that change nothing, and fields that ask for extras"""
ASKED: dict[str, dict[str, Any]] = {
    "/completion": {"prompt": "x"},
    "/infill": {"input_prefix": "x"},
    "/v1/completions": {"prompt": "x"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
}


OF_ONE: list[tuple[str, str, Any]] = [
    *(("/v1/chat/completions", name, value) for name, value in (("echo", True), ("best_of", 2))),
    *(("/v1/chat/completions", name, value) for name, value in (("verbosity", "low"), ("n_indent", 4))),
    ("/v1/chat/completions", "add_special_tokens", True),
    ("/v1/chat/completions", "web_search_options", {}),
    ("/v1/chat/completions", "documents", [{"text": "x"}]),
    *(("/v1/completions", name, value) for name, value in (("prompt_embeds", "x"), ("n_indent", 4))),
    ("/v1/completions", "response_format", {"type": "json_object"}),
    ("/v1/completions", "add_special_tokens", False),
]
"""fields that change an answer at one address, with such values"""


@pytest.mark.parametrize(("path", "name", "value"), OF_ONE)
def test_fields_of_one_address_are_refused_there(echo: HttpServer, path: str, name: str, value: Any) -> None:
    refused = echo.ask("POST", path, {**ASKED[path], name: value})
    assert refused.status_code == 400 and f"{name} is not supported" in refused.text


@pytest.mark.slow
@pytest.mark.parametrize("path", ASKED)
def test_fields_that_change_an_answer_have_an_effect_or_are_refused(echo: HttpServer, path: str) -> None:
    for name, values in CHANGING.items():
        for value in values:
            refused = echo.ask("POST", path, {**ASKED[path], name: value})
            assert refused.status_code == 400, (name, value, refused.text)
            assert f"{name} is not supported" in refused.json()["error"]["message"], (name, refused.text)
    echo.post(path, ASKED[path] | UNCHANGING)


def options(echo: HttpServer, **said: Any) -> dict[str, Any]:
    """Return the options that reach the model."""
    told: dict[str, Any] = json.loads(echo.post("/completion", {"prompt": "options", **said})["content"])
    return {name: value for name, value in told.items() if value is not None}


SAID = {"temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.1, "repeat_penalty": 1.5}
NAMES = ["penalties", "top_k", "top_p", "min_p", "temperature"]


@pytest.mark.slow
def test_samplers_that_are_left_out_do_nothing(echo: HttpServer) -> None:
    plain = options(echo, **SAID)
    assert plain | SAID == plain
    neutral = ["dry", "top_n_sigma", "typ_p", "xtc"]
    here = ["penalties", "temperature", "top_k", "top_p", "min_p"]
    aliases = ["penalties", "Top-K", "nucleus", "minp", "temp"]
    for all_of_them in (None, NAMES, [*neutral, *NAMES], here, aliases, "edskypmxt"):
        assert options(echo, samplers=all_of_them, **SAID) == plain
    few = options(echo, samplers=["top_k", "top_p", "infill"], **SAID)
    off = {"temperature": 1, "min_p": 0, "repeat_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0}
    assert few == plain | off
    unsaid = options(echo, samplers="kp")
    assert "temperature" not in unsaid and "top_k" not in unsaid and unsaid["min_p"] == 0
    assert (
        options(echo, samplers=[], **SAID)
        == options(echo, samplers="", **SAID)
        == few | {"top_k": 0, "top_p": 1}
    )
    for odd in (["top_p", "top_k"], ["temp", "temperature"], "kk"):
        refused = echo.ask("POST", "/completion", {"prompt": "x", "samplers": odd})
        assert refused.status_code == 400 and "penalties, top_k, top_p, min_p, temperature" in refused.text


@pytest.mark.slow
def test_what_nothing_looks_at_may_be_said(echo: HttpServer) -> None:
    nothing = {
        "repeat_last_n": 64,
        "repeat_penalty": 1.0,
        "top_n_sigma": -1.0,
        "n_predict": 8.0,
        "top_k": 40.0,
    }
    told = options(echo, **nothing)
    assert (told["max_tokens"], told["top_k"]) == (8, 40)
    assert options(echo, repeat_last_n=-1, repeat_penalty=1.2)["repeat_penalty"] == 1.2
    assert options(echo, repeat_last_n=0, repeat_penalty=1.2)["repeat_last_n"] == 0
    told = options(echo, repeat_last_n=64, repeat_penalty=1.2)
    assert (told["repeat_last_n"], told["repeat_penalty"]) == (64, 1.2)
    assert options(echo, repeat_last_n=64, repeat_penalty=1.2, samplers=["top_k"])["repeat_penalty"] == 1


@pytest.mark.slow
def test_a_negative_temperature_is_greedy_in_llama_cpps_dialect(echo: HttpServer) -> None:
    assert (
        options(echo, temperature=-1)["temperature"] == 0
        and options(echo, temperature=0.5)["temperature"] == 0.5
    )
    chat = {"messages": [{"role": "user", "content": "options"}], "temperature": -0.5}
    told = echo.post("/chat/completions", chat)["choices"][0]["message"]["content"]
    assert json.loads(told)["temperature"] == 0
    echo.post("/infill", {"input_prefix": "x", "temperature": -1})
    for path, said in (("/v1/completions", {"prompt": "x"}), ("/v1/chat/completions", chat)):
        assert echo.ask("POST", path, {**said, "temperature": -0.5}).status_code == 400


@pytest.mark.parametrize(("said", "why"), [({"echo": True}, "with echo"), ({"suffix": "\n"}, "with suffix")])
def test_tokens_are_refused_where_texts_are_needed(echo: HttpServer, said: dict[str, Any], why: str) -> None:
    refused = echo.ask("POST", "/v1/completions", {"prompt": [1, 2, 3], **said})
    assert refused.status_code == 400
    assert f"a prompt of tokens is not supported {why}. Give the prompt as a string." in refused.text


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"n": 9}, "with suffix, n is at most 8, not 9. Set n to at most 8."),
        ({"n": 2, "best_of": 3}, "with suffix, best_of is at most n, which is 2, not 3. Leave best_of out."),
    ],
)
def test_more_fillings_than_are_offered_are_refused(
    echo: HttpServer, said: dict[str, Any], sentence: str
) -> None:
    refused = echo.ask("POST", "/v1/completions", {"prompt": "x", "suffix": ")", **said})
    assert refused.status_code == 400 and sentence in refused.text


@pytest.mark.parametrize("seed", [-1, 2**32 - 1])
def test_seeds_that_are_none(echo: HttpServer, seed: int) -> None:
    assert "seed" not in options(echo, seed=seed)
    assert options(echo, seed=7)["seed"] == 7


@pytest.mark.slow
def test_lengths_and_numbers_by_all_their_names(echo: HttpServer) -> None:
    for said in ({"n_predict": 5}, {"max_tokens": 5}, {"max_completion_tokens": 5.0, "max_tokens": 3}):
        assert options(echo, **said)["max_tokens"] == 5
    assert options(echo, seed=42.0)["seed"] == 42
    assert isinstance(echo.post("/infill", {"prompt": "then word", "n": 2.0, "n_indent": 0.0}), list)
