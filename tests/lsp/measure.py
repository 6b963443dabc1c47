"""From a keystroke to its answer, through the language server."""

from __future__ import annotations

import time

from assets.bench.keystrokes import file_of
from tests.editors.keystroke import Keystroke
from tests.lsp.editor import AUTOMATIC, Editor, editing

URI = "file:///typed.py"


async def measure(count: int) -> list[Keystroke]:
    """Type letter by letter, each once the one before was answered, until so many were answered with text.

    Not counted is the first one, which waits for the model to be loaded.
    """
    found: list[Keystroke] = []
    file = file_of(50 * count)
    async with editing() as editor:
        editor.open(URI, file.before)
        row, column = file.before.count("\n"), 0
        for letter in file.typed:
            stroke = await _type(editor, (row, column), letter)
            row, column = (row + 1, 0) if letter == "\n" else (row, column + 1)
            if stroke is not None:
                found.append(stroke)
            if len(found) == count + 1:
                return found[1:]
    raise AssertionError(f"{len(found)} of {len(file.typed)} keystrokes were answered with text")


async def _type(editor: Editor, place: tuple[int, int], letter: str) -> Keystroke | None:
    row, column = place
    behind = (row + 1, 0) if letter == "\n" else (row, column + 1)
    began = time.perf_counter()
    editor.change(URI, place, place, letter)
    items = await editor.complete(URI, behind, trigger=AUTOMATIC)
    whole = 1000 * (time.perf_counter() - began)
    timings = (await editor.do("localspec.showStats"))["timings"]
    return Keystroke(whole, timings[-1][1]) if items else None
