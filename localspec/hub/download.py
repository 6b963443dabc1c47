"""Content over HTTP, of the hub and of the package index: streamed, bounded, resumed. No value of an answer
is a path: callers name the file, and compare its checksum."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import BinaryIO

import httpx2

from localspec.errors import DownloadBroken
from localspec.wording import size as worded

Progress = Callable[[int], None]
"""called with the number of bytes that are here"""

TIMEOUT = httpx2.Timeout(60, connect=10)
TRIES, WAIT_S = 5, 1.0
"""requests in a row without a new byte before a download is given up, and the pause between two"""
PASSING = (httpx2.NetworkError, httpx2.TimeoutException, httpx2.RemoteProtocolError)
"""errors after which the same request may succeed"""


def complete(client: httpx2.Client, url: str, out: BinaryIO, size: int, progress: Progress) -> None:
    """Append until ``out`` has ``size`` bytes, by a new request where an answer is cut; raises as
    :func:`append`."""
    tries = TRIES
    while (before := out.tell()) < size:
        try:
            append(client, url, out, size, progress)
            if out.tell() < size:
                raise httpx2.RemoteProtocolError("the answer ended early")
        except PASSING:
            tries = TRIES if out.tell() > before else tries - 1
            if not tries:
                raise
            time.sleep(WAIT_S)


def append(
    client: httpx2.Client, url: str, out: BinaryIO, most: int, progress: Progress = lambda n: None
) -> str:
    """Append the content of an address from the byte on that ``out`` ends with, or write all of it where
    the server sends that; returns the address that redirects led to. Raises :class:`DownloadBroken` for
    more than ``most`` bytes, httpx2's HTTPError, also for a status that is none of success, its InvalidURL,
    and OSError."""
    part = {"Range": f"bytes={at}-"} if (at := out.tell()) else {}
    headers = {"Accept-Encoding": "identity", **part}
    with client.stream("GET", url, headers=headers, follow_redirects=True) as answer:
        if answer.url.scheme not in (httpx2.URL(url).scheme, "https"):
            raise httpx2.RequestError(f"a redirect leads out of https, to {answer.url.host}")
        sent = answer.headers.get("Content-Range", "")
        is_rest = answer.status_code == 206 and sent.startswith(f"bytes {at}-")
        if answer.status_code in (206, 416) and not is_rest:
            out.truncate(out.seek(0))  # this part is not of the source's file: a next request has all of it
            raise httpx2.RemoteProtocolError(f"there are no bytes from {at} on")
        answer.raise_for_status()
        out.truncate(out.seek(at if is_rest else 0))
        for piece in answer.iter_raw():
            if out.tell() + len(piece) > most:
                out.truncate(out.seek(0))
                raise DownloadBroken(f"{answer.url.host} sends more than the expected {worded(most)}")
            out.write(piece)
            progress(out.tell())
        return str(answer.url)
