"""A client that does not read is dropped; no other client is disturbed."""

from __future__ import annotations

import pytest

from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import raw, texts
from tests.daemon.test_history import open_session, stored
from tests.daemon.test_streams import idle

MIB = 1024 * 1024
CANCELLED = 'localspec_requests_total{ending="cancelled",method="generate"}'


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_dropped_and_its_requests_cancelled(start: StartDaemon) -> None:
    """Its chat as well, which would go on if the client were lost."""
    daemon = start(send_buffer=65536, slow_client_s=0.2, grace_s=600)
    async with raw(daemon) as sleeper, raw(daemon) as reader:
        session = await open_session(sleeper)
        sleeper.socket.transport.pause_reading()
        await sleeper.ask(2, "chat/send", session=session, content="flood 100000000 20")
        await sleeper.ask(1, "generate", prompt="flood 100000000 20")
        answer = await reader.call(1, "generate", prompt="flood 500 10", options={"model": "other"})
        assert texts(reader.seen, 1) == answer["result"]["text"] == "x" * 5000
        await idle(reader)
        assert stored(daemon)[1][2] == "cancelled"
        status = await reader.result(3, "daemon/status")
        assert status["resident_bytes"] < 200 * MIB
        # The request is counted a little later than its stream ends.
        while CANCELLED not in (totals := (await reader.result(4, "metrics"))["totals"]):
            pass
        assert totals[CANCELLED] == totals["localspec_slow_clients_total"] == 1
        sleeper.socket.transport.resume_reading()
        assert await sleeper.close_code() in (1006, 1013)
    assert "does not read" in daemon.log()
