"""A wire that is listened to: frames between an editor and its daemon pass as they are, and are kept."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

Frame = dict[str, Any]

COMMAND = """#!{python}
import json, subprocess, sys
done = subprocess.run([{python!r}, "-m", "localspec", *sys.argv[1:]], stdout=subprocess.PIPE)
found = json.loads(done.stdout)
sys.stdout.write(json.dumps({{**found, "url": {url!r}}} if "url" in found else found))
sys.exit(done.returncode)
"""


class Tap:
    """What passed, in the order in which it did; frames of the editor and of the daemon."""

    def __init__(self, home: Path) -> None:
        self.frames: list[tuple[str, Frame]] = []
        self.url = ""
        self._home = home

    def put_command(self, folder: Path) -> None:
        """A command ``localspec`` that tells editors to come here."""
        command = folder / "localspec"
        command.write_text(COMMAND.format(python=sys.executable, url=self.url))
        command.chmod(0o755)

    def mark(self) -> int:
        """From where on to look."""
        return len(self.frames)

    def sent(self, method: str, since: int = 0) -> list[Frame]:
        """The parameters of what the editor sent."""
        return [
            frame["params"]
            for who, frame in self.frames[since:]
            if who == "editor" and frame["method"] == method
        ]

    async def pass_on(self, editor: ServerConnection) -> None:
        """Connect to the daemon as the editor does, and hand over what either says."""
        found = json.loads((self._home / "runtime" / "daemon.json").read_bytes())
        assert editor.request is not None
        words = editor.request.headers["Sec-WebSocket-Protocol"].split(",")
        offered = [Subprotocol(word.strip()) for word in words]
        async with connect(found["url"], subprotocols=offered, compression=None, max_size=None) as daemon:
            ends = [
                asyncio.create_task(self._hand("editor", editor, daemon)),
                asyncio.create_task(self._hand("daemon", daemon, editor)),
            ]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()

    async def _hand(
        self,
        who: str,
        source: ServerConnection | ClientConnection,
        target: ServerConnection | ClientConnection,
    ) -> None:
        try:
            async for text in source:
                self.frames.append((who, json.loads(text)))
                await target.send(text)
        except ConnectionClosed:
            pass


@contextmanager
def tapping(home: Path) -> Iterator[Tap]:
    """A tap on the wire to the daemon of a home, in a thread of its own."""
    tap = Tap(home)
    ready, over = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        subprotocols = [Subprotocol("localspec.v1")]
        async with serve(tap.pass_on, "127.0.0.1", 0, subprotocols=subprotocols, max_size=None) as server:
            host, port = next(iter(server.sockets)).getsockname()[:2]
            tap.url = f"ws://{host}:{port}"
            ready.set()
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield tap
    finally:
        loops[0].call_soon_threadsafe(over.set)
        thread.join()
