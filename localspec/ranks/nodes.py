"""Connections to nodes: by ssh, to an address where one listens, or to a process on this machine.

Whatever carries it, a follower speaks over its stdin and stdout, and ends when they end.
"""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
import struct
import subprocess
from collections.abc import Callable

from localspec import home
from localspec.errors import InvalidOptions, LocalspecError, NodeLost
from localspec.process import python, surroundings
from localspec.ranks import frames
from localspec.ranks.frames import Hello, Prove
from localspec.ranks.peer import SILENT_S, Peer

LOCAL = "local"
FOLLOW = python("localspec", "follow")
TOKEN = "LOCALSPEC_NODE_TOKEN"
CONNECT_S = 5.0
MOST = 4
"""processes of a node that listens: each connection takes one until it is proved, for a minute at most"""
SSH = ("ssh", "-4", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S:.0f}")


def greet(node: str) -> Peer:
    """Connect to a node of the configuration, check its versions, and send it the proof of its token. Raises
    :class:`NodeLost` and :class:`VersionSkew`."""
    address, _, token = node.partition("#")
    peer = _dial(address) if ":" in address else _start(address)
    try:
        hello = peer.expect(Hello)
        frames.check_versions(peer.name, hello, frames.versions())
    except LocalspecError as error:
        peer.close()
        if isinstance(error, NodeLost) and ":" not in address and address != LOCAL:
            remedy = f"Try `ssh {address} localspec --version`, which must work without a password."
            raise NodeLost(f"localspec does not answer over ssh on {address}", remedy) from None
        raise
    peer.send(Prove(frames.proof_of(token, hello.nonce)))
    return peer


def _dial(address: str) -> Peer:
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host, int(port)), CONNECT_S)
    except (OSError, ValueError) as error:  # a ValueError: no such host can be
        raise NodeLost(
            f"no node answers at {address}: {error}", f"Run `localspec follow --listen {address}` there."
        ) from None
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _over(connection, address, lambda: None)


def _start(host: str) -> Peer:
    """Start a follower, whose stdin and stdout are one end of a socket pair."""
    command = FOLLOW if host == LOCAL else (*SSH, host, "localspec follow")
    own, other = socket.socketpair()
    with other:
        try:
            process = subprocess.Popen(
                command, stdin=other.fileno(), stdout=other.fileno(), start_new_session=True, **surroundings()
            )
        except OSError as error:
            own.close()
            raise NodeLost(f"node {host} cannot be reached: {command[0]}: {error.strerror}") from None

    def end() -> None:
        process.kill()
        process.wait()

    return _over(own, host, end)


def _over(connection: socket.socket, name: str, end: Callable[[], None]) -> Peer:
    # A node that reads nothing is lost, as a silent one is.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(SILENT_S), 0))

    streams = connection.makefile("rb"), connection.makefile("wb")

    def close() -> None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # ends the reading and sending of other threads
        for each in (*streams, connection):
            with contextlib.suppress(OSError):  # of what is still to be sent
                each.close()
        end()

    return Peer(name, *streams, close)


def listen(address: str, show: Callable[[str], None]) -> None:
    """Start a follower for each connection to ``HOST:PORT``, until Ctrl-C; ``show`` gets the node's name for
    the configuration of the other machine. Raises :class:`InvalidOptions`."""
    server, host = private_server(address), address.rpartition(":")[0]
    token, running = _own_token(), list[subprocess.Popen[bytes]]()
    with server:
        show(f"{host}:{server.getsockname()[1]}#{token}")
        while True:
            connection, _ = server.accept()
            running = [each for each in running if each.poll() is None]
            with connection:
                if len(running) == MOST:
                    continue
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                own, added = connection.fileno(), {TOKEN: token}
                follower = subprocess.Popen(FOLLOW, stdin=own, stdout=own, **surroundings(added=added))
                running.append(follower)  # it ends with its connection


def private_server(address: str) -> socket.socket:
    """A socket that listens at ``HOST:PORT`` of a private network; raises :class:`InvalidOptions`."""
    host, _, port = address.rpartition(":")
    remedy = "Give an address of this machine in a private network, such as 192.168.1.7:7005."
    try:
        place, number = ipaddress.ip_address(host), int(port)
    except ValueError:
        raise InvalidOptions(f"{address} is not a numeric address with a port", remedy) from None
    if place.is_unspecified or not place.is_private:
        raise InvalidOptions(f"{host} is not an address of a private network", remedy)
    try:
        return socket.create_server((host, number))
    except (OSError, OverflowError) as error:
        raise InvalidOptions(f"{address} cannot be listened at: {error}", remedy) from None


def _own_token() -> str:
    """The token of this machine as a node; a new one at first."""
    path = home.private_dir(home.data_dir()) / "node_token"
    if not path.exists():
        home.write_private(path, secrets.token_hex(16))
    return path.read_text("ascii").strip()
