"""The styles of a theme, and text in them, for content that is painted line by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.color import Color as RichColor
from rich.padding import Padding
from rich.style import Style
from rich.text import Text
from rich.theme import Theme
from textual.app import App
from textual.color import Color

from localspec.protocol.options import GRAMMAR, KINDS

SOURCES = {"target": "foreground", **{kind.name: kind.colour for kind in (*KINDS, GRAMMAR)}}
"""colours of tokens by source: a name of the theme's colours, and degrees of hue to turn it by"""
LIGHTNESS, SATURATION = {True: 0.68, False: 0.3}, 0.5
"""of these colours, on dark and on light: the theme's own may be hard to read or to tell apart"""
MARKS = {"target": Style.null(), **{kind.name: Style.parse(kind.mark) for kind in (*KINDS, GRAMMAR)}}
"""styles by source for terminals without colours"""
TAB = 4
Piece = tuple[str, Style]


@dataclass(frozen=True)
class Look:
    """The styles of a theme; :attr:`base` lies under all others."""

    base: Style
    muted: Style
    error: Style
    bar: Style
    """of the bar before a question"""
    chosen: Style
    """of the mark before the message that keys act on"""
    question: Style
    plain_code: Style
    code_theme: str
    markdown: Theme
    sources: Mapping[str, Style]

    @classmethod
    def read_app(cls, app: App[Any]) -> Look:
        plain = app.no_color or app.console.color_system is None
        return cls.of(dark=app.current_theme.dark, colours=app.theme_variables, plain=plain)

    @classmethod
    def of(cls, *, dark: bool, colours: Mapping[str, str], plain: bool = False) -> Look:
        """The look of a theme; ``colours`` are its variables; ``plain``: the terminal shows no colours."""
        background = Color.parse(colours["background"])

        def style(name: str, share: float = 1.0, *, bold: bool | None = None) -> Style:
            colour = background.blend(Color.parse(colours[name]), share)
            return Style(color=RichColor.parse(colour.hex6), bold=bold)

        base = style("foreground") + Style(bgcolor=background.hex6)
        muted = style("foreground", 0.55)
        code_background = background.blend(Color.parse(colours["foreground"]), 0.06).hex6
        parts = {
            "h1 h2 h3 h4 h5 h6 table.header": style("primary", bold=True),
            "code": style("accent") + Style(bgcolor=code_background),
            "item.bullet item.number": style("primary"),
            "link link_url": style("primary") + Style(underline=True),
            "block_quote hr table.border": muted,
        }
        return cls(
            base=base,
            muted=muted,
            error=style("error"),
            bar=style("primary"),
            chosen=style("accent", bold=True),
            question=style("foreground", bold=True),
            plain_code=style("foreground") + Style(bgcolor=code_background),
            code_theme="github-dark" if dark else "friendly",
            markdown=Theme({f"markdown.{n}": each for names, each in parts.items() for n in names.split()}),
            sources=_sources(colours, dark=dark, plain=plain),
        )


def _sources(colours: Mapping[str, str], *, dark: bool, plain: bool) -> dict[str, Style]:
    """The styles of tokens by source: hues of the theme, of one lightness."""
    found = {}
    for source, said in SOURCES.items():
        name, _, turn = said.partition("+")
        colour = Color.parse(colours[name])
        if source != "target":
            hue, saturation, _ = colour.hsl
            hue = (hue + float(turn or 0) / 360) % 1
            colour = Color.from_hsl(hue, max(saturation, SATURATION), LIGHTNESS[dark])
        mark = MARKS[source] if plain else Style.null()
        found[source] = Style(color=RichColor.parse(colour.hex6)) + mark
    return found


def join(pieces: Iterable[Piece]) -> Text:
    """Text in styled pieces, none of which is cut off: too long words are broken."""
    return Text.assemble(*pieces, overflow="fold", tab_size=TAB)


def code(text: Text, look: Look) -> Padding:
    return Padding(text, (0, 1), style=look.plain_code)
