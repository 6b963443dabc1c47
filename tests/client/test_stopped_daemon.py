"""A daemon that stands still for a minute, as one does whose machine is suspended: its clients go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localspec.client import Client, connect, discovery
from localspec.client.wire import open_socket
from tests.daemon.harness import ECHO_DAEMON, write_config
from tests.waiting import DEADLINE_S, soon

STILL_S = 60.0


async def test_clients_send_no_pings_of_their_own(home: Path) -> None:
    """The kernel reports the end of a daemon; silence alone ends no connection."""
    write_config(home, tcp=True)
    async with await connect(command=ECHO_DAEMON):
        found = discovery.find()
        assert found is not None
        url, token = found.url, Path(found.token_file).read_text()
        for socket in (await open_socket(), await open_socket(url=url, token=token)):
            assert socket.ping_interval is None
            await socket.close()


@pytest.mark.slow
async def test_an_answer_goes_on_after_the_daemon_stood_still(home: Path) -> None:
    """It is what it is without a pause."""
    write_config(home, options={"max_tokens": 1500, "temperature": 0.0, "proposer": "none"})
    words = (sys.executable, "-P", "-m", "localspec", "run", "--raw", "def fib(n):")
    expected = subprocess.run(words, capture_output=True, timeout=4 * DEADLINE_S, check=True).stdout
    found = discovery.find()
    assert found is not None
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.read(1)
        os.kill(found.pid, signal.SIGSTOP)
        try:
            time.sleep(STILL_S)
        finally:
            os.kill(found.pid, signal.SIGCONT)
        rest, told = process.communicate(timeout=4 * DEADLINE_S)
        assert process.returncode == 0, told
        assert first + rest == expected
    client: Client = await soon(connect(start=False))
    async with client:
        assert (await client.status()).running == 0
