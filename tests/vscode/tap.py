"""A recorded wire: lines between an editor and its daemon pass unchanged, and are kept."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.vscode.editor import put_program
from tests.waiting import DEADLINE_S, until_sync

Frame = dict[str, Any]

COMMAND = """#!{python}
import os, socket, sys, threading
if sys.argv[1:] != ["bridge"]:
    os.execv({python!r}, [{python!r}, "-m", "localspec", *sys.argv[1:]])
tap = socket.create_connection(("127.0.0.1", {port}))
def say():
    while data := os.read(0, 65536):
        tap.sendall(data)
    os._exit(0)
threading.Thread(target=say).start()
while data := tap.recv(65536):
    os.write(1, data)
os._exit(0)
"""
LONGEST = 1 << 26
"""bytes of a line"""


class Tap:
    """The frames of the editor and of the daemon that passed, in order."""

    def __init__(self, home: Path) -> None:
        self.frames: list[tuple[str, Frame]] = []
        self.port = 0
        self.editors: set[StreamWriter] = set()
        """connected editors"""
        self._home = home
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._answering = asyncio.Event()
        self._answering.set()

    def put_command(self, folder: Path) -> None:
        """Write a command ``localspec`` that sends editors to this tap."""
        put_program(folder / "localspec", COMMAND.format(python=sys.executable, port=self.port))

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
            self._loop.call_soon_threadsafe(editor.close)

    def run(self, ready: threading.Event) -> None:
        """Listen until :meth:`stop`, in a thread of its own."""
        self._loop.run_until_complete(self._serve(ready))
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)

    async def _serve(self, ready: threading.Event) -> None:
        async with await asyncio.start_server(self._pass_on, "127.0.0.1", 0, limit=LONGEST) as server:
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await self._over.wait()

    async def _pass_on(self, said: StreamReader, editor: StreamWriter) -> None:
        """Be the editor's bridge, by another one."""
        self.editors.add(editor)
        bridge = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "localspec", "bridge"),
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, "LOCALSPEC_HOME": str(self._home)},
            limit=LONGEST,
        )
        assert bridge.stdin is not None and bridge.stdout is not None
        ends = [
            asyncio.create_task(self._hand("editor", said, bridge.stdin)),
            asyncio.create_task(self._hand("daemon", bridge.stdout, editor)),
        ]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        self.editors.discard(editor)
        editor.close()
        bridge.stdin.close()
        await bridge.wait()

    async def _hand(self, who: str, source: StreamReader, target: StreamWriter) -> None:
        while line := await source.readline():
            self.frames.append((who, json.loads(line)))
            if who == "daemon":
                await self._answering.wait()
            target.write(line)
            await target.drain()


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
