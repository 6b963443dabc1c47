"""The default model at its first use: what is asked for, its download, and the refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from localspec.config import change, load_config
from localspec.models.catalogue import CATALOGUE, DEFAULT
from localspec.protocol.options import Options
from localspec.wording import size

WANTED = f"default model, {DEFAULT} ({size(CATALOGUE[DEFAULT].size)}),"
QUESTION = f"The {WANTED} is not here. Download it?"
LARGER = "For a larger model that fits this machine, and its draft model: localspec models pull"
TOY = f"the {WANTED} is not here, and a toy answers; to get it: localspec models pull {DEFAULT}"
LATER = f"Not asked again: {TOY}"
Progress = Callable[[float], None]


class MissingModel(NamedTuple):
    """A model of the catalogue that is not here; ``agreed`` or ``refused``: without a question."""

    agreed: bool = False
    name: str = DEFAULT
    refused: bool = False

    def obtain(self, fetch: Callable[..., None] | None = None, progress: Progress = lambda _: None) -> None:
        """Download it: ``fetch`` carries out a plan; without one ``progress`` is called with the share done.
        Raises :class:`LocalspecError`."""
        from localspec.hub.pull import carry_out, from_index, obtain

        fetch = fetch or (lambda plan, *why: carry_out(plan, lambda n: progress(n / plan.size)))
        obtain(from_index(CATALOGUE[self.name]), fetch)

    def decline(self) -> None:
        """Never ask again."""
        change(("auto_pull",), "off")


def missing(options: Options, *, yes: bool = False) -> MissingModel | None:
    """The default model, if these options need it and it is not here; ``yes``: without a question."""
    from localspec.models.library import Sections  # loads the lookup of models

    config = load_config()
    pull = "yes" if yes and config.auto_pull != "off" else config.auto_pull
    lacks = Sections(config).lacks_default(options)
    return MissingModel(pull == "yes", refused=pull == "off") if lacks else None
