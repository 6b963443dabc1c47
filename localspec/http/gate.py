"""Who may come in by HTTP: the checks before anything of a request is read.

A web page may send to loopback, and its fetch is not held back by CORS where it does not want to read the
answer; so whatever a browser sends on a page's behalf is refused, and no header ever allows anything.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from localspec.daemon.guard import LOOPBACK, bearers, is_token
from localspec.errors import DaemonError, LocalspecError, Unauthorized

OWNER = "owner"
"""of a request's state: whether it shows the token"""
OWN_SITES = ("none", "same-origin")
"""what a browser says of an address that a person typed"""

Refuse = Callable[[str, LocalspecError, HTTPStatus], Response]
"""makes the answer, in the words of the dialect of a path"""


class Forbidden(DaemonError):
    """Somebody else's browser."""

    code = "forbidden"
    default_remedy = "Ask from a program on this machine, at 127.0.0.1 or localhost."


class Gate:
    """Lets in who names this machine, is no web page, and shows the token.

    ``token`` reads it: None where there is none. ``needs_token`` knows by path; ``refuse`` makes the answers
    of those who stay outside.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: Callable[[], str | None],
        needs_token: Callable[[str], bool],
        refuse: Refuse,
    ) -> None:
        self._app = app
        self._token = token
        self._needs_token = needs_token
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        path, headers = scope["path"], Headers(scope=scope)
        is_owner = self._shows_token(headers)
        refused = self._refusal(path, headers, is_owner=is_owner)
        if refused is not None:
            error, status = refused
            await self._refuse(path, error, status)(scope, receive, send)
        else:
            scope.setdefault("state", {})[OWNER] = is_owner
            await self._app(scope, receive, send)

    def _refusal(
        self, path: str, headers: Headers, *, is_owner: bool
    ) -> tuple[LocalspecError, HTTPStatus] | None:
        """Why this request is not let in; None lets it in."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or LOOPBACK.fullmatch(hosts[0].strip()) is None:
            return Forbidden("the Host header does not name this machine"), HTTPStatus.FORBIDDEN
        if headers.getlist("origin") or headers.get("sec-fetch-site", "none") not in OWN_SITES:
            return Forbidden("web pages are not let in"), HTTPStatus.FORBIDDEN
        if self._needs_token(path) and not is_owner:
            return Unauthorized("the token is missing or wrong", TOKEN_REMEDY), HTTPStatus.UNAUTHORIZED
        return None

    def _shows_token(self, headers: Headers) -> bool:
        keys = [key.strip() for key in headers.getlist("x-api-key")]
        shown = [each for each in bearers(headers.getlist("authorization")) + keys if each]
        token = self._token() if shown else None
        return token is not None and is_token(shown, token)


TOKEN_REMEDY = "Send `Authorization: Bearer …` with what `localspec daemon token` prints."
