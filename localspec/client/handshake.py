"""The client's side of the proof over TCP: it sends nothing before the listener has proved the token."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from localspec.errors import DaemonUnavailable, Unauthorized
from localspec.protocol import jsonrpc
from localspec.protocol.handshake import (
    AUTHENTICATE,
    CHALLENGE,
    PATIENCE_S,
    Authenticate,
    Challenge,
    proof,
    proves,
)
from localspec.protocol.jsonrpc import Call, ProtocolFault

REMEDY = "Run `localspec daemon status`: it shows whether this user's daemon runs, and its address."


async def authenticate(socket: ClientConnection, nonce: str, token: str, port: int | None) -> None:
    """Check the listener's proof for ``nonce``, then send the client's.

    ``port``: the port that it must listen on; None if connections may be forwarded from other ports. Raises
    :class:`Unauthorized` for a proof of another token, and :class:`DaemonUnavailable` for a missing one.
    """
    try:
        async with asyncio.timeout(PATIENCE_S):
            challenge = _challenge(await socket.recv())
    except TimeoutError:
        raise _no_daemon(f"no proof of the token came within {PATIENCE_S:.0f} s") from None
    except ConnectionClosed:
        raise _no_daemon("it closed the connection") from None
    expected = proof(token, "daemon", challenge.port, nonce, challenge.nonce)
    if not proves(challenge.proof, expected) or port not in (None, challenge.port):
        raise Unauthorized(
            "the program at this address is not this user's daemon: its proof of the token is wrong "
            "(nothing was sent to it)",
            REMEDY,
        )
    mine = proof(token, "client", challenge.port, nonce, challenge.nonce)
    await socket.send(jsonrpc.notification(AUTHENTICATE, Authenticate(proof=mine)))


def port_of(url: str) -> int | None:
    """The port that a URL names."""
    try:
        return urlsplit(url).port
    except ValueError:
        return None


def _challenge(frame: str | bytes) -> Challenge:
    try:
        call = jsonrpc.decode(frame)
        if isinstance(call, Call) and call.method == CHALLENGE:
            return msgspec.json.decode(call.params, type=Challenge)
    except (ProtocolFault, msgspec.MsgspecError):
        pass
    raise _no_daemon("its first message is not the proof of the token")


def _no_daemon(why: str) -> DaemonUnavailable:
    return DaemonUnavailable(
        f"the program at this address is not a localspec daemon: {why} (nothing was sent to it)", REMEDY
    )
