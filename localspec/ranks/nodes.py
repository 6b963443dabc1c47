"""Connections to nodes: by ssh, or to a process on this machine.

A follower speaks over its stdin and stdout, and ends when they end.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess

from localspec.errors import LocalspecError, NodeLost
from localspec.process import python, surroundings
from localspec.ranks import frames
from localspec.ranks.frames import Hello
from localspec.ranks.peer import SILENT_S, Peer

LOCAL = "local"
FOLLOW = python("localspec", "follow")
SSH = ("ssh", "-4", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5")
SSHD = "SSH_CONNECTION"
"""variable that sshd sets: the addresses and ports of both machines"""


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
