"""The memory that the default pair needs, and the n-gram memory on the disk."""

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
SMALL_CONTEXT = 2048


def machine(
    free: int, total: int, pair: str = "", needs: Needs | None = None, room: int = 0, n_ctx: int | None = None
) -> Finding:
    """Check the machine's memory. ``needs`` are those of ``pair``; None: unknown, or a device's memory.

    ``room``: bytes that the pair can take, including those of loaded models, at most memory_mb.
    ``n_ctx``: the context of the pair, if known.
    """
    sentence = f"{size(free)} of {size(total)} of memory are free"
    if needs is not None and needs.total > room:
        sentence += f"; {pair} needs {size(needs.total)}, of which {size(room)} are available"
        smaller = "a smaller model (`localspec config set model NAME`)"
        if n_ctx is None or n_ctx > SMALL_CONTEXT:
            smaller = f"a smaller context (`localspec config set n_ctx {SMALL_CONTEXT}`) or {smaller}"
        step = f"Close other programs, or use {smaller}."
        return Finding("memory", "warning", f"{sentence}.", step)
    if free < LOW:
        step = "Close other programs, or free what is loaded: `localspec models unload`."
        return Finding("memory", "warning", f"{sentence}.", step)
    fits = f"; {pair} fits: {size(needs.total)}" if needs is not None else ""
    return Finding("memory", "ok", f"{sentence}{fits}.")


def ngrams(folder: Path, wanted: bool) -> Iterator[Finding]:
    """Check the tables of the n-gram memory; ``wanted``: it is enabled."""
    if folder.exists() and not folder.is_dir():
        yield Finding(
            "ngrams",
            "problem",
            f"{folder} is not a directory.",
            f"Remove it: `rm {shlex.quote(str(folder))}`",
        )
        return
    tables = sorted(folder.glob("*/*.ngm"))
    broken = {path: why for path in tables if (why := _trouble(path))}
    if broken:
        reasons = some(f"{path} ({why})" for path, why in broken.items())
        remedy = (
            f"Delete it, and it is learned anew: `rm {' '.join(shlex.quote(str(path)) for path in broken)}`"
        )
        yield Finding("ngrams", "warning", f"N-gram memory that cannot be used: {reasons}.", remedy)
    aside = sorted(folder.glob("*/*.quarantine-*"))
    if aside:
        sentence = f"N-gram memory that was set aside as broken: {some(map(str, aside))}."
        remedy = f"It is not used any more: `rm {' '.join(shlex.quote(str(path)) for path in aside)}`"
        yield Finding("ngrams", "warning", sentence, remedy)
    if not (broken or aside):
        yield Finding("ngrams", "ok", _sound(tables, wanted))


def _sound(tables: list[Path], wanted: bool) -> str:
    if not wanted:
        return "The n-gram memory is off, as engine.memory says."
    if not tables:
        return "No n-grams are stored yet."
    total = sum(path.stat().st_size for path in tables)
    return f"{len(tables)} table{'s' * (len(tables) > 1)} of n-grams, {size(total)}, sound."


def _trouble(path: Path) -> str:
    """The reason why a table cannot be used; empty if it can."""
    # Its package imports numpy: late, so that a broken numpy does not keep the doctor from starting.
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
