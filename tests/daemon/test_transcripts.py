"""The golden conversations, replayed against the real daemon (see transcripts/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.protocol.messages import METHODS, NOTIFICATIONS
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import Frame, Raw, raw

TRANSCRIPTS = sorted(Path(__file__).parent.parent.joinpath("transcripts").glob("*.jsonl"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


class Replay:
    """One conversation under way: the values that its placeholders stand for."""

    def __init__(self, client: Raw) -> None:
        self.client = client
        self.values: dict[str, Any] = {}
        self.early: Frame | None = None

    async def play(self, line: dict[str, Any]) -> None:
        if "client" in line:
            said = line["client"]
            await self.client.say(said if isinstance(said, str) else json.dumps(self.filled(said)))
        else:
            self.match(line["server"], await self.frame(line["server"]), "frame")

    async def frame(self, expected: Frame) -> Frame:
        """The next frame; deltas are joined until they are as long as the one expected."""
        frame = self.early or await self.client.next()
        self.early = None
        while frame.get("method") == "stream/delta" and (
            len(frame["params"]["tokens"]) < len(expected.get("params", {}).get("tokens", ()))
        ):
            more = await self.client.next()
            if more.get("method") != "stream/delta":
                self.early = more
                break
            for key in ("text", "tokens"):
                frame["params"][key] += more["params"][key]
        return frame

    def filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.filled(item) for key, item in value.items()}
        return self.values.get(value, value) if isinstance(value, str) else value

    def match(self, expected: Any, found: Any, where: str) -> None:
        if isinstance(expected, dict):
            keys = expected.keys() - {"<exactly>"}
            assert isinstance(found, dict) and keys <= found.keys(), f"{where}: {found}"
            assert "<exactly>" not in expected or keys == found.keys(), f"{where}: {found}"
            for key in keys:
                self.match(expected[key], found[key], f"{where}.{key}")
        elif isinstance(expected, list):
            assert isinstance(found, list) and len(found) == len(expected), f"{where}: {found}"
            for number, (one, other) in enumerate(zip(expected, found, strict=True)):
                self.match(one, other, f"{where}[{number}]")
        elif isinstance(expected, str) and expected.startswith("<") and expected.endswith(">"):
            assert expected == "<*>" or self.values.setdefault(expected, found) == found, f"{where}: {found}"
        else:
            assert found == expected and type(found) is type(expected), f"{where}: {found!r}"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
async def test_replays(start: StartDaemon, path: Path) -> None:
    async with raw(start(), initialize=False) as client:
        replay = Replay(client)
        for line in lines(path):
            await replay.play(line)


def test_every_method_and_notification_has_its_transcript() -> None:
    frames = [
        frame
        for path in TRANSCRIPTS
        for line in lines(path)
        for frame in line.values()
        if isinstance(frame, dict)
    ]
    shown = {frame["method"] for frame in frames if "method" in frame}
    assert {*METHODS, *NOTIFICATIONS} - shown == {"metrics", "models/list"}, "their values are this machine's"
