"""The delay of automatic completions by the speeds of a user and a model."""

from __future__ import annotations

import time

import pytest

from localspec.daemon.pace import GAP_S, GAPS, LONGEST_S, PAUSE_S, Pace
from tests.daemon.harness import Raw


def typing(gap: float, answer: float, keys: int = 60) -> Pace:
    """A user who types a key each ``gap``, on a model that answers in ``answer``."""
    pace = Pace()
    for key in range(keys):
        pace.requested(key * gap)
        pace.answered(answer, whole=True)
    return pace


def test_at_first_nothing_waits() -> None:
    assert Pace().wait == 0


@pytest.mark.parametrize("answer", [0.0, 0.02, 0.149])
def test_an_answer_that_comes_between_two_keys_is_begun_at_once(answer: float) -> None:
    assert typing(0.15, answer).wait == 0


def test_a_slower_one_waits_the_longer_the_longer_it_takes() -> None:
    waits = [typing(0.15, answer).wait for answer in (0.15, 0.2, 0.25, 0.3, 5.0)]
    assert waits == sorted(waits) and waits[0] == pytest.approx(0, abs=0.001)
    assert waits[1] == pytest.approx(0.05, abs=0.01)
    assert waits[-1] == pytest.approx(GAPS * 0.15, rel=0.01)


def test_a_slow_typist_waits_for_no_longer_than_a_pause() -> None:
    assert typing(0.5, 5.0).wait == LONGEST_S


def test_a_pause_is_no_typing() -> None:
    thoughtful = Pace()
    for second in range(100):
        thoughtful.requested(second * 2 * PAUSE_S)
    thoughtful.answered(100.0, whole=True)
    fresh = Pace()
    fresh.answered(100.0, whole=True)
    assert thoughtful.wait == fresh.wait <= GAPS * GAP_S


def test_what_was_given_up_tells_how_long_it_takes_at_least() -> None:
    pace = typing(0.15, 0.0)
    pace.answered(0.01, whole=False)
    assert pace.wait == 0
    pace.answered(0.4, whole=False)
    waited = pace.wait
    assert waited > 0.2
    pace.answered(0.001, whole=False)
    assert pace.wait == waited, "one that was given up early says nothing"


def test_a_model_that_has_to_be_loaded_first_is_not_slow_for_long() -> None:
    pace = typing(0.15, 0.05)
    pace.answered(60.0, whole=True)
    for _ in range(10):
        pace.answered(0.05, whole=True)
    assert pace.wait == 0


@pytest.mark.slow
async def test_while_a_question_waits_a_newer_one_spares_the_model(client: Raw) -> None:

    async def ask(id: int, prefix: str, **more: object) -> None:
        await client.ask(id, "completion/inline", prefix=prefix, suffix="", path="pace.py", **more)

    async def at_work() -> bool:
        status = await client.result("status", "daemon/status")
        return any(model["running"] for model in status["models"])

    async def at_work_when_replaced(id: int, after_s: float) -> bool:
        await ask(id, f"{id}\nstall")
        began, start = False, time.monotonic()
        while time.monotonic() - start < after_s:
            began = began or await at_work()
        await ask(id + 1, f"newer {id}", trigger="invoked")
        assert (await client.response(id))["result"]["result"]["finish_reason"] == "cancelled"
        assert (await client.response(id + 1))["result"]["items"]
        return began

    await ask(1, "loaded")
    assert (await client.response(1))["result"]["items"]
    assert await at_work_when_replaced(2, after_s=1.0), "the first is begun at once"
    # This model is known to be slow now. A machine that sleeps in between is given another chance.
    assert any([not await at_work_when_replaced(id, after_s=0.1) for id in range(4, 14, 2)])
    # A request with a short deadline does not wait until it.
    await ask(20, "20\nword", max_ms=250)
    assert (await client.response(20))["result"]["items"]
