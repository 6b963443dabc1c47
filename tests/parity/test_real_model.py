"""A small real model, SmolLM2 at Q4_1: its rows are equal at every width, so ``auto`` is exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from localspec.engine.engine import Engine
from localspec.engine.load import choose_here, load_engine
from localspec.engine.sequence import Sequence
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, EngineConfig, Message, Prompt, Request
from tests.parity.loaded import measured
from tests.parity.prompts import prompts
from tests.real_models import SMALL, real_model
from tests.toys import answer, run_all

pytestmark = pytest.mark.timeout(300)  # 35 s on a quiet machine; cut off in a forward it spoils the next
CONFIG = EngineConfig(n_ctx=1024, parallel=2, idle_measuring=False)
PROPOSERS: dict[str, int | None] = {"prompt-lookup": 5, "memory": 7, "draft": 7, "auto": None}
"""with the length of their drafts"""
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.7, "top_p": 0.95, "seed": 7},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The model, with itself as its draft model and an n-gram memory of its own."""
    path = str(real_model(SMALL))
    pair = choose_here(path, path, config=CONFIG)
    with load_engine(pair, config=CONFIG, memory=tmp_path_factory.mktemp("memory")) as engine:
        measured(engine.target)
        yield engine


def asked(engine: Engine, prompt: Prompt, *, cold: bool = False, **options: Any) -> Sequence:
    """One request, from its beginning to its end; ``cold``: over no cells of another."""
    if cold:
        engine._prefixes.forget("run")
    sequence = engine.submit(Request(prompt=prompt, options=Options(max_tokens=24).over(Options(**options))))
    run_all(engine, [sequence])
    while engine.rest():
        pass
    assert sequence.error is None
    return sequence


def chat(*texts: str) -> ChatPrompt:
    return ChatPrompt(tuple(Message("assistant" if i % 2 else "user", text) for i, text in enumerate(texts)))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_proposer_says_what_plain_decoding_says(engine: Engine, sampling: str) -> None:
    options, accepted = SAMPLINGS[sampling], dict.fromkeys(PROPOSERS, 0)
    exactness = "near-ties" if engine.target.capabilities.offloaded_bytes else "exact"
    for prompt in prompts(2):
        plain = asked(engine, prompt, cold=True, proposer="none", **options)
        for proposer, k in PROPOSERS.items():
            said = asked(engine, prompt, cold=True, proposer=proposer, k=k, **options)
            assert (answer(said), said.stats.exactness) == (answer(plain), exactness)
            accepted[proposer] += said.stats.accepted
    assert all(accepted.values()), accepted


def test_a_chat_goes_through_the_template_of_the_model(engine: Engine) -> None:
    tokens = engine.encode(Request(prompt=chat("Hello", "Hi", "What is 2 + 3?"))).tokens
    text = b"".join(map(engine.target.vocabulary.text_of, tokens)).decode()
    assert text.endswith(
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n"
        "<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_stop_string_ends_the_text_before_it(engine: Engine) -> None:
    question = chat("Count from one to ten, with commas.")
    whole = asked(engine, question, temperature=0.0, proposer="none").text.text
    middle = len(whole) // 2
    stop = whole[middle : middle + 5]
    said = asked(engine, question, temperature=0.0, proposer="draft", k=7, stop=(stop,))
    assert said.finish == "stop_string" and said.text.text == whole[: whole.index(stop)]


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_the_next_turn_takes_over_the_cells_of_the_last_one(engine: Engine, mode: str) -> None:
    """``strict`` those of whole pieces; ``auto`` all, and its receipt says so."""
    options = {**SAMPLINGS["greedy"], "exactness": mode}
    code = "\n".join(f"x{i} = {i} * {i + 1}" for i in range(24))
    first = asked(engine, chat(f"What is this?\n{code}"), cold=True, proposer="draft", k=7, **options)
    more = chat(f"What is this?\n{code}", first.text.text, "Is it long?")
    said = asked(engine, more, proposer="draft", k=7, **options)
    plain = asked(engine, more, cold=True, proposer="none", **options)
    if mode == "strict":
        assert said.cached > 0 and said.cached % CONFIG.chunk == 0
        assert (answer(said), said.stats.exactness) == (answer(plain), "exact")
    else:
        assert said.cached >= first.prompt_length and said.stats.exactness == "near-ties"
