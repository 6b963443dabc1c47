"""Requests to the hub, and the errors for its refusals."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

# No telemetry; the variable is read when the library is imported.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import httpx2  # what huggingface_hub speaks HTTP with
from huggingface_hub import constants
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import build_hf_headers, get_session

from localspec._version import __version__
from localspec.errors import HubBusy, HubDenied, HubUnavailable, LocalspecError, ModelNotFound

TRANSPORT_ERRORS = (httpx2.TransportError, httpx2.TooManyRedirects)
_ADDRESS = re.compile(
    r"(?P<scheme>(?:[a-z][a-z0-9+.-]*://)?)(?:(?P<login>[^/?#]*)@)?(?P<rest>.*)", re.I | re.S
)


def endpoint() -> str:
    """The address of the hub: HF_ENDPOINT, or the library's own, without the name and password in it.

    Those are never shown. Raises :class:`HubUnavailable` where they cannot be separated.
    """
    scheme, _, rest = _address()
    return scheme + rest


def _login() -> dict[str, str]:
    """The header with the name and password of the address, if it has some."""
    _, login, _ = _address()
    sent = base64.b64encode(unquote(login).encode(errors="surrogateescape")).decode()
    return {"Authorization": f"Basic {sent}"} if login else {}


def _address() -> tuple[str, str, str]:
    """HF_ENDPOINT, or the library's own: its scheme, its name and password, the rest."""
    found = _ADDRESS.fullmatch((os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/"))
    if found is None or "@" in found["rest"]:
        raise HubUnavailable(
            "HF_ENDPOINT is not a URL",
            "Set HF_ENDPOINT to a URL such as https://huggingface.co, or unset it. In a name or password, "
            "write / as %2F and @ as %40.",
        )
    return found["scheme"], found["login"] or "", found["rest"]


@contextmanager
def get(url: str, repo: str, *, start: int = 0) -> Iterator[httpx2.Response]:
    """A request for a file or a listing of ``repo``, from byte ``start`` on; its body is read by the caller.

    The library finds the token; its client drops it where a redirect leads to another host or port.
    Raises the error of a refusal (:func:`refusal`), :class:`HubUnavailable` for an invalid address or an
    offline setting, and ``TRANSPORT_ERRORS`` where the connection failed.
    """
    headers = build_hf_headers(library_name="localspec", library_version=__version__)
    if not all(value.isascii() for value in headers.values()):
        raise HubDenied(
            "the token for the hub contains characters that are not ASCII",
            "Correct HF_TOKEN, or log in again: `hf auth login`.",
        )
    headers |= _login()
    headers["Accept-Encoding"] = "identity"  # bytes are counted as they are stored
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
            if response.status_code >= 400:
                raise refusal(response, repo)
            yield response
    except OfflineModeIsEnabled:
        raise HubUnavailable("HF_HUB_OFFLINE is set: no request is sent", "Unset HF_HUB_OFFLINE.") from None
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol):
        raise HubUnavailable(
            f"HF_ENDPOINT is not an http or https URL: {endpoint()}",
            "Set HF_ENDPOINT to a URL such as https://huggingface.co, or unset it.",
        ) from None


def unreachable(error: Exception) -> HubUnavailable:
    """The error for one of ``TRANSPORT_ERRORS``."""
    never = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))
    what = f"{endpoint()} cannot be reached" if never else f"the connection to {endpoint()} was lost"
    return HubUnavailable(f"{what}: {str(error) or type(error).__name__}")


def refusal(response: httpx2.Response, repo: str) -> LocalspecError:
    """The error for a request for ``repo`` that was answered with a status of 400 or above."""
    status = response.status_code
    why = response.headers.get("x-error-code", "")
    if why == "GatedRepo" or status == 403:
        return HubDenied(
            f"access to {repo} is denied: you have not accepted its terms, or have no permission"
        )
    if status == 401:
        return HubDenied(
            f"the hub does not show {repo}: it is private, or does not exist",
            "Check the name, ORG/NAME; for a private repository log in: `hf auth login`, or set HF_TOKEN.",
        )
    if status in (404, 410):
        what = f"no longer has a file of {repo}" if why == "EntryNotFound" else f"has no repository {repo}"
        return ModelNotFound(
            f"{endpoint()} {what}", "Check the name, ORG/NAME, and HF_ENDPOINT if it is set."
        )
    if status == 429:
        return _too_many(response)
    return HubUnavailable(
        f"{endpoint()} answered with the HTTP status {status}",
        "Try again in some minutes; check HF_ENDPOINT if it is set.",
    )


def _too_many(response: httpx2.Response) -> HubBusy:
    after = response.headers.get("retry-after", "").strip()
    when = f"Try again in {after} seconds." if after.isdecimal() else "Try again in some minutes."
    return HubBusy(
        "the hub limits the rate of requests from this address", f"{when} Files downloaded so far are kept."
    )
