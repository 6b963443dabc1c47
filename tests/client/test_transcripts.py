"""The golden conversations with the daemon's half played: the client's messages, and its results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, unix_serve

from localspec.client.stream import Event, Stream
from localspec.client.subscription import Subscription
from localspec.client.wire import Wire, open_socket
from localspec.errors import InvalidOptions, LocalspecError
from localspec.home import socket_path
from localspec.protocol import messages
from localspec.protocol.events import LiveEvent
from localspec.protocol.jsonrpc import INVALID_PARAMS
from tests.daemon.test_transcripts import TRANSCRIPTS, lines
from tests.waiting import soon, until

Frame = dict[str, Any]
VALUE = "a value"
"""the value of placeholders"""
LEAST: dict[str, Frame] = {
    "stream/started": {"stream": VALUE},
    "stream/progress": {"stage": "queued", "fraction": 0.0},
    "stream/delta": {"tokens": []},
    "model/progress": {"stage": "weights", "fraction": 0.0},
}
"""fields that a daemon always sends; conversations leave out those that do not matter to them"""
TOKEN = {"id": 1, "source": "target", "chars": 0}


def filled(value: Any) -> Any:
    """Return a value that a daemon could send where this one is expected."""
    if isinstance(value, dict):
        return {key: filled(item) for key, item in value.items() if key != "<exactly>"}
    if isinstance(value, list):
        return [filled(item) for item in value]
    is_placeholder = isinstance(value, str) and value.startswith("<") and value.endswith(">")
    return VALUE if is_placeholder else value


def meant(method: str, params: Any) -> Any:
    """Return parameters as the wire's type has them if they are valid, with defaults for missing fields."""
    try:
        return msgspec.convert(params, messages.METHODS[method])
    except (KeyError, msgspec.ValidationError):
        return params


class Play:
    """One conversation under way: the client's end, and the socket at whose other end this is the daemon."""

    def __init__(self, wire: Wire, daemon: ServerConnection) -> None:
        self.wire = wire
        self.daemon = daemon
        self.ids: dict[Any, int] = {}
        """the transcript's, and those that the client has chosen"""
        self.live: dict[Any, tuple[Stream[Any], AsyncIterator[Event]]] = {}
        self.wire.subscription = self.events = Subscription()

    async def client_says(self, said: Frame) -> None:
        """Have the client make this request or notification, and see that it is the one."""
        method, params = said["method"], filled(said.get("params", {}))
        if "id" in said:
            stream = self.wire.request(method, meant(method, params), Any)
            self.live[said["id"]] = stream, stream.events()
            self.ids[said["id"]] = int(stream.id)
        elif method == "$/cancelRequest":
            params = {"id": self.ids[params["id"]]}
            live = self.live.get(said["params"]["id"])
            if live is not None:
                live[0].stop()
            else:
                self.wire.notify(method, params)  # a client does not cancel what has ended
        else:
            self.wire.notify(method, params)
        frame = json.loads(await soon(self.daemon.recv()))
        assert (frame["jsonrpc"], frame["method"]) == ("2.0", method)
        assert frame.get("id") == self.ids.get(said.get("id"))
        assert meant(method, frame["params"]) == meant(method, params)

    async def daemon_says(self, said: Frame) -> None:
        """Send the daemon's message, and check the client's reaction."""
        frame, name = filled(said), said.get("id")
        if "method" in said:
            frame["params"] = {**LEAST.get(said["method"], {}), **frame["params"]}
            if tokens := frame["params"].get("tokens"):
                frame["params"]["tokens"] = [TOKEN | token for token in tokens]
            name = said["params"].get("request")
            if name is not None:
                frame["params"]["request"] = self.ids[name]
        elif "error" in said:
            frame["error"].setdefault("message", VALUE)
        else:
            frame.setdefault("result", {})
        if "method" not in said and name is not None:
            frame["id"] = self.ids[name]
        await self.daemon.send(json.dumps(frame))
        if "method" in said:
            await self.notified(frame["method"], frame["params"], name)
        elif name is not None:
            await self.ended(frame, name)

    async def notified(self, method: str, params: Frame, name: Any) -> None:
        told = msgspec.convert(params, messages.NOTIFICATIONS[method])
        if isinstance(told, LiveEvent):
            assert await soon(anext(self.events)) == told
        elif isinstance(told, messages.StreamStarted):
            stream, _ = self.live[name]
            await until(lambda: stream.name == told.stream, "the stream has its name")
        else:
            heard = self.live.values() if name is None else [self.live[name]]
            assert heard
            for stream, events in heard:
                assert await soon(anext(events)) == told
                assert not isinstance(told, messages.StreamDelta) or stream.seq == told.seq

    async def ended(self, frame: Frame, name: Any) -> None:
        stream, events = self.live.pop(name)
        if "result" in frame:
            assert await soon(stream.result()) == frame["result"]
            assert [event async for event in events] == []
            return
        with pytest.raises(LocalspecError) as raised:
            await soon(stream.result())
        error, data = frame["error"], frame["error"].get("data", {})
        if data:
            assert raised.value.code == data["code"]
            assert raised.value.remedy == data.get("remedy", raised.value.default_remedy)
        else:
            assert raised.value.message == error["message"]
            assert (type(raised.value) is InvalidOptions) == (error["code"] == INVALID_PARAMS)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
async def test_plays(home: Path, path: Path) -> None:
    connected: asyncio.Queue[ServerConnection] = asyncio.Queue()

    async def hold(socket: ServerConnection) -> None:
        connected.put_nowait(socket)
        await socket.wait_closed()

    place = str(socket_path())
    async with unix_serve(hold, place, subprotocols=[messages.SUBPROTOCOL]):
        wire = Wire(await open_socket())
        play = Play(wire, await soon(connected.get()))
        for line in lines(path):
            if "server" in line:
                await play.daemon_says(line["server"])
            elif isinstance(line["client"], dict):  # no client sends garbage
                await play.client_says(line["client"])
        assert play.live == {} and wire.lost is None
        await wire.close()
