"""Memory: what the default pair needs of this machine's, and what was learned of texts, on the disk."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from localspec.doctor.finding import Finding, some
from localspec.errors import LocalspecError
from localspec.models.fit import Needs
from localspec.units import MB, size

LOW = 512 * MB


def machine(free: int, total: int, pair: str = "", needs: Needs | None = None, room: int = 0) -> Finding:
    """``needs`` are those of ``pair``; None: not known, or of a device's memory, which its driver tells.

    ``room`` is what it may take: loaded models make room for others, and memory_mb is a limit.
    """
    told = f"{size(free)} of {size(total)} of memory are free"
    if needs is not None and needs.total > room:
        told += f"; {pair} needs {size(needs.total)}, and may take {size(room)}"
        step = (
            "Close other programs, or take a smaller context (`localspec config set n_ctx 2048`) or a "
            "smaller model (`localspec config set model NAME`)."
        )
        return Finding("memory", "warning", f"{told}.", step)
    if free < LOW:
        step = "Close other programs, or free what is loaded: `localspec models unload`."
        return Finding("memory", "warning", f"{told}.", step)
    fits = f"; {pair} fits: {size(needs.total)}" if needs is not None else ""
    return Finding("memory", "ok", f"{told}{fits}.")


def ngrams(folder: Path, wanted: bool) -> Iterator[Finding]:
    """The tables of the n-gram memory; ``wanted`` says whether it is used at all."""
    if folder.exists() and not folder.is_dir():
        yield Finding(
            "ngrams", "problem", f"{folder} is no directory.", f"Remove it: rm {shlex.quote(str(folder))}"
        )
        return
    tables = sorted(folder.glob("*/*.ngm"))
    spoilt = {path: why for path in tables if (why := _trouble(path))}
    if spoilt:
        reasons = some(f"{path} ({why})" for path, why in spoilt.items())
        remedy = f"It is learned anew after rm {' '.join(shlex.quote(str(path)) for path in spoilt)}"
        yield Finding("ngrams", "warning", f"N-gram memory that cannot be used: {reasons}.", remedy)
    aside = sorted(folder.glob("*/*.quarantine-*"))
    if aside:
        told = f"N-gram memory that was set aside as broken: {some(map(str, aside))}."
        remedy = f"Nothing needs it: rm {' '.join(shlex.quote(str(path)) for path in aside)}"
        yield Finding("ngrams", "warning", told, remedy)
    if not (spoilt or aside):
        yield Finding("ngrams", "ok", _sound(tables, wanted))


def _sound(tables: list[Path], wanted: bool) -> str:
    if not wanted:
        return "The n-gram memory is off, as engine.memory says."
    if not tables:
        return "No n-grams are remembered yet."
    total = sum(path.stat().st_size for path in tables)
    return f"{len(tables)} table{'s' * (len(tables) > 1)} of n-grams, {size(total)}, sound."


def _trouble(path: Path) -> str:
    """Why a table cannot be used; empty: nothing is known against it."""
    # With its package numpy is loaded: late, so that it cannot keep the doctor from starting.
    from localspec.memory.header import HEADER_BYTES, read_header

    try:
        with path.open("rb") as file:
            read_header(file.read(HEADER_BYTES), os.fstat(file.fileno()).st_size)
    except FileNotFoundError:  # a larger one has just taken its place
        return ""
    except OSError as error:
        return str(error.strerror)
    except LocalspecError as error:
        return error.message
    return "" if os.access(path, os.W_OK) else "it cannot be written"
