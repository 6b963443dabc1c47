"""Colours that can be read and distinguished, whatever the theme."""

from __future__ import annotations

from itertools import combinations

import pytest
from textual.color import Color, rgb_to_lab
from textual.theme import BUILTIN_THEMES, Theme

from localspec.tui.look import SOURCES, Look

THEMES = [theme for theme in BUILTIN_THEMES.values() if not theme.ansi]


def luminance(colour: Color) -> float:
    """As the Web Content Accessibility Guidelines define it."""
    linear = [
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4
        for v in (colour.r / 255, colour.g / 255, colour.b / 255)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Color, other: Color) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def distance(one: Color, other: Color) -> float:
    return float(sum((a - b) ** 2 for a, b in zip(rgb_to_lab(one), rgb_to_lab(other), strict=True)) ** 0.5)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_sources_are_read_and_distinguished(theme: Theme) -> None:
    colours = theme.to_color_system().generate()
    look = Look.of(dark=theme.dark, colours=colours)
    sources = [Color.parse(style.color.name) for style in look.sources.values() if style.color is not None]
    assert len(sources) == len(SOURCES)
    assert all(contrast(colour, Color.parse(colours["background"])) >= 2.8 for colour in sources)
    near = [(one.hex, other.hex) for one, other in combinations(sources, 2) if distance(one, other) < 20]
    assert near == [], "turn the colour of one by other degrees of hue, in KINDS of protocol/options.py"
