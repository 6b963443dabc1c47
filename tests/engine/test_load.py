"""From names to an engine."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import psutil
import pytest

import localspec
from localspec.config import EngineConfig
from localspec.engine.load import Choice, choose, load, load_engine
from localspec.errors import BackendUnavailable, InvalidOptions, ModelNotFound, TokenizerMismatch
from localspec.models.catalogue import bundled_model

TARGET, DRAFT = bundled_model("stdlib-6m"), bundled_model("stdlib-1m")
SMALL = EngineConfig(n_ctx=256, parallel=1, threads=1)


def other_vocabulary(path: Path) -> Path:
    """The bundled draft with one of its tokens renamed."""
    path.write_bytes(DRAFT.read_bytes().replace("Ġdef".encode(), "Ġdxf".encode(), 1))
    return path


@pytest.mark.parametrize(
    ("model", "draft", "choice"),
    [
        ("bundled", "auto", Choice(TARGET, DRAFT, "the bundled pair")),
        ("stdlib-6m", "auto", Choice(TARGET, DRAFT, "the bundled pair")),
        ("bundled", "none", Choice(TARGET, None, "no draft model was wanted")),
        ("stdlib-1m", "auto", Choice(DRAFT, None, "no draft model is known for this target")),
        ("stdlib-1m", "stdlib-6m", Choice(DRAFT, TARGET, "this draft model was asked for")),
    ],
)
def test_which_files_are_opened(model: str, draft: str, choice: Choice) -> None:
    assert choose(model, draft) == choice


def test_a_draft_that_is_not_there() -> None:
    with pytest.raises(ModelNotFound, match="no-such"):
        choose("bundled", "no-such")


def test_the_public_entrance() -> None:
    with localspec.load(TARGET, draft=DRAFT, n_ctx=256, threads=1, temperature=0.0, max_tokens=5) as engine:
        assert engine.reason == "this draft model was asked for; same vocabulary"
        assert engine.target.capabilities.n_ctx == 256
        one, two = engine.generate("def f(").finish(), engine.generate("def f(").finish()
        assert one.text == two.text and one.completion_tokens == 5
        assert engine.generate("def f(", max_tokens=3).finish().completion_tokens == 3


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"n_ctx": -1}, "n_ctx"), ({"temperature": 9}, "temperature"), ({"treads": 1}, "treads")],
)
def test_bad_settings(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidOptions, match=sentence):
        load("bundled", **settings)


def test_a_backend_that_is_not_there() -> None:
    with pytest.raises(BackendUnavailable, match="mlx"):
        load("bundled", backend="mlx")


def test_a_draft_of_another_vocabulary_is_refused_and_nothing_stays_open(tmp_path: Path) -> None:
    choice = Choice(TARGET, other_vocabulary(tmp_path / "other.gguf"), "asked")
    process = psutil.Process()
    with pytest.raises(TokenizerMismatch, match="def"):
        load_engine(choice, config=SMALL)
    gc.collect()
    before = process.memory_info().rss
    for _ in range(5):
        with pytest.raises(TokenizerMismatch):
            load_engine(choice, config=SMALL)
    # A target left open each time would be five times its size.
    assert process.memory_info().rss - before < 2 * TARGET.stat().st_size


def test_progress_names_the_stage() -> None:
    told: list[tuple[str, float]] = []
    load_engine(
        choose("bundled", "auto"), config=SMALL, progress=lambda stage, f: told.append((stage, f))
    ).close()
    assert [stage for stage, fraction in told if fraction == 1.0] == ["target", "draft"]
