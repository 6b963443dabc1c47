"""Where files of the hub lie: huggingface_hub's cache, so that every program shares them."""

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
        """What came so far, under the name that older versions of the library go on with."""
        return self.blobs / f"{file.checksum}.incomplete"

    def lock(self, file: HubFile) -> Path:
        """The library's own lock of a blob."""
        return self.root / ".locks" / self.folder.name / f"{file.checksum}.lock"

    @property
    def ref(self) -> Path:
        """What says which commit its branch is at."""
        return self.folder / "refs" / BRANCH

    def entry(self, file: HubFile) -> Path:
        return self.snapshot.joinpath(*file.name.split("/"))

    def shows(self, file: HubFile) -> bool:
        """Whether this commit's snapshot has the file, whole."""
        return _size(self.entry(file)) == file.size

    def has(self, file: HubFile) -> bool:
        """Whether the file is here, whole, if only for another commit."""
        return self.shows(file) or _size(self.blob(file)) == file.size

    def so_far(self, file: HubFile) -> int:
        """Bytes of it that are here, whole or not."""
        return file.size if self.has(file) else max(0, min(_size(self.partial(file)), file.size))

    def prepare(self, file: HubFile) -> None:
        """Make the directories; raises :class:`ModelInvalid` where a link leads one out of the cache."""
        for path in (self.blob(file), self.entry(file), self.lock(file), self.ref):
            path.parent.mkdir(parents=True, exist_ok=True)
            inside = self.root.resolve() / path.parent.relative_to(self.root)
            if path.parent.resolve() != inside:
                raise ModelInvalid(
                    f"{path.parent} leads out of the cache", "Remove that link, then try again."
                )

    def show(self, file: HubFile) -> None:
        """Let the snapshot have a file whose blob is here."""
        entry, blob = self.entry(file), self.blob(file)
        if self.shows(file):
            return
        entry.unlink(missing_ok=True)
        try:
            entry.symlink_to(os.path.relpath(blob, entry.parent))
        except (OSError, NotImplementedError):
            os.replace(blob, entry)  # a disk without links: the library, too, has the file itself there

    def show_all(self) -> None:
        """This commit is what its branch is at, for every program that asks for the branch."""
        scratch = self.ref.with_name(f".{BRANCH}.{os.getpid()}")
        scratch.write_text(self.commit)
        os.replace(scratch, self.ref)


def _size(path: Path) -> int:
    """Bytes of a file; less than nothing where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
