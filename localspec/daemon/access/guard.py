"""Who may come in: the checks on a handshake, before it is upgraded.

Web pages can open WebSockets to loopback and are not held back by CORS, so a browser's ``Origin``
is refused, a ``Host`` that is not loopback (DNS rebinding) too. Over TCP the token is needed as well, or a
nonce: then the connection is upgraded, and asks nothing until it has proved that it knows the token.
Malformed headers are refused like wrong ones: nothing here raises.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus

from websockets.datastructures import Headers

from localspec.protocol.handshake import NONCE, NONCE_PREFIX
from localspec.protocol.messages import BEARER

LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)
SOCKET_PATH = "/"
HEALTH_PATH = "/healthz"
METRICS_PATH = "/metrics"

Refusal = tuple[HTTPStatus, str]


@dataclass(frozen=True, slots=True)
class Gate:
    """The requirements of one listening socket: an ``Origin``, if sent, must be among ``origins``.

    Over ``tcp`` a loopback ``Host`` is required, and the token, but for ``/health`` and for the socket's
    path, where a nonce does. ``token`` reads the token; None if there is none, which admits no client.
    """

    tcp: bool
    token: Callable[[], str | None]
    origins: frozenset[str]


def refusal(method: str, path: str, headers: Headers, gate: Gate) -> Refusal | None:
    """Why this handshake is refused, as an HTTP status and a sentence; None lets it in."""
    if gate.tcp and not _is_loopback(headers.get_all("Host")):
        return HTTPStatus.FORBIDDEN, "The Host header must name this machine: localhost, 127.0.0.1 or [::1]."
    if any(origin not in gate.origins for origin in headers.get_all("Origin")):
        return HTTPStatus.FORBIDDEN, "This Origin is not in the configuration's http.origins."
    if path not in (SOCKET_PATH, HEALTH_PATH, METRICS_PATH):
        return HTTPStatus.NOT_FOUND, "There is nothing here."
    if method != "GET":
        return HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is answered."
    if gate.tcp and path != HEALTH_PATH and not _is_let_in(path, headers, gate):
        return HTTPStatus.UNAUTHORIZED, "The token is missing or wrong."
    return None


def _is_loopback(hosts: list[str]) -> bool:
    return len(hosts) == 1 and LOOPBACK.fullmatch(hosts[0].strip()) is not None


def bearers(authorizations: Iterable[str]) -> list[str]:
    """What these ``Authorization`` headers show; empty for one that shows something else."""
    values = (value.strip().partition(" ") for value in authorizations)
    return [value.strip() if scheme.lower() == "bearer" else "" for scheme, _, value in values]


def is_token(shown: list[str], token: str) -> bool:
    """Whether the token is shown: one wrong among several refuses the lot."""
    # Each is compared in constant time, and all are.
    return bool(shown) and all([hmac.compare_digest(one.encode(), token.encode()) for one in shown])


def nonce_of(headers: Headers) -> str | None:
    """The nonce of a client that will prove that it knows the token; None for one that shows it."""
    nonces = _offered(headers, NONCE_PREFIX)
    is_one = len(nonces) == 1 and NONCE.fullmatch(nonces[0]) is not None
    return nonces[0] if is_one and not _shown(headers) else None


def _is_let_in(path: str, headers: Headers, gate: Gate) -> bool:
    if path == SOCKET_PATH and nonce_of(headers) is not None:
        return True
    token = gate.token()
    return token is not None and is_token(_shown(headers), token)


def _shown(headers: Headers) -> list[str]:
    return [*bearers(headers.get_all("Authorization")), *_offered(headers, BEARER)]


def _offered(headers: Headers, prefix: str) -> list[str]:
    """Return the offered subprotocols that begin with ``prefix``, without it."""
    names = (name.strip() for name in ",".join(headers.get_all("Sec-WebSocket-Protocol")).split(","))
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
