"""The default model at its first use: downloaded where the user agrees, otherwise the bundled one answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.cli import asking, output
from localspec.config import change, load_config
from localspec.errors import LocalspecError
from localspec.models.catalogue import CATALOGUE, DEFAULT
from localspec.models.sections import Sections
from localspec.units import size

if TYPE_CHECKING:
    from localspec.protocol.options import Options

WANTED = f"default model, {DEFAULT} ({size(CATALOGUE[DEFAULT].size)}),"
LARGER = "For a larger model that fits this machine, and its draft model: localspec models pull"
LATER = f"Not asked again; to get it later: localspec models pull {DEFAULT}"


def prepare(options: Options, *, yes: bool = False, quiet: bool = False) -> None:
    """Download the default model if these options need it and it is not here.

    ``yes``: without a question; ``quiet``: no question, as a program reads the output. Where it cannot be
    downloaded, one line says why, and the bundled model answers.
    """
    config = load_config()
    if config.auto_pull == "off" or not Sections(config).lacks_default(options):
        return
    if not (yes or config.auto_pull == "yes" or _agrees(quiet=quiet)):
        return
    from localspec.cli.pull import obtain
    from localspec.hub.pull import from_index

    try:
        obtain(from_index(CATALOGUE[DEFAULT]))
    except LocalspecError as error:
        output.note(f"localspec: the bundled model answers: {error.message}.")
        return
    output.note(LARGER)


def _agrees(*, quiet: bool) -> bool:
    """Ask once; where no question is possible, print the command."""
    if quiet or not asking.is_possible():
        output.note(f"localspec: the {WANTED} is not here; to get it: localspec models pull {DEFAULT}")
        return False
    if asking.agrees(f"The {WANTED} is not here. Download it?", otherwise=True):
        return True
    change(("auto_pull",), "off")
    output.note(LATER)
    return False
