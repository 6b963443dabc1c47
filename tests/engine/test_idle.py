"""Measurements of an idle engine, forward by forward."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from localspec.backends.base import CONTEXT, PIECE, WIDTHS, Probe
from localspec.engine.engine import Engine
from localspec.engine.learning import Learning
from localspec.errors import EngineBusy
from localspec.protocol.requests import EngineConfig
from localspec.speculation.costs import CostCurve
from tests.toy import ToyBackend, markov
from tests.toys import request, rested, run_all, small_markov

WIDEST = max(WIDTHS)


def backend(n_ctx: int = 600) -> ToyBackend:
    return ToyBackend(small_markov(1), n_ctx=n_ctx)


def widths_of(model: ToyBackend) -> Counter[int]:
    """Return the number of forwards by width, without shared ones."""
    return Counter(len(spans[0].tokens) for spans in model.forwards if len(spans) == 1)


def measured(model: ToyBackend) -> CostCurve:
    """The costs that a whole probe observes."""
    costs = CostCurve()
    for _ in Probe(model, costs.observe).steps():
        pass
    assert model.open_sequences == 0
    return costs


def test_every_width_is_timed_while_the_context_is_read_and_rows_are_checked() -> None:
    model = ToyBackend(small_markov(1), n_ctx=600, noise=0.1)
    costs = measured(model)
    widths = widths_of(model)
    assert {width: widths[width] for width in WIDTHS} == dict.fromkeys(WIDTHS, 2)
    assert all(costs.knows(width, CONTEXT) for width in (1, *WIDTHS))
    assert costs.widest(CONTEXT) == WIDEST


def test_a_width_is_timed_on_a_device_once_that_has_prepared_it() -> None:
    cpu, device = (ToyBackend(small_markov(1), n_ctx=600, noise=0.1) for _ in range(2))
    device.capabilities = replace(device.capabilities, settling=2)
    measured(cpu)
    costs = CostCurve(settling=2)
    for _ in Probe(device, costs.observe).steps():
        pass
    more, state = widths_of(device) - widths_of(cpu), costs.state()["0"]
    assert {more[width] for width in WIDTHS} == {3}
    assert all(state["seen"][width] == 2 and state["first"][width] for width in WIDTHS)


def test_a_check_that_is_interrupted_teaches_no_costs() -> None:
    """Its first forwards are slow, and a request that believed them would not draft."""
    costs = CostCurve()
    steps = Probe(ToyBackend(small_markov(1), n_ctx=600), costs.observe).steps()
    for _ in range(20):
        next(steps)
    steps.close()
    assert costs.list_measured() == {}


@pytest.mark.parametrize(("splits", "context"), [(True, CONTEXT), (False, sum(WIDTHS))])
def test_a_model_is_measured_by_few_forwards(splits: bool, context: int) -> None:
    """Few tokens behind a context that is long only where its length may change rows."""
    model = ToyBackend(small_markov(1), n_ctx=600, noise=0.1)
    model.capabilities = replace(model.capabilities, splits_contexts=splits)
    measured(model)
    widths = widths_of(model)
    assert widths[1] < 20 and context < sum(width * n for width, n in widths.items()) < context + 80


def test_a_small_context_is_measured_as_far_as_it_goes() -> None:
    assert measured(backend(64)).knows(WIDEST, 40)


def test_no_forward_is_wider_than_the_backend_takes() -> None:
    model = backend()
    model.capabilities = type(model.capabilities)(n_ctx=600, max_sequences=1, max_batch=PIECE)
    measured(model)
    assert max(len(span.tokens) for spans in model.forwards for span in spans) == PIECE


@pytest.mark.parametrize("steps", [1, 2, 3, 20])
def test_a_measurement_that_is_closed_frees_what_it_used(steps: int) -> None:
    model = backend()
    measuring = Probe(model).steps()
    for _ in range(steps):
        next(measuring)
    assert model.open_sequences == 1
    measuring.close()
    assert model.open_sequences == 0


def test_without_a_free_sequence_there_is_an_error_and_nothing_is_forwarded() -> None:
    model = ToyBackend(small_markov(1), n_ctx=600, max_sequences=1)
    model.open()
    with pytest.raises(EngineBusy):
        next(Probe(model).steps())
    assert not model.forwards


def test_an_engine_without_idle_measuring_forwards_nothing_while_it_is_idle() -> None:
    target = backend()
    engine = Engine(target, config=EngineConfig(idle_measuring=False))
    assert rested(engine) == 0 and not target.forwards
    assert rested(Engine(target)) > 0 and target.forwards


def test_a_measurement_sets_a_cache_aside_and_takes_none_away() -> None:
    engine = Engine(ToyBackend(small_markov(1), n_ctx=600, max_sequences=1))
    for cached in (0, 89):
        sequence = engine.submit(request("abc" * 30, max_tokens=4, temperature=0.0))
        run_all(engine, [sequence])
        assert sequence.cached == cached
        rested(engine)
    assert engine.learning.costs.knows(21, CONTEXT)


def test_it_is_put_off_while_others_hold_all_sequences() -> None:
    target = ToyBackend(small_markov(1), n_ctx=600, max_sequences=1)
    engine, foreign = Engine(target), target.open()
    for _ in range(3):
        assert rested(engine) == 0 and not target.forwards
    target.close(foreign)
    rested(engine)
    assert engine.learning.costs.knows(21, CONTEXT)


def test_a_measurement_that_was_interrupted_goes_on_with_what_is_missing() -> None:
    target = backend()
    engine = Engine(target)
    whole = rested(Engine(backend()))
    for _ in range(whole - 6):
        assert engine.rest()
    sequence = engine.submit(request("abc", max_tokens=2, temperature=0.0, proposer="none"))
    assert target.open_sequences == 0
    assert not engine.rest()  # a request waits
    run_all(engine, [sequence])
    assert rested(engine) < whole - 20  # finished parts are not repeated
    assert engine.learning.costs.knows(21, CONTEXT)


@pytest.mark.parametrize(("plugged", "is_measured"), [(False, False), (True, True), (None, True)])
def test_on_battery_nothing_is_measured(
    plugged: bool | None, is_measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    battery = SimpleNamespace(power_plugged=plugged)
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    engine = Engine(backend())
    assert (rested(engine) > 20) is is_measured
    battery.power_plugged = True
    run_all(engine, [engine.submit(request("abc", max_tokens=2))])
    rested(engine)
    assert engine.learning.costs.knows(21, CONTEXT)


def test_what_a_request_taught_is_written_once_it_has_ended(tmp_path: Path) -> None:
    target = backend()
    engine = Engine(target, learning=Learning(target, directory=tmp_path))
    rested(engine)
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    run_all(engine, [engine.submit(request("abcabc", max_tokens=30, temperature=0.0))])
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before
    rested(engine)
    after = {path: path.read_text() for path in tmp_path.iterdir()}
    assert before and after.keys() >= before.keys() and after != before


def test_nothing_rests_after_the_end() -> None:
    target = backend()
    engine = Engine(target)
    assert engine.rest()
    engine.close()
    assert not engine.rest() and target.open_sequences == 0


@pytest.mark.parametrize("rollback", [0, 4])
def test_a_cache_that_cannot_be_rolled_back_is_no_reason_to_fail(tmp_path: Path, rollback: int) -> None:
    target = ToyBackend(markov(), n_ctx=600, rollback=rollback)
    engine = Engine(target, learning=Learning(target, directory=tmp_path))
    rested(engine)
    assert target.open_sequences == 0 and (engine.learning.rounding.measured is None) == (rollback == 0)
