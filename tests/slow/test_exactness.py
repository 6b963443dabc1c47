"""Exactness at length: more than a thousand generated cases, and 100,000 draws through the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import hypothesis
import pytest
from hypothesis import Phase, given, settings

from tests.mlx_models import FAMILIES
from tests.parity.cases import TOY_MODELS, TOY_TEXTS, Case, ToyModel, cases
from tests.parity.chains import LIMIT, chi_square, draws
from tests.parity.loaded import HYBRID_TEXTS, HYBRIDS, LONG, MODELS, loaded, loaded_hybrid, texts_of
from tests.parity.play import FIXED, Tally, Toys, play, played
from tests.slow.share import share

pytestmark = pytest.mark.slow

Record = Callable[[str, object], None]

TOY_CASES, LOADED_CASES, LONG_CASES, MLX_CASES, DRAWS = share(200), share(125), 20, 15, 100_000
HYBRID_CASES = share(60)
VARIED = 60
"""cases from which on some of a recurrent model's prompts begin with a cached one"""
MLX_MODELS = (*FAMILIES, "qwen3, 8-bit cells", "qwen3, 4-bit cells")
AT_LENGTH = settings(FIXED, phases=(Phase.generate, Phase.shrink))


def report(tally: Tally, record: Record, what: str) -> None:
    """The receipt; a text that differed has failed the test before."""
    for name, value in asdict(tally).items():
        record(name, value)
    record("divergences", 0)
    print(f"{what}: {tally}")


@pytest.mark.parametrize("number", range(4))
def test_toys(number: int, record_property: Record) -> None:
    tally = Tally()

    @hypothesis.seed(number)
    @settings(AT_LENGTH, max_examples=TOY_CASES)
    @given(model=TOY_MODELS, case=cases(TOY_TEXTS))
    def same(model: ToyModel, case: Case) -> None:
        play(Toys(model), case, tally)

    same()
    report(tally, record_property, f"toys {number}")
    assert tally.cases >= TOY_CASES and tally.is_varied()


@pytest.mark.parametrize("name", MODELS)
def test_loaded_models(name: str, tmp_path: Path, record_property: Record) -> None:
    wanted = LONG_CASES if name.endswith(LONG) else LOADED_CASES
    how = settings(AT_LENGTH, max_examples=wanted)
    with loaded(name, tmp_path) as world:
        tally = played(world, texts_of(name), MODELS.index(name), how)
    report(tally, record_property, name)
    # F16 rows differ at every width: only requests that are not strict have drafts there.
    assert tally.cases >= wanted and (0 < tally.accepted <= tally.drafted or name == f"F16{LONG}")
    assert tally.cached > 0
    assert (tally.cancelled > 0 and tally.degraded > 0) or wanted == LONG_CASES


@pytest.mark.parametrize("name", HYBRIDS)
def test_hybrids(name: str, tmp_path: Path, record_property: Record) -> None:
    how = settings(AT_LENGTH, max_examples=HYBRID_CASES)
    with loaded_hybrid(name, tmp_path) as world:
        tally = played(world, HYBRID_TEXTS, HYBRIDS.index(name), how)
    report(tally, record_property, name)
    assert tally.cases >= HYBRID_CASES and (tally.cached > 0 or HYBRID_CASES < VARIED)
    assert tally.tokens > 500


@pytest.mark.parametrize("name", MLX_MODELS)
def test_mlx_models(name: str, tmp_path: Path, record_property: Record) -> None:
    pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
    from tests.parity.loaded_mlx import TEXTS, loaded_mlx

    how = settings(AT_LENGTH, max_examples=MLX_CASES)
    with loaded_mlx(name, tmp_path) as world:
        tally = played(world, TEXTS, MLX_MODELS.index(name), how)
    report(tally, record_property, f"mlx {name}")
    assert tally.cases >= MLX_CASES and 0 < tally.accepted < tally.drafted
    assert tally.tokens > 100


@pytest.mark.parametrize(("proposer", "k"), [("draft", None), ("auto", None), ("draft", 4)])
def test_draws_without_a_seed_follow_the_target(
    monkeypatch: pytest.MonkeyPatch, record_property: Record, proposer: str, k: int | None
) -> None:
    """The gate of the controller, the verifier and the engine in one loop."""
    counts, drafted, accepted = draws(monkeypatch, n=DRAWS, proposer=proposer, k=k)
    found = chi_square(counts)
    record_property("chi_square", found)
    drafts = f"{drafted} drafted, {accepted} accepted"
    print(f"{proposer}, k={k}: {counts.sum()} draws, chi-square {found:.1f}, {drafts}")
    assert counts.sum() >= DRAWS and 0 < accepted < drafted
    assert found < LIMIT
