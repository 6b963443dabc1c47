"""The time from a key to the ghost text in real editors, and the part of it that is not the daemon's.

    python -m assets.bench.editors [--keystrokes 100] [lsp] [neovim-0.7] [neovim-0.10] [neovim-0.12] [vscode]

The standard library's textwrap is typed in each of the editors that `make editors` has installed, on the
bundled pair, and the keystrokes that were answered with text are timed from the key to the text that is
drawn (through the language server: to its answer). The daemon reports its own time for each answer, with
that of waiting for a pause; the rest is overhead: the editor, the plugin, the transport.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.client.conftest import own_home
from tests.editors.found import NEOVIMS
from tests.editors.keystroke import Keystroke
from tests.lsp.measure import measure as through_lsp
from tests.nvim.measure import measure as in_neovim
from tests.vscode.measure import measure as in_vscode

Measure = Callable[[int], Sequence[Keystroke]]


def lsp(keystrokes: int) -> Sequence[Keystroke]:
    with own_home():
        return asyncio.run(through_lsp(keystrokes))


def vscode(keystrokes: int) -> Sequence[Keystroke]:
    with tempfile.TemporaryDirectory(prefix="ls") as folder:
        return in_vscode(keystrokes, Path(folder))


EDITORS: dict[str, Measure] = {
    "lsp": lsp,
    **{f"neovim-{version}": partial(in_neovim, version) for version in NEOVIMS},
    "vscode": vscode,
}


def table_of(measured: dict[str, Sequence[Keystroke]]) -> Table:
    """Medians and 95th percentiles."""
    table = Table("", "keystrokes", "key to ghost text", "19 of 20", "overhead", "19 of 20", box=None)
    for name, strokes in measured.items():
        whole = sorted(stroke.whole for stroke in strokes)
        over = sorted(stroke.whole - stroke.daemon for stroke in strokes)
        table.add_row(name, str(len(strokes)), *(f"{ms:.1f} ms" for ms in (*_halves(whole), *_halves(over))))
    return table


def _halves(ms: list[float]) -> tuple[float, float]:
    return statistics.median(ms), ms[len(ms) * 19 // 20]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("editors", nargs="*", metavar="EDITOR", help=f"all of {', '.join(EDITORS)}")
    parser.add_argument("--keystrokes", type=int, default=100)
    given = parser.parse_args()
    if unknown := set(given.editors) - set(EDITORS):
        parser.error(f"unknown editors: {', '.join(sorted(unknown))}; choose among {', '.join(EDITORS)}")
    measured: dict[str, Sequence[Keystroke]] = {}
    for name in given.editors or EDITORS:
        print(f"{name} …", file=sys.stderr)
        try:
            measured[name] = EDITORS[name](given.keystrokes)
        except pytest.skip.Exception as missing:
            print(f"{name}: {missing}", file=sys.stderr)
    Console().print(table_of(measured))


if __name__ == "__main__":
    main()
