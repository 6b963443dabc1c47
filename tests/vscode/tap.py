"""A recorded wire: frames between an editor and its daemon pass unchanged, and are kept.

The tap has the token: it proves that to both sides in the other's place, as proofs hold for one port alone.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from localspec.client.wire import open_socket
from localspec.daemon.access.challenge import authenticated
from localspec.protocol.handshake import NONCE_PREFIX
from tests.vscode.editor import put_program
from tests.waiting import DEADLINE_S, until_sync

Frame = dict[str, Any]

COMMAND = """#!{python}
import json, subprocess, sys
done = subprocess.run([{python!r}, "-m", "localspec", *sys.argv[1:]], stdout=subprocess.PIPE)
found = json.loads(done.stdout)
sys.stdout.write(json.dumps({{**found, "url": {url!r}}} if "url" in found else found))
sys.exit(done.returncode)
"""


class Tap:
    """The frames of the editor and of the daemon that passed, in order."""

    def __init__(self, home: Path) -> None:
        self.frames: list[tuple[str, Frame]] = []
        self.url = ""
        self.editors: set[ServerConnection] = set()
        """connected editors"""
        self._home = home
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._answering = asyncio.Event()
        self._answering.set()

    def put_command(self, folder: Path) -> None:
        """Write a command ``localspec`` that sends editors to this tap."""
        put_program(folder / "localspec", COMMAND.format(python=sys.executable, url=self.url))

    def mark(self) -> int:
        """From where on to look."""
        return len(self.frames)

    def frames_of(self, method: str, since: int = 0) -> list[Frame]:
        """Return the editor's frames of a method."""
        return [frame for who, frame in self.frames[since:] if who == "editor" and frame["method"] == method]

    def sent(self, method: str, since: int = 0) -> list[Frame]:
        """The parameters of what the editor sent."""
        return [frame["params"] for frame in self.frames_of(method, since)]

    def next_of(self, method: str, since: int) -> Frame:
        """The first such frame, which is waited for."""
        until_sync(lambda: bool(self.frames_of(method, since)), f"{method} is sent")
        return self.frames_of(method, since)[0]

    def asked(self, since: int) -> Frame:
        """The parameters of the first completion request."""
        params: Frame = self.next_of("completion/inline", since)["params"]
        return params

    def events_of(self, item: str) -> list[tuple[str, int | None]]:
        """Return the feedback on a suggestion that was sent."""
        told = self.sent("completion/feedback")
        return [(each["event"], each.get("chars")) for each in told if each["item"] == item]

    @contextmanager
    def silence(self) -> Iterator[None]:
        """The daemon's answers are kept back."""
        self._loop.call_soon_threadsafe(self._answering.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._answering.set)

    def cut(self) -> None:
        """Every connection is lost."""
        for editor in tuple(self.editors):
            asyncio.run_coroutine_threadsafe(editor.close(), self._loop).result(DEADLINE_S)

    def run(self, ready: threading.Event) -> None:
        """Listen until :meth:`stop`, in a thread of its own."""
        self._loop.run_until_complete(self._serve(ready))
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)

    async def _serve(self, ready: threading.Event) -> None:
        subprotocols = [Subprotocol("localspec.v1")]
        async with serve(self._pass_on, "127.0.0.1", 0, subprotocols=subprotocols, max_size=None) as server:
            host, port = next(iter(server.sockets)).getsockname()[:2]
            self.url = f"ws://{host}:{port}"
            ready.set()
            await self._over.wait()

    async def _pass_on(self, editor: ServerConnection) -> None:
        """Connect to the daemon as the editor does, and forward the frames of both."""
        found = json.loads((self._home / "runtime" / "daemon.json").read_bytes())
        assert editor.request is not None
        words = editor.request.headers["Sec-WebSocket-Protocol"].split(",")
        (nonce,) = [word.strip().removeprefix(NONCE_PREFIX) for word in words if NONCE_PREFIX in word]
        token = Path(found["token_file"]).read_text()
        assert await authenticated(editor, nonce, token, editor.local_address[1])
        self.editors.add(editor)
        async with await open_socket(url=found["url"], token=token) as daemon:
            ends = [
                asyncio.create_task(self._hand("editor", editor, daemon)),
                asyncio.create_task(self._hand("daemon", daemon, editor)),
            ]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
        self.editors.discard(editor)

    async def _hand(
        self,
        who: str,
        source: ServerConnection | ClientConnection,
        target: ServerConnection | ClientConnection,
    ) -> None:
        try:
            async for text in source:
                self.frames.append((who, json.loads(text)))
                if who == "daemon":
                    await self._answering.wait()
                await target.send(text)
        except ConnectionClosed:
            pass


@contextmanager
def tapping(home: Path) -> Iterator[Tap]:
    """A tap on the wire to the daemon of a home."""
    tap, ready = Tap(home), threading.Event()
    thread = threading.Thread(target=tap.run, args=(ready,), daemon=True)
    thread.start()
    assert ready.wait(DEADLINE_S)
    try:
        yield tap
    finally:
        tap.stop()
        thread.join()
