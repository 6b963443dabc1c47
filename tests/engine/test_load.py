"""From names to an engine."""

from __future__ import annotations

import gc
import platform
from pathlib import Path
from typing import Any

import psutil
import pytest

import localspec
from localspec.config import EngineConfig
from localspec.engine.choice import Choice, choose
from localspec.engine.load import load, load_engine, speed_of
from localspec.errors import BackendUnavailable, InvalidOptions, ModelNotFound, TokenizerMismatch
from localspec.models.catalogue import bundled_model

TARGET, DRAFT = bundled_model("stdlib-6m"), bundled_model("stdlib-1m")
GGUF, ASKED = "on llama_cpp, as asked", "this draft model was asked for"
SMALL = EngineConfig(n_ctx=256, parallel=1, threads=1)


def other_vocabulary(path: Path) -> Path:
    """The bundled draft with one of its tokens renamed."""
    path.write_bytes(DRAFT.read_bytes().replace("Ġdef".encode(), "Ġdxf".encode(), 1))
    return path


@pytest.mark.parametrize(
    ("model", "draft", "choice"),
    [
        ("bundled", "auto", Choice(TARGET, DRAFT, GGUF, "the bundled pair")),
        ("stdlib-6m", "auto", Choice(TARGET, DRAFT, GGUF, "the bundled pair")),
        ("bundled", "none", Choice(TARGET, None, GGUF, "no draft model was wanted")),
        ("stdlib-1m", "auto", Choice(DRAFT, None, GGUF, "no draft model is known for this target")),
        ("stdlib-1m", "stdlib-6m", Choice(DRAFT, TARGET, GGUF, "this draft model was asked for")),
    ],
)
def test_which_files_are_opened(model: str, draft: str, choice: Choice) -> None:
    assert choose(model, draft, backend="llama_cpp") == choice


def test_a_draft_is_looked_for_in_the_format_of_its_target() -> None:
    target, draft, *reasons = choose("bundled", "auto", backend="mlx")
    assert (target, draft) == (bundled_model("stdlib-6m", "mlx"), bundled_model("stdlib-1m", "mlx"))
    assert reasons == ["on mlx, as asked", "the bundled pair"]
    assert choose("stdlib-6m", "stdlib-1m", backend="mlx").draft == draft


def test_the_format_decides_where_there_is_only_one() -> None:
    gguf, mlx = choose(str(TARGET), "none"), choose(str(TARGET.parent), "none")
    assert gguf.backend_reason == "on llama_cpp, which runs a GGUF file"
    assert mlx.backend_reason == "on mlx, which runs an MLX directory"
    with pytest.raises(InvalidOptions, match="is a GGUF file; mlx runs"):
        choose(str(TARGET), "none", backend="mlx")
    with pytest.raises(InvalidOptions, match="is an MLX directory; llama_cpp runs"):
        choose(str(TARGET.parent), "none", backend="llama_cpp")


def test_the_faster_format_is_taken_once_both_were_measured() -> None:
    seconds = {TARGET: 0.02, bundled_model("stdlib-6m", "mlx"): 0.004}
    choice = choose("bundled", "auto", speed=seconds.get)
    assert choice.target == bundled_model("stdlib-6m", "mlx")
    assert choice.backend_reason == "on mlx, which is faster here: 250 tokens/s against 50"
    home_of_mlx = platform.system() == "Darwin" and platform.machine() == "arm64"
    for known in ({}, {TARGET: 0.02}):
        assert (choose("bundled", "auto", speed=known.get).target == TARGET) == (not home_of_mlx)


def test_what_an_engine_measured_decides_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    assert speed_of(DRAFT) is None
    with load_engine(choose("stdlib-1m", "none", backend="llama_cpp"), config=SMALL) as engine:
        while engine.rest():
            pass
        measured = engine.learning.costs.seconds(1, 512)
    assert speed_of(DRAFT) == pytest.approx(measured)
    assert speed_of(TARGET) is None


def test_a_draft_that_is_not_there() -> None:
    with pytest.raises(ModelNotFound, match="no-such"):
        choose("bundled", "no-such")


def test_the_public_entrance() -> None:
    with localspec.load(TARGET, draft=DRAFT, n_ctx=256, threads=1, temperature=0.0, max_tokens=5) as engine:
        assert engine.reason == f"on llama_cpp, which runs a GGUF file; {ASKED}; same vocabulary"
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
    with pytest.raises(BackendUnavailable, match="toy"):
        load("bundled", backend="toy")


def test_a_draft_of_another_vocabulary_is_refused_and_nothing_stays_open(tmp_path: Path) -> None:
    choice = Choice(TARGET, other_vocabulary(tmp_path / "other.gguf"), GGUF, ASKED)
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
        choose("bundled", "auto", backend="llama_cpp"),
        config=SMALL,
        progress=lambda stage, f: told.append((stage, f)),
    ).close()
    assert [stage for stage, fraction in told if fraction == 1.0] == ["target", "draft"]
