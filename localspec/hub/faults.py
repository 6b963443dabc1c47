"""The hub's address, and the errors of requests to it as those of localspec."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from huggingface_hub import constants
from huggingface_hub.utils import build_hf_headers

from localspec import errors
from localspec._version import __version__
from localspec.hub.download import TIMEOUT

WRONG = "is not an http or https URL, such as https://huggingface.co"


def endpoint() -> str:
    """The address of the hub: HF_ENDPOINT, or the library's own."""
    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def show_endpoint() -> str:
    """The address of the hub without the name and password in it."""
    return re.sub(r"(\w+://)?.*@", r"\1", endpoint(), count=1, flags=re.DOTALL)


def connect() -> httpx2.Client:
    """A client that sends the user's token to the hub; raises :class:`HubUnavailable` if they forbid it."""
    if constants.is_offline_mode():
        raise errors.HubUnavailable("HF_HUB_OFFLINE is set", "Unset HF_HUB_OFFLINE.")
    headers = build_hf_headers() | {"user-agent": f"localspec/{__version__}"}  # without telemetry
    return httpx2.Client(headers=headers, timeout=TIMEOUT)


@contextmanager
def translate_errors(repo: str, more: str = "") -> Iterator[None]:
    """Raise errors of requests and files as localspec's; ``more`` is added to the remedy of what may pass."""
    try:
        yield
    except (OSError, ValueError, RecursionError, httpx2.HTTPError, httpx2.InvalidURL) as error:
        found = _translate_error(error, repo)
        if isinstance(found, (errors.HubUnavailable, errors.HubBusy, errors.DiskFull)):
            found.remedy = f"{found.remedy} {more}".strip()
        raise found from None


def _translate_error(error: Exception, repo: str) -> errors.LocalspecError:
    match error:
        case httpx2.HTTPStatusError():
            return _refusal(error.response, repo)
        case UnicodeEncodeError():
            remedy = "Correct HF_TOKEN, or log in again: `hf auth login`."
            return errors.HubDenied("the token for the hub contains characters that are not ASCII", remedy)
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
            return errors.HubUnavailable(f"{show_endpoint()} {WRONG}", "Correct or unset HF_ENDPOINT.")
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return errors.HubUnavailable(f"{show_endpoint()} cannot be reached{describe_reason(error)}")
        case httpx2.HTTPError():
            return errors.HubUnavailable(
                f"the connection to {show_endpoint()} was lost{describe_reason(error)}"
            )
        case OSError(errno=number) if number in errors.FULL:
            return errors.DiskFull("the disk of the hub's cache is full")
        case OSError(errno=int()):
            return errors.StorageError(
                f"the hub's cache cannot be written: {error.strerror}: {error.filename}",
                "Set HF_HUB_CACHE to a directory that you can write to.",
            )
    return errors.HubUnavailable(
        f"the answer of {show_endpoint()} for {repo} is not a hub's{describe_reason(error)}"
    )


def describe_reason(error: Exception) -> str:
    """The end of a sentence with the reason, without the system's number; without a network, a look-up of
    names fails in different words everywhere."""
    why = re.sub(r"\[Errno -?\d+\] ", "", str(error))
    is_unknown = re.search(r"name resolution|not known|hostname", why)
    return ": no address is known for it" if is_unknown else f": {why}" if why else ""


def _refusal(response: httpx2.Response, repo: str) -> errors.LocalspecError:
    """The error for a request that was answered with a status that is none of success."""
    status, why = response.status_code, response.headers.get("x-error-code", "")
    if why == "GatedRepo" or status == 403:
        what = "you have not accepted its terms, or have no permission"
        return errors.HubDenied(f"access to {repo} is denied: {what}")
    if status == 401:
        remedy = "Check the name, ORG/NAME; if it is private, log in: `hf auth login`, or set HF_TOKEN."
        return errors.HubDenied(f"the hub does not show {repo}: it is private, or does not exist", remedy)
    if status in (404, 410):
        what = f"no longer has a file of {repo}" if why == "EntryNotFound" else f"has no repository {repo}"
        return errors.ModelNotFound(f"{show_endpoint()} {what}", "Check the name, ORG/NAME, and HF_ENDPOINT.")
    if status == 429:
        after = response.headers.get("retry-after", "")
        when = f"in {after} seconds" if after.isdecimal() else "in some minutes"
        return errors.HubBusy("the hub limits the rate of requests from this address", f"Try again {when}.")
    return errors.HubUnavailable(f"{show_endpoint()} answered with the HTTP status {status}")
