"""Who may come in by HTTP: the checks before anything of a request is read.

A web page may send to loopback, and its fetch is not held back by CORS where it does not want to read the
answer; so whatever a browser sends on a page's behalf is refused, unless its origin is one of
``http.origins``. Those are told that they may read answers, and need the token also in the dialects of
``http.without_token``; what is open to every program (`/health`, the schema) is open to them, too.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localspec.daemon.access.guard import LOOPBACK, bearers, is_token
from localspec.errors import DaemonError, LocalspecError

ADMIT = "admit"
"""of a request's state: to be called once the token was shown"""
OWNER = "owner"
"""of a request's state: whether it shows the token"""
WORK = "work"
"""of a request's state: to be called once the request has a place at work"""
OWN_SITES = ("none", "same-origin")
"""what a browser says of an address that a person typed"""

Refusal = tuple[LocalspecError, HTTPStatus]
Refuse = Callable[[str, LocalspecError, HTTPStatus], Response]
"""makes the answer, in the words of the dialect of a path"""


class Forbidden(DaemonError):
    """Somebody else's browser."""

    code = "forbidden"
    default_remedy = "Ask from a program on this machine, at 127.0.0.1 or localhost."


class Gate:
    """Lets in who names this machine, is no web page but one of ``origins``, and shows the token.

    ``token`` reads it: None where there is none. ``strangers`` says why who shows none, or a page, is not let
    in with a method at a path; ``refuse`` makes the answers of those who stay outside.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: Callable[[], str | None],
        strangers: Callable[[str, str, bool], Refusal | None],
        refuse: Refuse,
        origins: tuple[str, ...] = (),
    ) -> None:
        self._app = app
        self._token = token
        self._strangers = strangers
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
            if scope["method"] == "OPTIONS" and ASKED_METHOD in headers:
                await _preflight(headers)(scope, receive, send)
                return
        is_owner = self._shows_token(headers)
        if is_owner and (admit := scope.get("state", {}).get(ADMIT)) is not None:
            admit()
        if refused is None and not is_owner:
            refused = self._strangers(scope["method"], path, page is not None)
        if refused is not None:
            error, status = refused
            await self._refuse(path, error, status)(scope, receive, send)
        else:
            scope.setdefault("state", {})[OWNER] = is_owner
            await self._app(scope, receive, send)

    def _page(self, headers: Headers) -> str | None:
        """The origin that the request comes from, if it is one of those that are let in."""
        origins = headers.getlist("origin")
        return origins[0] if len(origins) == 1 and origins[0] in self._origins else None

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
        return Forbidden("the Host header does not name this machine"), HTTPStatus.FORBIDDEN
    if is_page:
        return None
    if headers.getlist("origin"):
        return Forbidden("web pages are not let in", ORIGIN_REMEDY), HTTPStatus.FORBIDDEN
    if headers.get("sec-fetch-site", "none") not in OWN_SITES:
        return Forbidden("web pages are not let in"), HTTPStatus.FORBIDDEN
    return None


def _readable_by(page: str, send: Send) -> Send:
    """Answers as they are sent, with the leave for this origin to read them."""
    leave = [(b"access-control-allow-origin", page.encode("latin-1")), (b"vary", b"Origin")]

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *leave]}
        await send(message)

    return sent


def _preflight(headers: Headers) -> Response:
    """The answer to what a browser asks before a page's request."""
    told = {
        "access-control-allow-methods": "GET, POST",
        "access-control-allow-headers": headers.get("access-control-request-headers", "authorization"),
        "access-control-max-age": "600",
    }
    if "access-control-request-private-network" in headers:
        told["access-control-allow-private-network"] = "true"
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=told)


ASKED_METHOD = "access-control-request-method"
ORIGIN_REMEDY = (
    "Ask from a program on this machine; for one in a browser engine, put its Origin into http.origins."
)
TOKEN_REMEDY = "Send `Authorization: Bearer …` with what `localspec daemon token` prints."
