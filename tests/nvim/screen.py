"""The grid of an attached screen of Neovim, cell by cell with colours."""

from __future__ import annotations

from typing import Any, NamedTuple


class Look(NamedTuple):
    """The attributes of a cell; ``group`` names the combined highlight groups, if Neovim reports them."""

    foreground: int | None = None
    background: int | None = None
    bold: bool = False
    italic: bool = False
    reverse: bool = False
    groups: frozenset[str] = frozenset()


class Cell(NamedTuple):
    text: str
    look: Look


BLANK = Cell(" ", Look())


class Screen:
    """Kept by the ``redraw`` events of ``ext_linegrid``."""

    def __init__(self, columns: int, rows: int) -> None:
        self._looks: dict[int, Look] = {0: Look()}
        self.foreground, self.background = 0xFFFFFF, 0x000000
        self.cursor = (0, 0)
        self._resize(columns, rows)

    def _resize(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.cells = [[BLANK] * columns for _ in range(rows)]

    def redraw(self, events: list[Any]) -> None:
        """Take the parameters of one ``redraw``."""
        for name, *calls in events:
            taker = getattr(self, f"_on_{name}", None)
            if taker is not None:
                for call in calls:
                    taker(*call)

    def _on_grid_resize(self, _grid: int, columns: int, rows: int) -> None:
        self._resize(columns, rows)

    def _on_default_colors_set(self, foreground: int, background: int, *_: Any) -> None:
        if foreground >= 0:
            self.foreground = foreground
        if background >= 0:
            self.background = background

    def _on_hl_attr_define(self, id: int, colours: dict[str, Any], _: Any, info: list[Any]) -> None:
        names = {item.get("hi_name", "") for item in info} | {item.get("ui_name", "") for item in info}
        self._looks[id] = Look(
            colours.get("foreground"),
            colours.get("background"),
            bool(colours.get("bold")),
            bool(colours.get("italic")),
            bool(colours.get("reverse")),
            frozenset(names),
        )

    def _on_grid_clear(self, _grid: int) -> None:
        self._resize(self.columns, self.rows)

    def _on_grid_line(self, _grid: int, row: int, column: int, cells: list[list[Any]], *_: Any) -> None:
        look = Look()
        for text, *more in cells:
            if more:
                look = self._looks.get(more[0], Look())
            for _repeated in range(more[1] if len(more) > 1 else 1):
                self.cells[row][column] = Cell(text, look)
                column += 1

    def _on_grid_cursor_goto(self, _grid: int, row: int, column: int) -> None:
        self.cursor = row, column

    def _on_grid_scroll(
        self, _grid: int, top: int, bottom: int, left: int, right: int, rows: int, *_: Any
    ) -> None:
        span = range(top, bottom) if rows > 0 else range(bottom - 1, top - 1, -1)
        for row in span:
            if top <= row + rows < bottom:
                self.cells[row][left:right] = self.cells[row + rows][left:right]

    def lines(self) -> list[str]:
        """Return the text of the screen, row by row."""
        return ["".join(cell.text for cell in row).rstrip() for row in self.cells]

    def drawn_as(self, groups: frozenset[str]) -> list[str]:
        """Of every row that has some, the text that is drawn in one of these highlight groups."""
        rows = ["".join(cell.text for cell in row if groups & cell.look.groups) for row in self.cells]
        return [row for row in rows if row]
