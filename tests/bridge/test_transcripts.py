"""The golden conversations, through the bridge (see transcripts/README.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bridge.harness import bridged
from tests.daemon.conftest import StartDaemon
from tests.daemon.test_transcripts import TRANSCRIPTS, Replay, lines

ALWAYS = "completion"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem == ALWAYS else [pytest.mark.slow])
        for path in TRANSCRIPTS
    ],
)
async def test_replays(start: StartDaemon, path: Path) -> None:
    daemon = start()
    async with bridged(daemon.home, initialize=False) as (client, _):
        replay = Replay(client)
        for line in lines(path):
            await replay.play(line)
