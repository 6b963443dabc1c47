"""The checks of a handshake before the connection is upgraded.

Web pages can open WebSockets to loopback, which CORS does not prevent, so a browser's ``Origin`` is refused,
and a ``Host`` that is not loopback (DNS rebinding). Over TCP the token is required as well. Malformed headers
are refused like wrong ones: nothing here raises.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from http import HTTPStatus

from websockets.datastructures import Headers

from localspec.protocol.messages import BEARER

LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)
ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*://)[^\s/,*]+")
SOCKET_PATH = "/"
HEALTH_PATH = "/healthz"
METRICS_PATH = "/metrics"


@dataclass(frozen=True, slots=True)
class Gate:
    """The requirements of one listening socket: an ``Origin``, if sent, must be among ``origins``.

    Over ``tcp`` a loopback ``Host`` is required, and the token, except for ``/healthz``. ``token`` reads it;
    None if there is none, which admits no client.
    """

    tcp: bool
    token: Callable[[], str | None]
    origins: frozenset[str]


def refusal(method: str, path: str, headers: Headers, gate: Gate) -> tuple[HTTPStatus, str] | None:
    """The HTTP status and the sentence with which a handshake is refused; None admits it."""
    if gate.tcp and not _is_loopback(headers.get_all("Host")):
        return HTTPStatus.FORBIDDEN, "The Host header must name this machine: localhost, 127.0.0.1 or [::1]."
    if not all(is_listed(origin, gate.origins) for origin in headers.get_all("Origin")):
        return HTTPStatus.FORBIDDEN, "This Origin is not in the configuration's http.origins."
    if path not in (SOCKET_PATH, HEALTH_PATH, METRICS_PATH):
        return HTTPStatus.NOT_FOUND, f"Only {SOCKET_PATH}, {HEALTH_PATH} and {METRICS_PATH} exist."
    if method != "GET":
        return HTTPStatus.METHOD_NOT_ALLOWED, "Only the method GET is allowed."
    if gate.tcp and path != HEALTH_PATH and not _is_authenticated(headers, gate):
        return HTTPStatus.UNAUTHORIZED, "The token is missing or wrong."
    return None


def _is_loopback(hosts: list[str]) -> bool:
    return len(hosts) == 1 and LOOPBACK.fullmatch(hosts[0].strip()) is not None


def is_listed(origin: str, origins: Collection[str]) -> bool:
    """Return True if ``origin`` is one of ``origins``; of these ``scheme://*`` stands for every host."""
    parts = ORIGIN.fullmatch(origin)
    return origin in origins or (parts is not None and f"{parts[1]}*" in origins)


def bearers(authorizations: Iterable[str]) -> list[str]:
    """The bearer tokens of ``Authorization`` headers; an empty string for one of another scheme."""
    values = (value.strip().partition(" ") for value in authorizations)
    return [value.strip() if scheme.lower() == "bearer" else "" for scheme, _, value in values]


def is_token(shown: list[str], token: str) -> bool:
    """Return True if tokens were sent and all are right: a wrong one among several refuses the request."""
    # Each is compared in constant time, and all are compared.
    return bool(shown) and all([hmac.compare_digest(one.encode(), token.encode()) for one in shown])


def _is_authenticated(headers: Headers, gate: Gate) -> bool:
    """Return True if the token was sent, as a header or as a subprotocol."""
    names = (name.strip() for name in ",".join(headers.get_all("Sec-WebSocket-Protocol")).split(","))
    offered = [name.removeprefix(BEARER) for name in names if name.startswith(BEARER)]
    token = gate.token()
    return token is not None and is_token([*bearers(headers.get_all("Authorization")), *offered], token)
