"""Access control of the HTTP server: the checks before a request's body is read.

A web page can send requests to loopback, and CORS does not stop those whose answers it does not read. So a
request that a browser sends for a page is refused, unless the page's origin is in ``http.origins``. Those
pages get the CORS headers to read answers; they need the token in the dialects of ``http.without_token``,
too. Endpoints that need no token, such as `/health`, are open to them as well.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localspec.daemon.access.guard import LOOPBACK, bearers, is_listed, is_token
from localspec.errors import DaemonError, LocalspecError, Unauthorized
from localspec.protocol.options import LONGEST_SHOWN
from localspec.protocol.proposer_kinds import KINDS, LOOKUP, NONE

OWNER = "owner"
"""key in a request's state: True if the request has the token"""
OWN_SITES = ("none", "same-origin")
"""values of ``Sec-Fetch-Site`` for a request that no other site caused"""

Refusal = tuple[LocalspecError, HTTPStatus]
Refuse = Callable[[str, LocalspecError, HTTPStatus], Response]
"""makes the response to a refused request, in the format of the dialect of its path"""


class Forbidden(DaemonError):
    """A request that a web page may have caused, or that names another host."""

    code = "forbidden"
    default_remedy = "Send the request from a program on this machine, to 127.0.0.1 or localhost."


class Gate:
    """Admit requests that name this machine, have no foreign Origin, and carry the token.

    ``token`` reads the token, None where there is none. ``unauthenticated`` returns the refusal of a request
    without a token, or of a web page, by method and path; ``refuse`` makes the response of a refusal.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: Callable[[], str | None],
        unauthenticated: Callable[[str, str, bool], Refusal | None],
        refuse: Refuse,
        origins: tuple[str, ...] = (),
    ) -> None:
        self._app = app
        self._token = token
        self._unauthenticated = unauthenticated
        self._refuse = refuse
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        path, headers = scope["path"], Headers(scope=scope)
        page = self._page(headers)
        refused = _forbidden(headers, is_page=page is not None)
        if page is not None and refused is None:
            send = _readable_by(page, send)
            if scope["method"] == "OPTIONS" and PREFLIGHT_METHOD in headers:
                await _preflight(headers)(scope, receive, send)
                return
        is_owner = self._shows_token(headers)
        if refused is None and not is_owner:
            refused = self._unauthenticated(scope["method"], path, page is not None)
        if refused is not None:
            error, status = refused
            await self._refuse(path, error, status)(scope, receive, send)
        else:
            scope.setdefault("state", {})[OWNER] = is_owner
            await self._app(scope, receive, send)

    def _page(self, headers: Headers) -> str | None:
        """Return the request's origin if it is one of the accepted ones, else None."""
        origins = headers.getlist("origin")
        return origins[0] if len(origins) == 1 and is_listed(origins[0], self._origins) else None

    def _shows_token(self, headers: Headers) -> bool:
        keys = [key.strip() for key in headers.getlist("x-api-key")]
        shown = [each for each in bearers(headers.getlist("authorization")) + keys if each]
        token = self._token() if shown else None
        return token is not None and is_token(shown, token)


def _forbidden(headers: Headers, *, is_page: bool) -> Refusal | None:
    """Return the refusal that a request's headers demand at every path, None if they demand none.

    The ``Host`` must be loopback; a browser's request must come from an accepted page (``is_page``).
    """
    hosts = headers.getlist("host")
    if len(hosts) != 1 or LOOPBACK.fullmatch(hosts[0].strip()) is None:
        shown = ", ".join(hosts)[:LONGEST_SHOWN]
        return Forbidden(f"the Host header {shown!r} does not name this machine"), HTTPStatus.FORBIDDEN
    if is_page:
        return None
    if headers.getlist("origin"):
        return Forbidden("requests of web pages are refused", ORIGIN_REMEDY), HTTPStatus.FORBIDDEN
    if headers.get("sec-fetch-site", "none") not in OWN_SITES:
        return Forbidden("requests of web pages are refused"), HTTPStatus.FORBIDDEN
    return None


def _readable_by(page: str, send: Send) -> Send:
    """Return ``send`` with the CORS headers that permit this origin to read the answer."""
    permission = [(b"access-control-allow-origin", page.encode("latin-1")), (b"vary", b"Origin")]

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *permission]}
        await send(message)

    return sent


def _preflight(headers: Headers) -> Response:
    """Return the answer to a CORS preflight request, which a browser sends before a page's own."""
    permission = {
        "access-control-allow-methods": "GET, POST",
        "access-control-allow-headers": headers.get("access-control-request-headers", "authorization"),
        "access-control-max-age": "600",
    }
    if "access-control-request-private-network" in headers:
        permission["access-control-allow-private-network"] = "true"
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=permission)


PREFLIGHT_METHOD = "access-control-request-method"
ORIGIN_REMEDY = (
    "Send the request from a program on this machine, without an Origin header; for a program in a browser "
    "engine, add its Origin to the setting http.origins."
)
TOKEN_REMEDY = "Send `Authorization: Bearer TOKEN`, with the token that `localspec daemon token` prints."
OWNERS = ("model", "draft", "workspace", "verify", "threshold")
"""options that name files, or may let a draft change a text"""
PROPOSERS = (*(kind.name for kind in KINDS if kind.unauthenticated), NONE)
"""proposers that these clients may choose; :data:`LOOKUP` is the default"""


def confine(body: msgspec.Struct) -> None:
    """Restrict a request's options to those permitted without the token; its model is checked elsewhere.

    Without it any program of any user of this machine may send one. Nothing is learnt from it, and the n-gram
    memory, which holds texts of others, does not draft for it. Raises :class:`Unauthorized`.
    """
    for place in (getattr(body, "options", None), body):
        if place is None or not hasattr(place, "localspec"):
            continue
        own: dict[str, Any] = place.localspec or {}
        if refused := [option for option in OWNERS if own.get(option) is not None]:
            raise Unauthorized(
                f"the option localspec.{refused[0]} is accepted only with the HTTP token", TOKEN_REMEDY
            )
        proposer = own.get("proposer") or LOOKUP.name
        if proposer not in PROPOSERS:
            message = f"without the HTTP token, localspec.proposer may only be one of {', '.join(PROPOSERS)}"
            raise Unauthorized(message, TOKEN_REMEDY)
        place.localspec = {**own, "proposer": proposer, "remember": False}
