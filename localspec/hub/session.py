"""Asking the hub: one request, and what its refusals mean."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

# Who uses which model is nobody else's business; read when the library is imported.
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
    """Where the hub is: HF_ENDPOINT, or the library's own, without the name and password it may hold.

    Those are shown to nobody. Raises :class:`HubUnavailable` where it cannot be told what is one.
    """
    scheme, _, rest = _address()
    return scheme + rest


def _login() -> dict[str, str]:
    """The header that carries the name and password of the address, if it has some."""
    _, login, _ = _address()
    sent = base64.b64encode(unquote(login).encode(errors="surrogateescape")).decode()
    return {"Authorization": f"Basic {sent}"} if login else {}


def _address() -> tuple[str, str, str]:
    """HF_ENDPOINT, or the library's own: its scheme, its name and password, the rest."""
    found = _ADDRESS.fullmatch((os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/"))
    if found is None or "@" in found["rest"]:
        remedy = "Correct HF_ENDPOINT: in a name or password, / is written as %2F and @ as %40."
        raise HubUnavailable("HF_ENDPOINT is no address of a hub", remedy)
    return found["scheme"], found["login"] or "", found["rest"]


@contextmanager
def get(url: str, repo: str, *, start: int = 0) -> Iterator[httpx2.Response]:
    """A request for a file or a listing of ``repo``, from byte ``start`` on; its body is read by the caller.

    The library finds the token; its client drops it where a redirect leads to another host or port.
    Raises what a refusal means (:func:`refusal`), :class:`HubUnavailable` where there is no such place to
    ask, and ``TRANSPORT_ERRORS`` where the connection failed.
    """
    headers = build_hf_headers(library_name="localspec", library_version=__version__)
    if not all(value.isascii() for value in headers.values()):
        raise HubDenied("the token for the hub holds letters that no token has", "Correct HF_TOKEN.")
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
        raise HubUnavailable("HF_HUB_OFFLINE forbids to ask the hub", "Unset HF_HUB_OFFLINE.") from None
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol):
        raise HubUnavailable(f"{endpoint()} is no address of a hub", "Correct HF_ENDPOINT.") from None


def unreachable(error: Exception) -> HubUnavailable:
    """What to say of one of ``TRANSPORT_ERRORS``."""
    never = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))
    what = "cannot be reached" if never else "was reached, and the connection lost"
    return HubUnavailable(f"{endpoint()} {what}: {str(error) or type(error).__name__}")


def refusal(response: httpx2.Response, repo: str) -> LocalspecError:
    """What an answer of 400 or above means for whoever wants ``repo``."""
    status = response.status_code
    why = response.headers.get("x-error-code", "")
    if why == "GatedRepo" or status == 403:
        return HubDenied(f"{repo} is not open to you: its owner wants its terms accepted, or forbids it")
    if status == 401:
        return HubDenied(f"the hub does not show {repo}: it is private, or there is none")
    if status in (404, 410):
        what = f"a file of {repo} no longer" if why == "EntryNotFound" else f"no repository {repo}"
        return ModelNotFound(
            f"{endpoint()} has {what}", "Check the name, ORG/NAME; HF_ENDPOINT says which hub is asked."
        )
    if status == 429:
        return _too_many(response)
    return HubUnavailable(f"{endpoint()} answered with status {status}")


def _too_many(response: httpx2.Response) -> HubBusy:
    after = response.headers.get("retry-after", "").strip()
    when = f"Try again in {after} seconds." if after.isdecimal() else "Try again in some minutes."
    return HubBusy("the hub has had too many requests from here", f"{when} What is here is kept.")
