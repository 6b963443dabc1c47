"""The default model at its first use: downloaded where the user agrees, otherwise the bundled one answers."""

from __future__ import annotations

from localspec.cli import asking, output
from localspec.errors import LocalspecError
from localspec.hub.default import LARGER, LATER, QUESTION, WANTED, Missing, missing
from localspec.models.catalogue import DEFAULT
from localspec.protocol.options import Options


def prepare(options: Options, *, yes: bool = False, quiet: bool = False) -> None:
    """Download the default model if these options need it and it is not here.

    ``yes``: without a question; ``quiet``: no question, as a program reads the output. Where it cannot be
    downloaded, one line says why, and the bundled model answers.
    """
    wanted = missing(options, yes=yes)
    if wanted is None or not (wanted.agreed or _agrees(wanted, quiet=quiet)):
        return
    from localspec.cli.pull import fetch

    try:
        wanted.obtain(fetch)
    except LocalspecError as error:
        output.note(f"localspec: the bundled model answers: {error.message}.")
        return
    output.note(LARGER)


def _agrees(wanted: Missing, *, quiet: bool) -> bool:
    """Ask once; where no question is possible, print the command."""
    if quiet or not asking.is_possible():
        output.note(f"localspec: the {WANTED} is not here; to get it: localspec models pull {DEFAULT}")
        return False
    if asking.agrees(QUESTION, otherwise=True):
        return True
    wanted.decline()
    output.note(LATER)
    return False
