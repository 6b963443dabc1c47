"""The daemon's side of the proof over TCP, on an upgraded connection before any request is accepted."""

from __future__ import annotations

import asyncio

import msgspec
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from localspec.protocol import jsonrpc
from localspec.protocol.handshake import (
    AUTHENTICATE,
    CHALLENGE,
    PATIENCE_S,
    Authenticate,
    Challenge,
    new_nonce,
    proof,
    proves,
)
from localspec.protocol.jsonrpc import Call, ProtocolFault


async def authenticated(socket: ServerConnection, client_nonce: str, token: str, port: int) -> bool:
    """Prove that this daemon has ``token``; returns True if the client proves so too in time, and closes the
    connection otherwise."""
    nonce = new_nonce()
    mine = proof(token, "daemon", port, client_nonce, nonce)
    expected = proof(token, "client", port, client_nonce, nonce)
    try:
        await socket.send(jsonrpc.notification(CHALLENGE, Challenge(nonce, port, mine)))
        async with asyncio.timeout(PATIENCE_S):
            given = _proof(await socket.recv())
    except ConnectionClosed:
        return False
    except TimeoutError:
        given = None
    if given is not None and proves(given, expected):
        return True
    await socket.close(CloseCode.POLICY_VIOLATION, "the proof of the token is missing or wrong")
    return False


def _proof(frame: str | bytes) -> str | None:
    try:
        call = jsonrpc.decode(frame)
        if isinstance(call, Call) and call.method == AUTHENTICATE:
            return msgspec.json.decode(call.params, type=Authenticate).proof
    except (ProtocolFault, msgspec.MsgspecError):
        pass
    return None
