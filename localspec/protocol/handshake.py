"""The proof over TCP that both sides have this user's token, which is never sent.

1. The client offers the subprotocol ``localspec.nonce.<64 hex digits>``, new random ones for each connection,
   beside ``localspec.v1``.
2. The daemon's first frame is the notification ``$/challenge`` with a nonce of its own, the port that it
   listens on, and its proof. The client sends nothing before it has checked both.
3. The client answers with the notification ``$/authenticate`` and its proof; then ``initialize`` may come. A
   wrong proof, another message, or none within :data:`PATIENCE_S` closes the connection with code 1008.

Until a side has seen the other's proof it takes messages of at most :data:`LONGEST_UNPROVED` bytes: the
client sends longer ones once ``initialize`` is answered.

A proof is the HMAC-SHA256, as 64 hex digits, of ``localspec.v1 SIDE PORT CLIENT_NONCE DAEMON_NONCE`` with the
token as it stands in its file for a key (both ASCII); ``SIDE`` is ``daemon`` or ``client``. The port keeps a
program that listens at a former daemon's address from relaying the proof of the next daemon.
"""

from __future__ import annotations

import hmac
import re
import secrets
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from localspec.protocol.params import Params

PATIENCE_S = 3.0
"""seconds that either side waits for the other's proof"""
LONGEST_UNPROVED = 4096
"""bytes of a message from a side that has proved nothing yet"""
NONCE_PREFIX = "localspec.nonce."
HEX = "[0-9a-f]{64}"
NONCE = re.compile(HEX)
CHALLENGE = "$/challenge"
AUTHENTICATE = "$/authenticate"

Side = Literal["daemon", "client"]
Digits = Annotated[str, Meta(pattern=f"^{HEX}$", max_length=64)]


class Challenge(msgspec.Struct, frozen=True):
    """The daemon's nonce and its proof for the client's; ``port`` is where it listens."""

    nonce: Digits
    port: int
    proof: Digits


class Authenticate(Params):
    """The client's proof for the daemon's nonce."""

    proof: Digits


def new_nonce() -> str:
    """256 random bits."""
    return secrets.token_hex(32)


def proof(token: str, side: Side, port: int, client_nonce: str, daemon_nonce: str) -> str:
    """Return the proof of ``side`` that it has ``token``: 64 hex digits, computed as described above."""
    text = f"localspec.v1 {side} {port} {client_nonce} {daemon_nonce}"
    return hmac.new(token.encode(), text.encode(), "sha256").hexdigest()


def proves(given: str, expected: str) -> bool:
    """Return True if a proof equals the expected one, comparing in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
