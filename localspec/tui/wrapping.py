"""Line wrapping of text that grows: breaks before its last words never change."""

from __future__ import annotations

import re

from rich.cells import cell_len, chop_cells

# Leading blanks belong to the first word: code keeps its indentation.
_WORD = re.compile(r"^\s*\S+\s*|\S+\s*")


def breaks(line: str, width: int) -> list[int]:
    """The offsets of line breaks in ``line``; blanks at the end of a line may reach beyond ``width``.

    When the line grows, only words after the last break can be broken differently.
    """
    if len(line) <= width and line.isascii():
        return []
    found: list[int] = []
    column = 0
    for word in _WORD.finditer(line):
        whole = word.group()
        solid = cell_len(whole.rstrip())
        if column and column + solid > width:
            found.append(word.start())
            column = 0
        if solid > width:
            *pieces, last = chop_cells(whole.rstrip(), width)
            offset = word.start()
            for piece in pieces:
                offset += len(piece)
                found.append(offset)
            column = cell_len(last) + cell_len(whole) - solid
        else:
            column += cell_len(whole)
    return found
