"""The files of a repository as the hub lists them, checked before use."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from huggingface_hub import HfApi
from huggingface_hub.hf_api import RepoSibling

from localspec._version import __version__
from localspec.errors import ModelInvalid
from localspec.hub.faults import endpoint, typed
from localspec.hub.records import HubFile

MAX_FILE = 1 << 40
LIBRARY: dict[str, Any] = {"library_name": "localspec", "library_version": __version__}
OTHER = "Choose another repository."
_UNSAFE = re.compile(r'(^|/)(\.{0,2}|[^/]{256,})(/|$)|[\\:*?"<>|]')


class Listing(NamedTuple):
    """A repository at one commit."""

    repo: str
    commit: str
    files: tuple[HubFile, ...]


def api() -> HfApi:
    return HfApi(endpoint(), **LIBRARY)


def read_listing(repo: str) -> Listing:
    """Request the hub's listing of ``repo`` at its newest commit.

    Raises :class:`ModelInvalid` for a listing with an unsafe name, size or checksum, and what
    ``faults.typed`` does.
    """
    with typed(repo):
        try:
            info = api().model_info(repo, files_metadata=True, timeout=10)
            files = tuple(checked_file(repo, each) for each in info.siblings or ())
            commit = re.fullmatch(r"[0-9a-f]{40}", str(info.sha))
        except (AttributeError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(error) from None  # an answer of another form
    if commit is None:
        raise ModelInvalid(f"the hub's listing of {repo} has no commit id", OTHER)
    return Listing(repo, commit[0], files)


def checked_file(repo: str, found: RepoSibling) -> HubFile:
    """A file of a listing; raises :class:`ModelInvalid` where its name may lead out of a directory."""
    name, lfs = found.rfilename, found.lfs
    size, checksum = (lfs.size, lfs.sha256) if lfs else (found.size, found.blob_id)
    if _UNSAFE.search(name) or not name.isprintable() or len(name) > 1024:
        raise ModelInvalid(f"{repo} lists a file with an unsafe path: {name[:200]!r}", OTHER)
    if size is None or not 0 <= size <= MAX_FILE:
        raise ModelInvalid(f"{repo} lists {name!r} with the invalid size {size}", OTHER)
    if not re.fullmatch(r"[0-9a-f]{64}" if lfs else r"[0-9a-f]{40}", checksum or ""):
        raise ModelInvalid(f"{repo} lists {name!r} without a valid checksum", OTHER)
    return HubFile(name, size, checksum or "")
