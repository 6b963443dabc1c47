"""Completions end early in the engine, the same with and without speculation, and are shown tidily."""

from __future__ import annotations

import math

import pytest

import localspec
from localspec.backends.base import measure_rounding, set_rounding
from localspec.engine.engine import Engine, Stream
from localspec.protocol.options import Options
from localspec.protocol.requests import EngineConfig, FimPrompt, Request, Result
from tests.toy import Rule, ToyBackend
from tests.toys import coarse, scripted, small_markov, toy_engine

BODY = "def f(x):\n    y = x\n\n    return y\n\n\ndef g(x):\n    return x\n" * 2
CUT = len("def f(x):\n    ")
SHOWN = "y = x\n\n    return y"


def asked(engine: Engine, prompt: FimPrompt, **options: object) -> Result:
    request = Request(prompt=prompt, options=Options(temperature=0.0, **options))  # type: ignore[arg-type]
    return Stream(engine, engine.submit(request)).finish()


@pytest.mark.parametrize(("proposer", "k"), [("none", 1), ("prompt-lookup", 1), ("prompt-lookup", 8)])
def test_a_completion_ends_in_the_engine(proposer: str, k: int) -> None:
    engine = toy_engine(scripted(BODY.encode()))
    prompt = FimPrompt(BODY[:CUT], "", tidy=True)
    result = asked(engine, prompt, proposer=proposer, k=k)
    assert result.text == SHOWN and result.finish_reason == "stop_string"
    backend = engine.target
    assert isinstance(backend, ToyBackend)
    rows = sum(span.rows for batch in backend.forwards for span in batch)
    assert rows < len(BODY) // 2, "more was generated than is shown"


def test_a_raw_gap_is_filled_to_the_end() -> None:
    engine = toy_engine(scripted(BODY.encode()))
    assert asked(engine, FimPrompt(BODY[:CUT], "")).text == BODY[CUT:]


def test_a_single_line_ends_with_it() -> None:
    engine = toy_engine(scripted(b"x = f(1,\n2)"))
    result = asked(engine, FimPrompt("x = ", "", multiline=False, tidy=True))
    assert result.text == "f(1," and result.completion_tokens == len("f(1,\n")


def test_the_public_call_shows_what_an_editor_would() -> None:
    engine = toy_engine(scripted(b"print(x)  \n\n"))
    assert engine.complete("print(", "", temperature=0.0).text == "x)"


def test_a_real_model_gives_the_same_completion_with_any_draft() -> None:
    prefix, suffix = "def fib(n):\n    ", "\n\nprint(fib(10))"
    with localspec.load("bundled", n_ctx=1024, threads=1) as engine:
        measured = measure_rounding(engine.target, within_s=math.inf)  # however busy the machine is
        assert measured is not None
        set_rounding(engine.target, measured)
        # Sampled as well: so small a model is unsure at once, and ends.
        for options in ({"temperature": 0.0}, {"temperature": 0.2, "seed": 7}):
            texts = {
                engine.complete(prefix, suffix, max_tokens=48, proposer=name, k=4, **options).text
                for name in ("none", "prompt-lookup", "draft")
            }
            assert len(texts) == 1
            (text,) = texts
            assert text and all(line.startswith("    ") for line in text.split("\n")[1:])


def test_what_was_cancelled_for_a_newer_one_leaves_it_its_cache() -> None:
    engine = toy_engine(scripted(BODY.encode()))
    older = engine.submit(Request(prompt=FimPrompt(BODY[:CUT], ""), options=Options(temperature=0.0)))
    engine.step()
    assert older.prefilled
    engine.cancel(older.id)
    newer = asked(engine, FimPrompt(BODY[: CUT + 1], ""), max_tokens=1)
    assert newer.prompt_tokens - newer.cached_tokens <= 3


def test_typing_on_takes_cells_over_and_near_ties_fall_as_if_nothing_had_been_cached() -> None:
    reread = []
    for seed in range(24):
        rule = coarse(small_markov(seed, letters=4), 0.5)
        typing = noisy_engine(rule)
        text = "".join("abcd"[(seed + n * n) % 4] for n in range(44))
        for n in range(30, 44, 3):
            prompt = FimPrompt(text[:n], "", tidy=True)
            strict = {"max_tokens": 12, "exactness": "strict"}
            known = asked(typing, prompt, proposer="prompt-lookup", k=3, **strict)
            fresh = asked(noisy_engine(rule), prompt, proposer="none", **strict)
            assert known.text == fresh.text, (seed, n)
            reread.append(known.prompt_tokens - known.cached_tokens)
    assert min(reread) < 12


def noisy_engine(rule: Rule) -> Engine:
    return Engine(ToyBackend(rule, n_ctx=256, noise=0.02), config=EngineConfig(prefill_chunk=16))
