"""Completions that end where the model is unsure: with any proposer the same, and no other texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from localspec.engine.engine import Engine
from localspec.engine.sequence import Sequence as Running
from localspec.protocol.options import Options
from localspec.protocol.requests import EngineConfig, FimPrompt, Request
from localspec.speculation.verify import EarlyEnd
from tests.toy import FIM_MIDDLE, Rule, ToyBackend, ToyVocabulary
from tests.toys import answer, coarse, run_all, share_always, small_markov

GAPS = ("abcab", "feda", "aabbccdd")


def tidy(text: str) -> FimPrompt:
    return FimPrompt(text, "", tidy=True)


def engine_of(rule: Rule, *, noise: float = 0.0, draft: Rule | None = None) -> Engine:
    target = ToyBackend(rule, n_ctx=128)
    target.make_noisy(noise, exact_width=3)
    small = ToyBackend(draft, n_ctx=128) if draft is not None else None
    return share_always(Engine(target, small, config=EngineConfig(prefill_chunk=16)))


def ask(engine: Engine, prompt: FimPrompt, **options: Any) -> Running:
    said = {"temperature": 0.0, "max_tokens": 24, "proposer": "none", "exactness": "strict", **options}
    return engine.submit(Request(prompt=prompt, options=Options(**said)))


def alone(rule: Rule, prompt: FimPrompt, noise: float = 0.0, **options: Any) -> Running:
    """Return the answer of plain decoding, on an engine of its own."""
    engine = engine_of(rule, noise=noise)
    sequence = ask(engine, prompt, **options)
    run_all(engine, [sequence])
    assert sequence.error is None
    return sequence


def ending(sequence: Running) -> tuple[list[int], str | None, str]:
    return answer(sequence), sequence.finish, sequence.text.text


def broad(seed: int) -> Rule:
    """Rows around the threshold: a dozen letters, sometimes one that is sure."""
    return small_markov(seed, letters=12, sharpness=1.3)


class TestOneText:
    @pytest.mark.parametrize(
        ("k", "noise"),
        [
            (3, 0.02),
            (8, 0.0),
            *(
                pytest.param(*case, marks=pytest.mark.slow)
                for case in ((1, 0.0), (1, 0.02), (3, 0.0), (8, 0.02))
            ),
        ],
    )
    def test_with_any_draft_and_any_other_requests(self, k: int, noise: float) -> None:
        ended = accepted = 0
        for seed in range(8):
            rule = coarse(broad(seed), 0.25)  # exact ties, which fall as rounding will
            truths = [alone(rule, tidy(text), noise) for text in GAPS]
            engine = engine_of(rule, noise=noise, draft=broad(seed))
            for proposer in ("prompt-lookup", "draft", "auto"):
                running = [ask(engine, tidy(text), proposer=proposer, k=k) for text in GAPS]
                other = ask(engine, replace(tidy(GAPS[0]), tidy=False), proposer=proposer, k=k)
                run_all(engine, [*running, other])
                for truth, sequence in zip(truths, running, strict=True):
                    assert ending(sequence) == ending(truth), (seed, proposer)
                    ended += sequence.finish == "stop"
                    accepted += sequence.stats.accepted
        assert ended > 20 and accepted > 20


def certain(*guesses: int) -> Rule:
    """A model that writes ``abcdefgh…``, surely except for the letters at ``guesses``."""

    def rule(context: Sequence[int]) -> list[float]:
        said = len(context) - 1 - max(i for i, token in enumerate(context) if token == FIM_MIDDLE)
        logits = [0.0] * ToyVocabulary.size
        logits[97 + said % 26] = 1.0 if said in guesses else 30.0
        return logits

    return rule


class TestWhose:
    def test_a_guess_ends_a_completion(self) -> None:
        sequence = alone(certain(7), tidy("x = "))
        assert sequence.text.text == "abcdefg" and sequence.finish == "stop"

    def test_the_first_token_may_be_a_guess(self) -> None:
        assert alone(certain(0), tidy("x = ")).completion_tokens == 24
        assert alone(certain(0, 1), tidy("x = ")).text.text == "a"

    @pytest.mark.parametrize("how", [{"tidy": False}, {"invoked": True}])
    def test_what_is_not_tidy_or_is_invoked_goes_on(self, how: dict[str, bool]) -> None:
        prompt = replace(tidy("x = "), **how)
        assert alone(certain(7), prompt).text.text == "abcdefghijklmnopqrstuvwx"

    @pytest.mark.parametrize("noise", [0.0, 0.02])
    def test_others_texts_are_what_they_were(self, noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """Raw gaps and sampled completions never end early."""
        monkeypatch.setattr(EarlyEnd, "token", lambda self, i, drafted: pytest.fail("asked"))
        for seed in range(3):
            for text in GAPS:
                alone(broad(seed), replace(tidy(text), tidy=False), noise)
                alone(broad(seed), tidy(text), noise, temperature=0.8, seed=seed)
        with pytest.raises(pytest.fail.Exception, match="asked"):
            alone(broad(0), tidy(GAPS[0]), noise)

    def test_penalties_and_log_probabilities(self) -> None:
        sequence = alone(certain(7), tidy("x = "), repeat_penalty=1.2, logprobs=True)
        assert sequence.text.text == "abcdefg"
