"""The real pair: Qwen2.5-Coder 1.5B at Q4_K_M, with its 0.5B as the draft model; and SmolLM2 on MLX."""

from __future__ import annotations

import ast
import asyncio
import bisect
import copy
import importlib
import inspect
import json.encoder
import textwrap
from collections import Counter
from collections.abc import Iterator
from types import ModuleType

import pytest

from localspec.client import connect
from localspec.engine.engine import Engine
from localspec.engine.load import choose_here, load, load_engine
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, EngineConfig, Message, Request, TokenPrompt
from tests.client.conftest import own_home
from tests.mlx_pair import mlx_copy
from tests.parity.loaded import measured
from tests.parity.prompts import prompts
from tests.parity.test_real_model import PROPOSERS, SAMPLINGS, asked
from tests.real_models import CODER, SMALL, TARGET, real_model
from tests.slow.share import share
from tests.toys import answer

pytestmark = pytest.mark.slow

CONFIG = EngineConfig(n_ctx=2048, parallel=2, idle_measuring=False)
CASES = share(16)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    pair = choose_here(str(real_model(TARGET)), str(real_model(CODER)), config=CONFIG)
    with load_engine(pair, config=CONFIG, memory=tmp_path_factory.mktemp("memory")) as engine:
        measured(engine.target)
        yield engine


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_proposer_says_what_plain_decoding_says(engine: Engine, sampling: str) -> None:
    """``strict`` to the token; ``auto`` wherever its receipt says ``exact``."""
    options, receipts, drafted = SAMPLINGS[sampling], Counter[str](), 0
    for prompt in prompts(CASES):
        plain = {
            mode: answer(asked(engine, prompt, cold=True, proposer="none", exactness=mode, **options))
            for mode in ("auto", "strict")
        }
        for proposer, k in PROPOSERS.items():
            strict, auto = (
                asked(engine, prompt, cold=mode == "auto", proposer=proposer, k=k, exactness=mode, **options)
                for mode in ("strict", "auto")
            )
            drafted += strict.stats.drafted
            assert (answer(strict), strict.stats.exactness) == (plain["strict"], "exact")
            receipts[f"{auto.stats.exactness}, {'equal' * (answer(auto) == plain['auto']) or 'differs'}"] += 1
    print(f"auto, {sampling}: {dict(receipts)}")
    assert not receipts["exact, differs"] and drafted


def test_two_models_answer_at_once_in_one_daemon() -> None:
    """Each says what it says alone."""
    models = [str(real_model(name)) for name in (TARGET, CODER)]

    async def played() -> tuple[list[str], list[str], int]:
        async with await connect() as client:

            async def said(model: str) -> str:
                options = Options(model=model, temperature=0.0, max_tokens=32, exactness="strict")
                return (await client.generate("How does a heap queue work?", options=options).result()).text

            alone = [await said(model) for model in models]
            together = await asyncio.gather(*map(said, models))
            return alone, together, len((await client.status()).models)

    with own_home():
        alone, together, count = asyncio.run(played())
    assert together == alone and all(alone) and count == len(models)


GAPS = (
    (bisect, "lo = mid + 1"),
    (copy, "return copier(x)"),
    (textwrap, "return self._wrap_chunks(chunks)"),
    (json.encoder, "self.ensure_ascii = ensure_ascii"),
)
"""modules, and the code that is cut out of their files"""


@pytest.mark.parametrize(("module", "code"), GAPS)
def test_a_gap_in_a_real_file_is_filled(engine: Engine, module: ModuleType, code: str) -> None:
    """The file with the completion parses, no control token is in it, and a draft changes nothing."""
    prefix, _, suffix = inspect.getsource(module).partition(code)
    texts = set()
    for proposer, k in {"none": None, "prompt-lookup": 5, "draft": 7}.items():
        engine._prefixes.forget("run")
        said = engine.complete(prefix, suffix, proposer=proposer, k=k, exactness="strict")
        assert said.stats.exactness == "exact" and "<|" not in said.text
        texts.add(said.text)
    (text,) = texts
    print(f"{module.__name__}: {code!r} became {text!r}")
    assert text
    ast.parse(prefix + text + suffix)


def test_mlx_says_what_mlx_lm_says() -> None:
    mlx_lm = pytest.importorskip("mlx_lm", reason="mlx-lm is not installed: pip install -e '.[mlx]'")
    mx, generate = (importlib.import_module(name) for name in ("mlx.core", "mlx_lm.generate"))
    folder = mlx_copy(real_model(SMALL), "smollm2")
    with load(str(folder), draft="none", n_ctx=512, idle_measuring=False) as engine:
        prompt = ChatPrompt((Message("user", "What is the capital of France?"),))
        tokens = engine.encode(Request(prompt=prompt)).tokens
        said = asked(engine, TokenPrompt(tuple(tokens)), temperature=0.0, proposer="prompt-lookup", k=3)
    model = mlx_lm.load(str(folder))[0]
    steps = generate.generate_step(mx.array(tokens), model, max_tokens=24)
    expected = [token for token, _ in steps]
    assert answer(said) == expected[: len(answer(said))]
    assert len(answer(said)) == 24 or expected[len(answer(said))] in engine.target.vocabulary.end_tokens
