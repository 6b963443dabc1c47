"""Planning and carrying out the download of a model from the hub."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from localspec.errors import DiskFull, HubDenied, ModelError, ModelInvalid
from localspec.hub import drafts, records
from localspec.hub.cache import Place
from localspec.hub.choice import FOR_DRAFTS, Choice, Wanted, choose
from localspec.hub.download import Progress, download
from localspec.hub.listing import HubFile, read_listing
from localspec.hub.records import Pulled
from localspec.models.fit import free_memory
from localspec.models.model import model_at
from localspec.models.names import PREFERRED
from localspec.models.stores.store import User, hub_cache
from localspec.units import MB, size


class Plan(NamedTuple):
    """A chosen model, and its place in the cache."""

    choice: Choice
    place: Place

    @property
    def so_far(self) -> int:
        return sum(self.place.so_far(file) for file in self.choice.files)

    @property
    def missing(self) -> tuple[HubFile, ...]:
        return tuple(file for file in self.choice.files if not self.place.has(file))

    @property
    def path(self) -> Path:
        """The path for `-m`: the file, the first of its parts, or the directory."""
        return self.place.snapshot if self.choice.format == "mlx" else self.place.entry(self.choice.files[0])


def plan(wanted: Wanted, *, memory_mb: int = 0, preferred: Sequence[str] = PREFERRED) -> Plan:
    """Read the hub's listing and choose; ``memory_mb`` is the memory for all models, 0: all that is free."""
    listing = read_listing(wanted.repo)
    free = free_memory()
    free = min(free, memory_mb * MB) if memory_mb else free
    choice = choose(listing, wanted, free, preferred=preferred)
    return Plan(choice, Place(hub_cache(User.here()).absolute(), listing.repo, listing.commit))


def carry_out(plan: Plan, progress: Progress) -> None:
    """Download the missing files; ``progress`` is called with the number of bytes of the model that are here.

    Raises :class:`DiskFull` before it begins where there is no room, :class:`ModelInvalid` for a complete
    model that cannot be used, and what ``download`` does.
    """
    choice, place = plan
    _check_room(plan)
    done = 0
    for file in choice.files:
        download(place, file, _beside(done, progress), lambda ours: _claim(plan, ours))
        done += file.size
    place.show_all()
    _check_headers(plan)


def _claim(plan: Plan, file: HubFile) -> None:
    """Record a file before its first byte, so that an interrupted download can be removed as well."""
    choice, place = plan
    records.remember(Pulled(choice.name, place.repo, place.commit, str(place.root), choice.format, (file,)))


def find_draft(target: Plan, *, memory_mb: int = 0) -> Plan | None:
    """A small model of the target's format that may draft for it, if the hub has one; raises as ``plan``."""
    for repo in drafts.candidates(target.place.repo):
        with contextlib.suppress(ModelError, HubDenied):
            return plan(Wanted(repo, format=target.choice.format), memory_mb=memory_mb, preferred=FOR_DRAFTS)
    return None


def _beside(done: int, progress: Progress) -> Progress:
    """Progress of one file, reported as that of all: ``done`` bytes are those of the files before it."""
    return lambda here: progress(done + here)


def _check_room(plan: Plan) -> None:
    needed = plan.choice.size - plan.so_far
    root = plan.place.root
    there = next(path for path in (root, *root.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise DiskFull(
            f"{plan.choice.name} needs {size(needed)} more on the disk of {root}; {size(free)} are free",
            "Free some disk space, choose a smaller quantisation, or set HF_HUB_CACHE to another disk.",
        )


def _check_headers(plan: Plan) -> None:
    """Raise :class:`ModelInvalid` if the headers, which native code will read, have a problem."""
    problem = model_at(plan.path).described(plan.choice.name).problem
    if problem is not None:
        raise ModelInvalid(
            f"{plan.choice.name} was downloaded completely, but cannot be used: {problem}",
            f"Choose another model; `localspec models rm {plan.choice.name}` removes this one.",
        )
