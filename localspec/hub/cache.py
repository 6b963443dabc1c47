"""Paths of the hub's files in huggingface_hub's cache, which all programs share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from huggingface_hub.file_download import repo_folder_name

from localspec.errors import ModelInvalid
from localspec.hub.listing import HubFile

BRANCH = "main"


class Place(NamedTuple):
    """A repository at one commit in the cache: blobs by checksum, and a snapshot of links to them."""

    root: Path
    repo: str
    commit: str

    @property
    def folder(self) -> Path:
        return self.root / repo_folder_name(repo_id=self.repo, repo_type="model")

    @property
    def snapshot(self) -> Path:
        return self.folder / "snapshots" / self.commit

    @property
    def blobs(self) -> Path:
        return self.folder / "blobs"

    def blob(self, file: HubFile) -> Path:
        return self.blobs / file.checksum

    def partial(self, file: HubFile) -> Path:
        """The part downloaded so far, under the name that older versions of the library resume from."""
        return self.blobs / f"{file.checksum}.incomplete"

    def lock(self, file: HubFile) -> Path:
        """The library's own lock of a blob."""
        return self.root / ".locks" / self.folder.name / f"{file.checksum}.lock"

    @property
    def ref(self) -> Path:
        """The file that names the commit of the branch."""
        return self.folder / "refs" / BRANCH

    def entry(self, file: HubFile) -> Path:
        return self.snapshot.joinpath(*file.name.split("/"))

    def shows(self, file: HubFile) -> bool:
        """True if this commit's snapshot has the complete file."""
        return _size(self.entry(file)) == file.size

    def has(self, file: HubFile) -> bool:
        """True if the complete file is in the cache, if only for another commit."""
        return self.shows(file) or _size(self.blob(file)) == file.size

    def so_far(self, file: HubFile) -> int:
        """Bytes of a file that are in the cache, complete or not."""
        return file.size if self.has(file) else max(0, min(_size(self.partial(file)), file.size))

    def prepare(self, file: HubFile) -> None:
        """Make the directories; raises :class:`ModelInvalid` where a link leads elsewhere."""
        for path in (self.blob(file), self.entry(file), self.lock(file), self.ref):
            path.parent.mkdir(parents=True, exist_ok=True)
            inside = self.root.resolve() / path.parent.relative_to(self.root)
            found = path.parent.resolve()
            if found != inside:
                raise ModelInvalid(
                    f"the download folder {path.parent} is redirected by a symbolic link to {found}; no file "
                    "was written there",
                    "Remove that link, which is the folder or one above it; then try again.",
                )

    def show(self, file: HubFile) -> None:
        """Put a file whose blob is in the cache into the snapshot."""
        entry, blob = self.entry(file), self.blob(file)
        if self.shows(file):
            return
        entry.unlink(missing_ok=True)
        try:
            entry.symlink_to(os.path.relpath(blob, entry.parent))
        except (OSError, NotImplementedError):
            os.replace(blob, entry)  # a disk without links: there the library, too, keeps the file itself

    def show_all(self) -> None:
        """Make this commit that of its branch, for all programs."""
        scratch = self.ref.with_name(f".{BRANCH}.{os.getpid()}")
        scratch.write_text(self.commit)
        os.replace(scratch, self.ref)


def _size(path: Path) -> int:
    """Bytes of a file; -1 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
