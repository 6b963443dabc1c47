"""mlx-lm and our backend give the same answers to the same prompts."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from localspec.bench.references import Question, question_of
from localspec.bench.rivals import rivals_of
from localspec.engine.load import load
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options
from localspec.protocol.requests import Request, TextPrompt

pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
from localspec.bench.references.mlx_lm import MlxLm  # noqa: E402
from tests.mlx_pair import mlx_model

TARGET, DRAFT = mlx_model("stdlib-1m"), mlx_model("stdlib-1m")
CONFIG = EngineConfig(n_ctx=1024, parallel=1)
TEXT = "def shorten(text, width):\n    words = text.split()\n    return ' '.join(words)\n\ndef shorten("


def asked(options: Options) -> tuple[Question, tuple[int, ...]]:
    """A question, and our plain answer to it."""
    request = Request(prompt=TextPrompt(TEXT), options=options)
    with load(TARGET, draft="none", proposer="none", n_ctx=1024, parallel=1) as engine:
        chunks = list(engine.stream(request))
        return (
            question_of(request, engine.target.vocabulary, 1024),
            tuple(token.id for chunk in chunks for token in chunk.tokens),
        )


@pytest.mark.parametrize("draft", [pytest.param(None, marks=pytest.mark.slow), DRAFT])
def test_it_says_what_we_say(draft: Path | None) -> None:
    question, ours = asked(Options(max_tokens=24, temperature=0.0))
    with closing(MlxLm(TARGET, CONFIG, draft=draft, k=4)) as reference:
        for _ in range(2):
            answer = reference.answer(question)
            assert answer.tokens == ours and answer.decoded == len(ours) - 1
            assert (answer.drafted >= answer.accepted > 0) == (draft is not None)


@pytest.mark.slow
def test_samples_follow_the_seed() -> None:
    question, _ = asked(Options(max_tokens=24, temperature=0.9, seed=3))
    with closing(MlxLm(TARGET, CONFIG)) as reference:
        one, same = reference.answer(question), reference.answer(question)
        other = reference.answer(question._replace(seed=4))
    assert one.tokens == same.tokens != other.tokens


def test_the_references_of_a_directory_are_those_of_its_format() -> None:
    names = [rival.contestant.name for rival in rivals_of(TARGET, DRAFT, CONFIG, None)]
    assert names == ["mlx-lm", "mlx-lm draft k=2", "mlx-lm draft k=1", "mlx-lm draft k=4"]
    assert [rival.contestant.name for rival in rivals_of(TARGET, None, CONFIG, None)] == ["mlx-lm"]
