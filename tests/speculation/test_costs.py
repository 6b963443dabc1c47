"""The cost of a forward: learnt from noisy times, kept, and corrected by new ones."""

from __future__ import annotations

import json
import random

import pytest

from localspec.speculation.costs import CostCurve, prior_for

TRUE = {1: 12.0, 2: 32.0, 3: 40.0, 5: 54.0, 8: 60.0, 9: 80.0, 17: 120.0}


def taught(
    rounds: int = 60, *, noise: float = 0.1, load: float = 1.0, curve: CostCurve | None = None
) -> CostCurve:
    rng, curve = random.Random(1), curve or CostCurve("Q8_0")
    for i in range(rounds):
        width = list(TRUE)[i % len(TRUE)]
        curve.observe(width, 500, load * TRUE[width] / 1000 * rng.uniform(1 - noise, 1 + noise))
    return curve


@pytest.fixture
def curve() -> CostCurve:
    return taught()


def test_measured_widths_come_out_as_they_went_in(curve: CostCurve) -> None:
    for width, ms in TRUE.items():
        assert curve.seconds(width, 500) == pytest.approx(ms / 1000, rel=0.15)


def test_between_widths_lines_are_straight() -> None:
    curve = taught(noise=0)
    assert curve.seconds(13, 500) == pytest.approx(0.100, rel=0.01)
    assert curve.seconds(30, 500) > curve.seconds(17, 500)


def test_a_busy_machine_changes_the_level_and_not_the_ratios(curve: CostCurve) -> None:
    ratio = curve.seconds(8, 500) / curve.seconds(1, 500)
    for _ in range(40):
        curve.observe(1, 500, 0.024)
    assert curve.seconds(1, 500) == pytest.approx(0.024, rel=0.05)
    assert curve.seconds(8, 500) / curve.seconds(1, 500) == pytest.approx(ratio, rel=0.02)


def test_one_forward_that_was_held_up_is_not_believed(curve: CostCurve) -> None:
    before = curve.seconds(1, 500)
    curve.observe(1, 500, 10.0)
    assert curve.seconds(1, 500) < 1.2 * before


def test_before_anything_is_known_the_nearest_table_serves() -> None:
    curve = CostCurve("llama_cpp 0.3 Q8_0")
    assert curve.seconds(5) / curve.seconds(1) == pytest.approx(3.47)
    assert CostCurve("F32").seconds(5) / CostCurve("F32").seconds(1) == pytest.approx(1.41)
    assert prior_for("something else") is prior_for("")
    assert prior_for("mlx 0.32.4 qwen3 4bit 9 bytes, Apple M3 Max (gpu), chunks of 256")[2] == 1.03
    assert prior_for("mlx 0.32.4 qwen3 F16 9 bytes, cpu, chunks of 256") is prior_for("llama_cpp F16")
    assert curve.widest() == 1 and not curve.knows(1, 0) and curve.list_measured() == {}


def test_a_longer_context_starts_from_what_a_shorter_one_taught() -> None:
    curve = taught(noise=0)
    assert curve.seconds(8, 30_000) == pytest.approx(0.060, rel=0.01)
    curve.observe(1, 30_000, 0.050)
    for _ in range(50):
        curve.observe(1, 30_000, 0.050)
    assert curve.seconds(1, 30_000) == pytest.approx(0.050, rel=0.05)
    assert curve.seconds(1, 500) == pytest.approx(0.012, rel=0.05)


def test_pieces_of_prompts_are_priced_by_the_token_and_teach_rounds_nothing() -> None:
    curve = taught(noise=0)
    curve.observe(256, 500, 0.512)
    assert curve.seconds(512, 500) == pytest.approx(1.024)
    assert curve.widest(500) == 17
    assert curve.seconds(5, 500) == pytest.approx(0.054, rel=0.01)


def test_costs_of_pieces_of_prompts_alone_do_not_make_rounds_free() -> None:
    costs, fresh = (CostCurve("llama_cpp Q8_0") for _ in range(2))
    costs.observe(256, 0, 1.0)
    assert costs.line(300) == fresh.line(300) and costs.seconds(1, 0) > 0
    with pytest.raises(ValueError, match="Expected `float`"):
        costs.restore({"0": {"level": 0.0, "per_token": 0.1, "ratios": {}, "seen": {}}})


def test_a_line_is_the_same_as_asking_for_each_width() -> None:
    for curve in (taught(), CostCurve("F16")):
        assert curve.line(500) == pytest.approx([curve.seconds(width, 500) for width in range(65)])


def test_what_was_learnt_is_kept() -> None:
    curve, again = taught(), CostCurve("Q8_0")
    again.restore(json.loads(json.dumps(curve.state())))
    assert again.line(500) == pytest.approx(curve.line(500))
    assert again.widest(500) == curve.widest(500) == 17


def test_costs_are_kept_after_a_process_was_stopped_within_a_forward() -> None:
    curve = CostCurve()
    curve.observe(1, 0, 1e-3)
    curve.observe(2, 0, 120.0)
    curve.observe(2, 0, 1e9)
    CostCurve().restore(json.loads(json.dumps(curve.state())))


def test_nonsense_is_not_observed(curve: CostCurve) -> None:
    before = curve.line(500)
    for width, seconds in ((1, 0.0), (1, -1.0), (0, 1.0)):
        curve.observe(width, 500, seconds)
    assert curve.line(500) == before


@pytest.mark.parametrize("times", [3, 10, 30])
@pytest.mark.parametrize("held_up", range(3))
def test_one_slow_forward_among_the_first_does_not_spoil_what_is_learnt(times: int, held_up: int) -> None:
    curve = CostCurve("Q8_0")
    for i in range(3):
        for width, ms in TRUE.items():
            slow = times if i == held_up else 1
            curve.observe(width, 500, slow * ms / 1000)
    for width, ms in TRUE.items():
        assert curve.seconds(width, 500) == pytest.approx(ms / 1000, rel=0.01)


def test_a_width_seen_before_the_narrow_one_keeps_its_time() -> None:
    """Its ratio was to a narrow forward that was only guessed."""
    curve = CostCurve("Q8_0")
    for _ in range(3):
        curve.observe(5, 500, 0.054)
    for _ in range(3):
        curve.observe(1, 500, 0.030)
    assert curve.seconds(1, 500) == pytest.approx(0.030)
    assert curve.seconds(5, 500) == pytest.approx(0.054)


def test_one_slow_piece_of_a_prompt_is_a_hiccup(curve: CostCurve) -> None:
    curve.observe(256, 500, 0.256)
    curve.observe(256, 500, 25.6)
    assert curve.seconds(1000, 500) < 1.2
    curve.observe(256, 500, 0.128)
    assert curve.seconds(1000, 500) == pytest.approx(0.5, rel=0.2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"level": "much"},
        {"level": float("nan")},
        {"level": 1e308},
        {"level": 0},
        {"level": int("9" * 400)},
        {"ratios": 7},
        {"ratios": {"2": 0}},
        {"ratios": {"2": 1e-320}},
        {"seen": {"2": float("inf")}},
        {"seen": {"-3": 5}},
        {"seen": {"1000000": 5}},
    ],
)
def test_a_spoilt_record_is_refused_whole(curve: CostCurve, wrong: dict[str, object]) -> None:
    record = {"level": 0.01, "per_token": 0.001, "ratios": {"2": 1.5}, "seen": {"1": 9, "2": 9}}
    before = curve.line(500)
    states: list[dict[str, object]] = [{"0": record | wrong}, {"0": record, "x": record}, {"0": 3}, {"0": {}}]
    for state in states:
        with pytest.raises((ValueError, KeyError, TypeError, AttributeError, ArithmeticError)):
            curve.restore(state)
    assert curve.line(500) == before


def replaying(curve: CostCurve) -> CostCurve:
    """A device on which the first two forwards of a width take 30 ms, further ones 10 + width."""
    for width in (1, 8, 1, 8):
        for i in range(6):
            curve.observe(width, 100, 0.030 if i < 2 else (10 + width) / 1000)
    return curve


def test_the_first_forwards_of_a_width_are_priced_apart() -> None:
    curve, blind = replaying(CostCurve(settling=2)), replaying(CostCurve())
    assert (curve.seconds(1, 100), curve.seconds(8, 100)) == pytest.approx((0.011, 0.018))
    assert curve.switches(100)[8] == pytest.approx(2 * 0.012) == curve.switches(5000)[8]
    assert curve.switches(100)[4] == pytest.approx(2 * (0.030 - curve.seconds(4, 100)))
    assert blind.switches(100) == () and blind.seconds(8, 100) > 0.018
    assert curve.widest(100) == 8 and not replaying(CostCurve(settling=6)).knows(8, 100)


def test_only_a_change_between_rounds_costs_one() -> None:
    curve = replaying(CostCurve(settling=2))
    assert curve.last == 8 and curve.change_s(8, 100) == 0.0
    assert curve.change_s(1, 100) == pytest.approx(2 * 0.019)
    curve.interrupt()  # a prompt was read: plain decoding, too, has to begin anew
    assert curve.last == 0 and curve.change_s(1, 100) == 0.0
    again = CostCurve(settling=2)
    again.restore(json.loads(json.dumps(curve.state())))
    assert again.switches(100) == curve.switches(100)


def test_a_first_forward_that_was_held_up_is_hardly_believed() -> None:
    curve = replaying(CostCurve(settling=2))
    before = curve.switches(100)[1]
    curve.observe(1, 100, 0.300)
    assert before < curve.switches(100)[1] < 2 * before
    for width in (8, 1):
        curve.observe(width, 100, 0.030)
    assert curve.switches(100)[1] < 1.3 * before
