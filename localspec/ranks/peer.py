"""The other end of a connection between ranks: its start, its frames, its beats, and its loss.

A follower is started by ssh, or on this machine; it speaks over its stdin and stdout, and ends when they end.
A stopped machine closes no connection, and a sum over ranks waits for it for ever. So each end sends a beat
every second, by a thread that runs while native code computes, and gives the other up after some seconds of
silence.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from localspec.errors import LocalspecError, NodeLost, from_dict
from localspec.process import python, surroundings
from localspec.protocol.frames import encode_frame
from localspec.ranks import frames
from localspec.ranks.frames import Beat, Choices, Frame, Hello, Ping, Refused

LOCAL = "local"
FOLLOW = python("localspec", "follow")
SSH = ("ssh", "-4", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5")
SSHD = "SSH_CONNECTION"
"""variable that sshd sets: the addresses and ports of both machines"""
PERIOD_S = 1.0
SILENT_S = 5.0
"""seconds of silence after which a rank is given up"""
PINGS = 8
GREETING_S = 60.0
"""seconds for a step of the greeting: a node has a process to start, and libraries to import"""

F = TypeVar("F")
Lost = Callable[[LocalspecError], None]


class Silence:
    """The time since the last frame of a node, by a ``clock`` in seconds."""

    def __init__(
        self, node: str, limit_s: float = SILENT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._node, self._limit_s, self._clock = node, limit_s, clock
        self._heard = self._looked = clock()

    def heard(self) -> None:
        self._heard = self._clock()

    def look(self) -> LocalspecError | None:
        """Return an error if the node was silent for too long; called every :data:`PERIOD_S`. Time in which
        this process itself was stopped does not count."""
        now = self._clock()
        self._heard += max(0.0, now - self._looked - 2 * PERIOD_S)
        self._looked = now
        if (silent := now - self._heard) < self._limit_s:
            return None
        return NodeLost(f"node {self._node} has been silent for {silent:.0f} s")


class Peer:
    """A rank at the other end of two streams. An error of it, its end and its silence are one loss."""

    silent_s = SILENT_S

    def __init__(
        self, name: str, reading: BinaryIO, writing: BinaryIO, end: Callable[[], None] = lambda: None
    ) -> None:
        self.name = name
        self._end = end
        self.choices = Choices(0, 0)
        """the last ones that were sent"""
        self._reading, self._writing = reading, writing
        self._sending, self._losing, self._is_lost = threading.Lock(), threading.Lock(), threading.Event()
        self._inbox: queue.SimpleQueue[Frame | LocalspecError] = queue.SimpleQueue()
        self._loss: LocalspecError | None = None
        self._on_loss: Lost = lambda error: None
        self._silence = Silence(name, self.silent_s)
        for work in (self._read, self._beat):
            threading.Thread(target=work, name=f"node {name}", daemon=True).start()

    def watch(self, on_loss: Lost) -> None:
        """Call ``on_loss`` once, from a thread, when the peer is lost; at once if it is."""
        with self._losing:
            self._on_loss = on_loss
            loss = self._loss
        if loss is not None:
            on_loss(loss)

    def send(self, *sent: Frame) -> None:
        """Send frames; those to a lost peer are dropped."""
        try:
            with self._sending:
                self._writing.write(b"".join(map(encode_frame, sent)))
                self._writing.flush()
        except (OSError, ValueError):
            self._lose(NodeLost(f"the connection to node {self.name} broke"))

    def receive(self, timeout_s: float | None = None) -> Frame:
        """Return the next frame that is no beat; raises the error by which the peer was lost."""
        try:
            frame = self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            raise NodeLost(f"node {self.name} did not answer for {timeout_s:.0f} s") from None
        if isinstance(frame, LocalspecError):
            raise frame
        return frame

    def expect(self, kind: type[F]) -> F:
        """Return the next frame of the greeting; raises :class:`NodeLost` for one of another kind."""
        frame = self.receive(GREETING_S)
        if not isinstance(frame, kind):
            raise NodeLost(f"node {self.name} sent {type(frame).__name__} instead of {kind.__name__}")
        return frame

    def measure_latency(self) -> float:
        """Return the seconds that a frame takes to the peer and back, at best; raises :class:`NodeLost`."""
        seconds = []
        for _ in range(PINGS):
            started = time.perf_counter()
            self.send(Ping())
            self.expect(Ping)
            seconds.append(time.perf_counter() - started)
        return min(seconds)

    def loss_within(self, seconds: float) -> LocalspecError | None:
        """Wait so long for the error by which the peer is lost, and return it."""
        self._is_lost.wait(seconds)
        return self._loss

    def close(self) -> None:
        """End the connection, by which the other end ends, too; this is no loss to be reported."""
        self.watch(lambda error: None)
        self._lose(NodeLost(f"the connection to node {self.name} is closed"))
        self._end()

    def _lose(self, error: LocalspecError) -> None:
        with self._losing:
            if self._loss is not None:
                return
            self._loss, on_loss = error, self._on_loss
        self._is_lost.set()
        self._inbox.put(error)
        on_loss(error)

    def _read(self) -> None:
        error: LocalspecError = NodeLost(f"node {self.name} closed its connection")
        try:
            while (frame := frames.read(self._reading)) is not None and self._loss is None:
                self._silence.heard()
                if isinstance(frame, Refused):
                    error = from_dict(
                        {**frame.error, "message": f"node {self.name}: {frame.error['message']}"}
                    )
                    break
                if isinstance(frame, Choices):
                    self.choices = frame
                elif not isinstance(frame, Beat):
                    self._inbox.put(frame)
        except Exception as fault:
            # Of any kind: the other end may send anything.
            error = NodeLost(f"the connection to node {self.name} broke: {fault}")
        self._lose(error)

    def _beat(self) -> None:
        while self._loss is None:
            if (error := self._silence.look()) is not None:
                self._lose(error)
                return
            self.send(Beat())
            time.sleep(PERIOD_S)


def greet(node: str) -> Peer:
    """Start a follower on a node of the configuration, and check its versions. Raises :class:`NodeLost` and
    :class:`VersionSkew`."""
    peer = _start(node)
    try:
        frames.check_versions(node, peer.expect(Hello), frames.versions())
    except LocalspecError as error:
        peer.close()
        if isinstance(error, NodeLost) and node != LOCAL:
            remedy = f"Try `ssh {node} localspec --version`, which must work without a password."
            raise NodeLost(f"localspec does not answer over ssh on {node}", remedy) from None
        raise
    return peer


def _start(node: str) -> Peer:
    """Start a follower, whose stdin and stdout are one end of a socket pair."""
    command = FOLLOW if node == LOCAL else (*SSH, node, "localspec follow")
    own, other = socket.socketpair()
    with other:
        try:
            process = subprocess.Popen(
                command,
                stdin=other.fileno(),
                stdout=other.fileno(),
                start_new_session=True,
                **surroundings(without={SSHD}),  # of the session in which the daemon was started
            )
        except OSError as error:
            own.close()
            raise NodeLost(f"node {node} cannot be reached: {command[0]}: {error.strerror}") from None
    # A node that reads nothing is lost, as a silent one is.
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(SILENT_S), 0))
    streams = own.makefile("rb"), own.makefile("wb")

    def end() -> None:
        with contextlib.suppress(OSError):
            own.shutdown(socket.SHUT_RDWR)  # ends the reading and sending of other threads
        for each in (*streams, own):
            with contextlib.suppress(OSError):  # of what is still to be sent
                each.close()
        process.kill()
        process.wait()

    return Peer(node, *streams, end)
