"""Settings for one model, in a daemon that reads them from its configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import Raw, raw
from tests.models.ggufs import TARGET

SECTIONS = """
[models."stdlib-6m"]
n_ctx = 64
k = 2
draft = "none"
[models."other"]
threads = 3
"""


async def asked(client: Raw, what: str, **options: Any) -> dict[str, Any]:
    """Return the settings that the worker got: the request's ``options``, or the ``engine``'s settings."""
    answer = await client.call(f"{what} {options}", "generate", prompt=what, options=options)
    found: dict[str, Any] = json.loads(answer["result"]["text"])
    return found


@pytest.mark.slow
async def test_one_model_has_one_process_and_one_way_to_be_loaded_by_all_of_its_names(
    start: StartDaemon,
) -> None:
    async with raw(start(sections=SECTIONS)) as client:
        for name in ("stdlib-6m", "bundled", str(TARGET), f"{TARGET.parent}/./{TARGET.name}"):
            given = await asked(client, "engine", model=name, backend="llama_cpp")
            assert (given["n_ctx"], given["threads"]) == (64, 0)
            options = await asked(client, "options", model=name, backend="llama_cpp")
            assert (options["k"], options["draft"]) == (2, "none")
        status = (await client.call("s", "daemon/status"))["result"]
        assert len(status["models"]) == 1 and status["settings"] == "current"
        assert (await asked(client, "engine", model="other"))["threads"] == 3


@pytest.mark.slow
async def test_of_two_completions_for_one_file_the_newer_is_answered(start: StartDaemon) -> None:
    async with raw(start(sections=SECTIONS)) as client:
        for number in range(20):
            await client.ask(f"old {number}", "completion/inline", prefix="stall", suffix="", path="/work/a")
            new = await client.call(
                number, "completion/inline", prefix=f"{number}", suffix="", path="/work/a"
            )
            assert new["result"]["result"]["finish_reason"] == "stop"
            old = await client.response(f"old {number}")
            assert old["result"]["result"]["finish_reason"] == "cancelled"
