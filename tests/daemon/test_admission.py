"""Connections without a handshake: they harm neither clients nor the log, whatever user opens them."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from localspec.client import connect
from localspec.daemon.access.admission import LOG_S, PLACES, RESERVE, Admission, Guest, Listening
from localspec.daemon.access.loopback import listen
from localspec.daemon.access.peer import Peers
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import ECHO_DAEMON, DaemonProcess, raw
from tests.waiting import DEADLINE_S, run, until

NOBODY = 65534
FEW_FILES = 256
IDLE = 300
MANY = 1024
"""connections that are admitted, in tests of something else"""
ATTACK_S = 13.0
ATTACKS = (
    "import socket, sys, time\n"
    "place, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])\n"
    "until, held = time.monotonic() + seconds, []\n"
    "while time.monotonic() < until:\n"
    "    while len(held) < count and time.monotonic() < until:\n"
    "        try: held.append(socket.create_connection(('127.0.0.1', int(place)), 1))\n"
    "        except OSError: break\n"
    "    kept = []\n"
    "    for each in held:\n"
    "        each.setblocking(False)\n"
    "        try: over = each.recv(1) == b''\n"
    "        except BlockingIOError: over = False\n"
    "        except OSError: over = True\n"
    "        each.close() if over else kept.append(each)\n"
    "    held = kept\n"
    "    time.sleep(0.01)\n"
)
"""holds so many idle connections, and opens others for those that are closed"""


def python_of_all() -> str:
    """An interpreter that other users may run, too."""
    return next((each for each in ("/usr/bin/python3",) if os.path.exists(each)), sys.executable)


@contextmanager
def attackers(port: int, *, user: int | None) -> Iterator[None]:
    """Idle connections from a process, of another user if one is given."""
    words = (python_of_all(), "-c", ATTACKS, str(port), str(IDLE), str(ATTACK_S))
    attacker = subprocess.Popen(words, user=user, cwd="/", env={})
    try:
        yield
        assert attacker.poll() in (None, 0), "the attack has failed"
    finally:
        attacker.kill()
        attacker.wait()


def asked_over(daemon: DaemonProcess, *, tcp: bool) -> float:
    """The seconds that a new client's question takes."""

    async def ask() -> float:
        began = time.monotonic()
        if tcp:
            async with await connect(url=daemon.found.url, token=daemon.token) as client:
                await client.status()
        else:
            async with raw(daemon) as plain:
                assert "result" in await plain.call("asked", "session/list")
        return time.monotonic() - began

    return run(ask())


def opened(daemon: DaemonProcess) -> list[object]:
    """The daemon's Unix sockets at its path: the one that listens, and its connections."""
    found = psutil.Process(daemon.process.pid).net_connections("unix")
    return [each for each in found if str(each.laddr) == daemon.socket]


@pytest.mark.slow
@pytest.mark.parametrize("user", [None, NOBODY], ids=["this user", "another user"])
def test_idle_connections_starve_nobody(home: Path, user: int | None) -> None:
    if user is not None and os.geteuid() != 0:
        pytest.skip("another user's connections can be opened by root alone")
    few = ("sh", "-c", f'ulimit -n {FEW_FILES} && exec "$@"', "sh")
    daemon = DaemonProcess(home, command=(*few, *ECHO_DAEMON))
    try:
        process, took = psutil.Process(daemon.process.pid), {"unix": [0.0], "tcp": [0.0]}
        with attackers(daemon.port, user=user):
            until, most = time.monotonic() + ATTACK_S, 0
            while time.monotonic() < until:
                took["unix"].append(asked_over(daemon, tcp=False))
                if user is not None:  # one's own programs know the token, and could do worse
                    took["tcp"].append(asked_over(daemon, tcp=True))
                most = max(most, process.num_fds())
        answered = min(len(seconds) for seconds in took.values() if user or seconds is took["unix"]) - 1
        slowest = {kind: f"{max(seconds):.2f} s" for kind, seconds in took.items()}
        lines = [line for line in daemon.log().splitlines() if "shaken hands" in line]
        print(f"{answered} answers each way, the slowest {slowest}; {most} files; {len(lines)} lines")
        assert answered >= 10
        assert most < FEW_FILES - RESERVE
        assert 1 <= len(lines) <= 1 + ATTACK_S / LOG_S, daemon.log()[-2000:]
        assert "Traceback" not in daemon.log() and len(daemon.log()) < 10_000
    finally:
        assert daemon.stop() == 0, daemon.log()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limits of another process are changed")
async def test_a_process_without_descriptors_is_reached_over_its_unix_socket(home: Path) -> None:
    """All are taken by what is none of its connections: files of models, or a library's."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    daemon = DaemonProcess(home, max_connections=MANY)
    process = psutil.Process(daemon.process.pid)
    try:
        await asyncio.to_thread(
            asked_over, daemon, tcp=False
        )  # what is open for its start alone is closed by then
        await until(lambda: len(opened(daemon)) == 1, "the connection is closed")
        top, gaps = reserved_up_to(process.pid)
        async with AsyncExitStack() as held:
            for _ in range(gaps):
                await held.enter_async_context(raw(daemon))
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (top + 1, limits[1]))
            before = sum(process.cpu_times()[:2])
            for _ in range(3):
                await asyncio.to_thread(asked_over, daemon, tcp=False)
                assert await asyncio.to_thread(said_over_tcp, daemon) == b""
            assert sum(process.cpu_times()[:2]) - before < 2.0, "it spins"
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        await asyncio.to_thread(asked_over, daemon, tcp=True)
        assert "Traceback" not in daemon.log()
        assert daemon.log().count("shaken hands") == 1
    finally:
        assert daemon.stop() == 0, daemon.log()


def reserved_up_to(pid: int) -> tuple[int, int]:
    """The highest descriptor of the daemon's reserve, and how many below it are free: a new one takes the
    lowest that is free, so that these are taken first."""
    places = {int(each.name): os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
    top = max(number for number, place in places.items() if place == os.devnull)
    return top, sum(number not in places for number in range(top))


def said_over_tcp(daemon: DaemonProcess) -> bytes:
    """The first answer to a connection; empty where it is closed."""
    with (
        socket.create_connection(("127.0.0.1", daemon.port), DEADLINE_S) as client,
        suppress(ConnectionError),
    ):
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return client.recv(100)
    return b""


@pytest.mark.slow
def test_a_client_that_stays_silent_is_closed_soon(start: StartDaemon) -> None:
    daemon = start()
    with socket.create_connection(("127.0.0.1", daemon.port), DEADLINE_S) as silent:
        began = time.monotonic()
        while silent.recv(4096):
            pass
        assert time.monotonic() - began < 10.0


class Place:
    """A socket whose connections are counted; all that is opened is closed at the end."""

    def __init__(self) -> None:
        self.admission = Admission()
        self.guarded = Listening.of(listen(0), self.admission)
        self.opened: list[socket.socket] = []

    def arrive(self) -> Guest:
        self.opened.append(socket.create_connection(self.guarded.getsockname(), DEADLINE_S))
        accepted, _ = self.guarded.accept()
        assert isinstance(accepted, Guest)
        self.opened.append(accepted)
        return accepted

    def fill(self) -> list[Guest]:
        return [self.arrive() for _ in range(PLACES["owner"])]

    def close(self) -> None:
        for each in (*self.opened, self.guarded):
            each.close()
        self.admission.close()


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.close()


def is_over(each: socket.socket) -> bool:
    """Return whether an accepted connection was shut down: it reads end-of-file. Makes it non-blocking."""
    each.setblocking(False)
    try:
        return each.recv(1) == b""
    except BlockingIOError:
        return False


def test_the_newest_takes_the_place_of_the_oldest(place: Place) -> None:
    first = place.fill()
    assert not any(map(is_over, first))
    place.arrive()
    assert [is_over(each) for each in first] == [True, *[False] * (len(first) - 1)]


def test_who_is_admitted_keeps_the_connection_and_makes_room(place: Place) -> None:
    first = place.arrive()
    place.admission.admit(first.fileno())
    others = place.fill()
    assert not is_over(first) and not any(map(is_over, others))


def test_who_was_used_lately_stays(place: Place) -> None:
    first = place.fill()
    place.admission.touch(first[0].fileno())
    place.arrive()
    assert [is_over(each) for each in first[:2]] == [False, True]


def test_one_at_work_is_not_evicted_and_where_all_are_the_newest_is_closed(place: Place) -> None:
    first = place.fill()
    for each in first:
        place.admission.touch(each.fileno(), at_work=True)
    with pytest.raises(BlockingIOError):
        place.arrive()
    assert place.opened[-1].recv(1) == b"" and not any(map(is_over, first))
    place.admission.touch(first[3].fileno())
    place.arrive()
    assert [number for number, each in enumerate(first) if is_over(each)] == [3]


def test_a_connection_that_was_reset_takes_no_place(place: Place) -> None:
    first = place.fill()
    for _ in range(3):
        with socket.create_connection(place.guarded.getsockname(), DEADLINE_S) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with pytest.raises(BlockingIOError):
            place.guarded.accept()
    assert not any(map(is_over, first))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked")
def test_whom_the_kernel_does_not_know_is_not_the_owner(place: Place) -> None:
    guest = place.arrive()
    assert place.admission.kind(guest) == "owner"
    place.opened[0].close()
    guest.shutdown(socket.SHUT_RDWR)
    assert place.admission.kind(guest) == "others"


def test_what_is_closing_is_bounded_too(place: Place) -> None:
    guests = [place.arrive() for _ in range(2 * PLACES["owner"])]
    with pytest.raises(BlockingIOError):
        place.arrive()
    guests[0].close()
    place.arrive()


def test_descriptors_are_kept_and_given_back() -> None:
    def files() -> int:
        return psutil.Process().num_fds()

    before = files()
    place = Place()
    own = RESERVE + hasattr(socket, "AF_NETLINK") + 1
    assert files() == before + own
    guest = place.arrive()
    assert place.admission.spare() and files() == before + own - 1 + 2
    guest.close()
    assert files() == before + own + 1
    place.close()
    assert files() == before


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked")
def test_the_user_of_a_connection_is_known() -> None:
    peers, limits = Peers(), resource.getrlimit(resource.RLIMIT_NOFILE)
    with listen(0) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            assert peers.user_of(accepted) == peers.user_of(client) == os.geteuid()
            resource.setrlimit(resource.RLIMIT_NOFILE, (accepted.fileno() + 1, limits[1]))
            try:
                assert peers.user_of(accepted) == os.geteuid(), "no descriptor is left"
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    one, two = socket.socketpair()
    with one, two:
        assert peers.user_of(one) is None
    peers.close()


def test_errors_of_accept_that_are_no_shortage_are_raised() -> None:
    guarded = Listening.of(listen(0), Admission())
    guarded.close()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        guarded.accept()
    guarded.admission.close()
