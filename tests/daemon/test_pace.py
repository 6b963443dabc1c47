"""The delay of automatic completions on a slow model."""

from __future__ import annotations

import time

import pytest

from tests.daemon.harness import Raw


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
