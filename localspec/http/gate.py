"""Access control of the HTTP server: the checks before a request's body is read.

A web page can send requests to loopback, and CORS does not stop those whose answers it does not read. So a
request that a browser sends for a page is refused, unless the page's origin is in ``http.origins``. Those
pages get the CORS headers to read answers; they need the token in the dialects of ``http.without_token``,
too. Endpoints that need no token, such as `/health`, are open to them as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from localspec.daemon.access import LOOPBACK, bearers, is_listed, is_token
from localspec.errors import DaemonError, LocalspecError, Unauthorized
from localspec.protocol.options import KINDS, LONGEST_SHOWN, LOOKUP, NONE

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


class Pages(CORSMiddleware):
    """Let the pages of accepted origins read the answers, also to the requests that browsers send before."""

    def is_allowed_origin(self, origin: str) -> bool:
        return is_listed(origin, self.allow_origins)


@dataclass
class AccessGate:
    """Admit requests that name this machine, have no foreign Origin, and carry the token. ``token`` reads the
    token, None where there is none. ``unauthenticated`` returns the refusal of a request without a token, or
    of a web page, by method and path; ``refuse`` makes the response of a refusal."""

    app: ASGIApp
    token: Callable[[], str | None]
    unauthenticated: Callable[[str, str, bool], Refusal | None]
    refuse: Refuse
    origins: tuple[str, ...]
    hosts: tuple[str, ...]

    def __post_init__(self) -> None:
        self._pages = Pages(
            self._with_token, self.origins, ("GET", "POST", "DELETE"), ("*",), allow_private_network=True
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        origins = headers.getlist("origin")
        is_page = len(origins) == 1 and is_listed(origins[0], self.origins)
        if (refused := _find_refusal(headers, self.hosts, is_page=is_page)) is not None:
            await self.refuse(scope["path"], refused, HTTPStatus.FORBIDDEN)(scope, receive, send)
        else:
            await (self._pages if is_page else self._with_token)(scope, receive, send)

    async def _with_token(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        is_owner = self._shows_token(headers)
        refused = None if is_owner else self.unauthenticated(scope["method"], path, "origin" in headers)
        if refused is not None:
            await self.refuse(path, *refused)(scope, receive, send)
        else:
            scope.setdefault("state", {})[OWNER] = is_owner
            await self.app(scope, receive, send)

    def _shows_token(self, headers: Headers) -> bool:
        keys = [key.strip() for key in headers.getlist("x-api-key")]
        shown = [each for each in bearers(headers.getlist("authorization")) + keys if each]
        token = self.token() if shown else None
        return token is not None and is_token(shown, token)


def _find_refusal(headers: Headers, names: Collection[str], *, is_page: bool) -> Forbidden | None:
    """Return the refusal that a request's headers demand at every path, None if they demand none. The
    ``Host`` must be loopback, or one of ``names`` with any port; a browser's request must come from an
    accepted page (``is_page``)."""
    hosts = headers.getlist("host")
    name = re.sub(r":\d{1,5}$", "", hosts[0].strip().lower()) if hosts else ""
    if len(hosts) != 1 or not (name in map(str.lower, names) or LOOPBACK.fullmatch(hosts[0].strip())):
        shown = ", ".join(hosts)[:LONGEST_SHOWN]
        return Forbidden(f"the Host header {shown!r} does not name this machine", HOST_REMEDY)
    if is_page:
        return None
    if headers.getlist("origin"):
        return Forbidden("requests of web pages are refused", ORIGIN_REMEDY)
    is_foreign = headers.get("sec-fetch-site", "none") not in OWN_SITES
    return Forbidden("requests of web pages are refused") if is_foreign else None


HOST_REMEDY = (
    f"{Forbidden.default_remedy} For a container, add the host's name there to the setting http.hosts."
)
ORIGIN_REMEDY = (
    "Send the request from a program on this machine, without an Origin header; for a program in a browser "
    "engine, add its Origin to the setting http.origins."
)
TOKEN_REMEDY = "Send `Authorization: Bearer TOKEN`, with the token that `localspec daemon token` prints."
OWNERS = ("model", "draft", "workspace")
"""options that name files, or may let a draft change a text"""
PROPOSERS = (*(kind.name for kind in KINDS if kind.unauthenticated), NONE)
"""proposers that these clients may choose; :data:`LOOKUP` is the default"""


def confine(body: msgspec.Struct) -> None:
    """Restrict a request's options to those permitted without the token; its model is checked elsewhere.
    Without it any program of any user of this machine may send one. Nothing is learnt from it, and the n-gram
    memory, which holds texts of others, does not draft for it. Raises :class:`Unauthorized`."""
    for place in (getattr(body, "options", None), body):
        if place is None or not hasattr(place, "localspec"):
            continue
        own: dict[str, Any] = place.localspec or {}
        if refused := [option for option in OWNERS if own.get(option) is not None]:
            message = f"the option localspec.{refused[0]} is accepted only with the HTTP token"
            raise Unauthorized(message, TOKEN_REMEDY)
        proposer = own.get("proposer") or LOOKUP.name
        if proposer not in PROPOSERS:
            message = f"without the HTTP token, localspec.proposer may only be one of {', '.join(PROPOSERS)}"
            raise Unauthorized(message, TOKEN_REMEDY)
        place.localspec = {**own, "proposer": proposer, "remember": False}
