"""The download of one file from the hub into the cache: resumed, checked, put in its place.

The library's own download begins anew after an interruption and compares no checksum. So the bytes are
fetched here, through its session and into its layout, and the library uses the file as its own.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Protocol

import filelock
import httpx2
from huggingface_hub import hf_hub_url
from huggingface_hub.utils import WeakFileLock

from localspec.errors import FULL, DiskFull, DownloadBroken, HubBusy, HubUnavailable, StorageError
from localspec.hub.cache import Place
from localspec.hub.listing import HubFile
from localspec.hub.session import TRANSPORT_ERRORS, endpoint, get, unreachable

CHUNK = 256 * 1024
TRIES = 4
"""attempts without a single new byte"""
PAUSE_S = 0.5
"""seconds between attempts, longer each time"""
LOCK_S = 1.0
KEPT = "The part downloaded so far is kept: the same command continues it."

Progress = Callable[[int], None]
"""called with the number of bytes of the file that are here"""


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def download(place: Place, file: HubFile, progress: Progress, claim: Callable[[HubFile], None]) -> None:
    """Fetch the missing bytes of a file, and put it into its snapshot.

    ``claim`` is called before the first byte of a file that no other program has put into the snapshot.
    Raises :class:`DownloadBroken` for content that differs from the hub's listing (it is removed),
    :class:`DiskFull`, :class:`HubBusy` while another program fetches it, and what ``session.get`` does.
    """
    try:
        place.prepare(file)
        with holding(place, file):
            if not place.shows(file):
                claim(file)
            if not place.has(file):
                _fetch(place, file, progress)
            place.show(file)
    except OSError as error:
        raise _storage(error, place) from None
    progress(file.size)


@contextmanager
def holding(place: Place, file: HubFile) -> Iterator[None]:
    """Hold the lock of a file's blob; raises :class:`HubBusy` while another program has it."""
    try:
        # A moment, as the other program may be about to finish.
        with WeakFileLock(place.lock(file), timeout=LOCK_S):
            yield
    except filelock.Timeout:
        raise HubBusy(
            f"another program is downloading {file.name}", "Wait until it has finished, then try again."
        ) from None


def _storage(error: OSError, place: Place) -> StorageError:
    if error.errno in FULL:
        return DiskFull(f"the disk of {place.root} is full", f"Free some disk space. {KEPT}")
    return StorageError(
        f"{place.root} cannot be written: {error.strerror or error}",
        "Set HF_HUB_CACHE to a directory that you can write to.",
    )


def _fetch(place: Place, file: HubFile, progress: Progress) -> None:
    partial = place.partial(file)
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(partial, flags, 0o666), "r+b") as out:
            arriving = Arriving(out, file, progress)
            arriving.read_back()
            _receive(place, arriving)
            if arriving.checksum() != file.checksum:
                raise DownloadBroken(
                    f"the downloaded {file.name} is damaged: its checksum is {arriving.checksum()}, the "
                    f"hub's is {file.checksum}"
                )
            os.fsync(out.fileno())  # a name that promises a checksum must not outlive its content
    except DownloadBroken:
        partial.unlink()
        raise
    os.replace(partial, place.blob(file))


class Arriving:
    """A file while it is downloaded: its bytes, their number and their checksum."""

    def __init__(self, out: IO[bytes], file: HubFile, progress: Progress) -> None:
        self.file, self.size = file, 0
        self._out, self._progress = out, progress
        self._digest = _digest(file)

    @property
    def missing(self) -> int:
        return self.file.size - self.size

    def read_back(self) -> None:
        """Resume from the part that an earlier run left; begin anew where that is too long."""
        if os.fstat(self._out.fileno()).st_size > self.file.size:
            return self.begin_anew()
        while data := self._out.read(CHUNK):
            self._count(data)

    def begin_anew(self) -> None:
        self._out.seek(0)
        self._out.truncate()
        self.size, self._digest = 0, _digest(self.file)

    def add(self, data: bytes) -> None:
        """Append bytes; raises :class:`DownloadBroken` at the first byte too many."""
        if len(data) > self.missing:
            raise DownloadBroken(
                f"{self.file.name} is longer than the {self.file.size} bytes that the hub lists"
            )
        self._out.write(data)
        self._out.flush()
        self._count(data)

    def checksum(self) -> str:
        return self._digest.hexdigest()

    def _count(self, data: bytes) -> None:
        self._digest.update(data)
        self.size += len(data)
        self._progress(self.size)


def _digest(file: HubFile) -> Digest:
    if len(file.checksum) == 64:
        return hashlib.sha256()
    # Git's name of a small file: no protection against forgery, but the hub has no other checksum of these.
    return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)


def _receive(place: Place, arriving: Arriving) -> None:
    """Receive all bytes, however often the connection is lost, until :data:`TRIES` attempts bring none."""
    failures = 0
    while arriving.missing:
        before, lost = (
            arriving.size,
            HubUnavailable(f"the connection to {endpoint()} closed before {arriving.file.name} was complete"),
        )
        try:
            _receive_once(place, arriving)
        except TRANSPORT_ERRORS as error:
            lost = unreachable(error)
        except HubUnavailable as error:
            lost = error
        failures = 0 if arriving.size > before else failures + 1
        if failures == TRIES:
            raise HubUnavailable(lost.message, f"{lost.remedy} {KEPT}")
        time.sleep(PAUSE_S * failures)


def _receive_once(place: Place, arriving: Arriving) -> None:
    url = hf_hub_url(place.repo, arriving.file.name, revision=place.commit, endpoint=endpoint())
    with get(url, place.repo, start=arriving.size) as response:
        _check_range(response, arriving)
        for chunk in response.iter_bytes(CHUNK):
            arriving.add(chunk)


def _check_range(response: httpx2.Response, arriving: Arriving) -> None:
    """Check that an answer begins at the next byte; a server without ranges sends the whole file again.

    A login page has the status of a file, and must not replace the part that is here.
    """
    if response.status_code == 206:
        begin = response.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
        if begin != str(arriving.size):
            raise DownloadBroken(
                f"asked to continue {arriving.file.name} at byte {arriving.size}, the hub sent from byte "
                f"{begin!r}"
            )
    elif _is_another(response, arriving.file):
        raise HubUnavailable(
            f"{endpoint()} sent another document in place of {arriving.file.name}",
            "Check the network for a proxy or login page, and HF_ENDPOINT if it is set, then try again.",
        )
    elif arriving.size:
        arriving.begin_anew()


def _is_another(response: httpx2.Response, file: HubFile) -> bool:
    """True if the headers of a complete answer show that it is another document."""
    length = response.headers.get("content-length")
    if length is None:
        return response.headers.get("content-type", "").startswith("text/html")
    return int(length) < file.size and "content-encoding" not in response.headers
