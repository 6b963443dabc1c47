"""The files of a repository as the hub lists them, checked before use."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from localspec.errors import HubUnavailable, InvalidOptions, ModelInvalid
from localspec.hub.session import TRANSPORT_ERRORS, endpoint, get, unreachable

MAX_LISTING = 32 << 20
"""bytes of JSON"""
MAX_FILES = 10_000
MAX_FILE = 1 << 40
MAX_NAME, MAX_PART = 1024, 255
"""characters of a file's path, and bytes of one part of it"""

_SHA1, _SHA256 = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")


class HubFile(NamedTuple):
    """A file of a repository: its size in bytes, and its checksum, which is its name among the blobs.

    64 digits: SHA-256 of the content; 40: git's own, SHA-1 of a header and the content.
    """

    name: str
    size: int
    checksum: str


class Listing(NamedTuple):
    """A repository at one commit."""

    repo: str
    commit: str
    files: tuple[HubFile, ...]


class _Lfs(msgspec.Struct):
    sha256: str
    size: int


class _Sibling(msgspec.Struct, rename="camel"):
    rfilename: str
    size: int | None = None
    blob_id: str | None = None
    lfs: _Lfs | None = None


class _Model(msgspec.Struct):
    sha: str
    siblings: tuple[_Sibling, ...] = ()


def read_listing(repo: str) -> Listing:
    """Request the hub's listing of ``repo`` at its newest commit.

    Raises :class:`InvalidOptions` for an invalid name of a repository, :class:`ModelInvalid` for a listing
    that names files outside of the repository, or of absurd size or number, and what ``session.get`` does.
    """
    check_repo(repo)
    try:
        with get(f"{endpoint()}/api/models/{repo}?blobs=true", repo) as response:
            data = bytearray()
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) > MAX_LISTING:
                    raise ModelInvalid(
                        f"the hub's listing of {repo} is longer than {MAX_LISTING} bytes", OTHER
                    )
    except TRANSPORT_ERRORS as error:
        raise unreachable(error) from None
    return parse_listing(repo, bytes(data))


OTHER = "Choose another repository."


def check_repo(repo: str) -> None:
    """Raise :class:`InvalidOptions` unless this is ORG/NAME."""
    try:
        validate_repo_id(repo)
    except HFValidationError:
        plausible = False
    else:
        plausible = repo.count("/") == 1
    if not plausible:
        raise InvalidOptions(
            f"{repo!r} is not the name of a repository",
            "Write ORG/NAME or ORG/NAME:QUANTISATION, as the hub has it; one file of it goes with --file.",
        )


def parse_listing(repo: str, data: bytes) -> Listing:
    """A listing as the hub sent it; raises as :func:`read_listing` does."""
    try:
        model = msgspec.json.decode(data, type=_Model)
    except (msgspec.MsgspecError, RecursionError):
        raise HubUnavailable(
            f"the answer of {endpoint()} for {repo} is not a hub's list of files",
            "Check HF_ENDPOINT and the proxy settings.",
        ) from None
    if not _SHA1.fullmatch(model.sha):
        raise ModelInvalid(f"the hub's listing of {repo} has no commit id", OTHER)
    if len(model.siblings) > MAX_FILES:
        raise ModelInvalid(f"{repo} has {len(model.siblings)} files; {MAX_FILES} are the most", OTHER)
    return Listing(repo, model.sha, tuple(_file(repo, each) for each in model.siblings))


def _file(repo: str, sibling: _Sibling) -> HubFile:
    name = sibling.rfilename
    if not _is_inside(name):
        raise ModelInvalid(f"{repo} lists a file with an unsafe path: {name[:200]!r}", OTHER)
    size = sibling.lfs.size if sibling.lfs else sibling.size
    if size is None or not 0 <= size <= MAX_FILE:
        raise ModelInvalid(f"{repo} lists {name!r} with the invalid size {size}", OTHER)
    checksum = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id or ""
    if not (_SHA256 if sibling.lfs else _SHA1).fullmatch(checksum):
        raise ModelInvalid(f"{repo} lists {name!r} without a valid checksum", OTHER)
    return HubFile(name, size, checksum)


def _is_inside(name: str) -> bool:
    """True if a name stays below a directory on every system that localspec supports."""
    parts = name.split("/")
    return (
        len(name) <= MAX_NAME
        and name.isprintable()
        and not any(char in name for char in '\\:*?"<>|')
        and all(part not in ("", ".", "..") and len(part.encode()) <= MAX_PART for part in parts)
        and not PurePosixPath(name).is_absolute()
    )
