"""The client's side of the proof over TCP: what listens must know the token before anything is said to it."""

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

REMEDY = "Run `localspec daemon status`: it tells whether this user's daemon runs, and where."


async def authenticate(socket: ClientConnection, nonce: str, token: str, port: int | None) -> None:
    """Check the listener's proof for ``nonce``, then send one's own.

    ``port``: what it must listen on; None where the way to it may lead through other ports. Raises
    :class:`Unauthorized` for a proof of another token, and :class:`DaemonUnavailable` where there is none.
    """
    try:
        async with asyncio.timeout(PATIENCE_S):
            challenge = _challenge(await socket.recv())
    except TimeoutError:
        raise _no_daemon("no proof of it came in time") from None
    except ConnectionClosed:
        raise _no_daemon("it closed the connection") from None
    expected = proof(token, "daemon", challenge.port, nonce, challenge.nonce)
    if not proves(challenge.proof, expected) or port not in (None, challenge.port):
        raise Unauthorized("what listens there knows another token, so it was sent nothing", REMEDY)
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
    raise _no_daemon("it sent something else than its proof")


def _no_daemon(why: str) -> DaemonUnavailable:
    return DaemonUnavailable(f"what listens there is no daemon: {why}; it was sent nothing", REMEDY)
