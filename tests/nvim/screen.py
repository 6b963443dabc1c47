"""The grid of an attached screen of Neovim, cell by cell with its highlight groups."""

from __future__ import annotations

from typing import Any, NamedTuple


class Cell(NamedTuple):
    """A character; ``groups`` are the highlight groups that are combined there, if Neovim reports them."""

    text: str
    groups: frozenset[str]


class Screen:
    def __init__(self, columns: int, rows: int) -> None:
        self._groups: dict[int, frozenset[str]] = {}
        self.cursor = (0, 0)
        self._on_grid_resize(1, columns, rows)

    def redraw(self, events: list[Any]) -> None:
        for name, *calls in events:
            taker = getattr(self, f"_on_{name}", None)
            if taker is not None:
                for call in calls:
                    taker(*call)

    def _on_grid_resize(self, _grid: int, columns: int, rows: int) -> None:
        self._size = columns, rows
        self._on_grid_clear(_grid)

    def _on_hl_attr_define(self, id: int, _colours: Any, _: Any, info: list[Any]) -> None:
        names = {item.get("hi_name", "") for item in info} | {item.get("ui_name", "") for item in info}
        self._groups[id] = frozenset(names)

    def _on_grid_clear(self, _grid: int) -> None:
        columns, rows = self._size
        self._cells = [[Cell(" ", frozenset())] * columns for _ in range(rows)]

    def _on_grid_line(self, _grid: int, row: int, column: int, cells: list[list[Any]], *_: Any) -> None:
        groups: frozenset[str] = frozenset()
        for text, *more in cells:
            if more:
                groups = self._groups.get(more[0], frozenset())
            for _repeated in range(more[1] if len(more) > 1 else 1):
                self._cells[row][column] = Cell(text, groups)
                column += 1

    def _on_grid_cursor_goto(self, _grid: int, row: int, column: int) -> None:
        self.cursor = row, column

    def _on_grid_scroll(
        self, _grid: int, top: int, bottom: int, left: int, right: int, rows: int, *_: Any
    ) -> None:
        span = range(top, bottom) if rows > 0 else range(bottom - 1, top - 1, -1)
        for row in span:
            if top <= row + rows < bottom:
                self._cells[row][left:right] = self._cells[row + rows][left:right]

    def lines(self) -> list[str]:
        return ["".join(cell.text for cell in row).rstrip() for row in self._cells]

    def drawn_as(self, groups: frozenset[str]) -> list[str]:
        """Of every row that has some, the text that is drawn in one of these highlight groups."""
        rows = ["".join(cell.text for cell in row if groups & cell.groups) for row in self._cells]
        return [row for row in rows if row]
