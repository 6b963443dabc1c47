"""The precedence of values."""

from __future__ import annotations

from localspec.engine.settings import settle
from localspec.protocol.options import Options
from localspec.protocol.requests import FimPrompt, TextPrompt

TEXT, FIM = TextPrompt("x"), FimPrompt("a", "b")


def test_defaults() -> None:
    chat = settle(Options(), TEXT, Options())
    assert (chat.sampling.temperature, chat.k, chat.proposer, chat.max_tokens) == (0.7, None, "auto", None)
    assert not chat.strict
    completion = settle(Options(), FIM, Options())
    assert completion.sampling.temperature == 0.0 and completion.reproducible and not completion.strict


def test_the_models_own_settings_beat_the_defaults_for_chat() -> None:
    model = Options(temperature=0.3, top_k=20)
    chat = settle(Options(), TEXT, model)
    assert (chat.sampling.temperature, chat.sampling.top_k) == (0.3, 20)
    assert settle(Options(), FIM, model).sampling.temperature == 0.0


def test_what_the_request_says_beats_everything() -> None:
    said = settle(Options(temperature=1.5, top_k=0), TEXT, Options(temperature=0.3, top_k=20))
    assert (said.sampling.temperature, said.sampling.top_k) == (1.5, 0)


def test_strict_is_for_exact_greedy_requests() -> None:
    assert settle(Options(temperature=0.0, exactness="strict"), TEXT, Options()).strict
    assert settle(Options(temperature=0.7, seed=1, exactness="strict"), TEXT, Options()).strict
    for others in (Options(temperature=0.0), Options(temperature=0.0, exactness="fast")):
        assert not settle(others, TEXT, Options()).strict
    assert not settle(Options(temperature=0.7, exactness="strict"), TEXT, Options()).strict
