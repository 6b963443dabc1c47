"""A plot of a benchmark's results, as an SVG image."""

from __future__ import annotations

from xml.sax.saxutils import escape

from localspec.bench.run import Results

WIDTH, LEFT, ROW, TOP = 720, 190, 34, 64
"""pixels: of the plot, of its names, of a row, and above the first row"""
STYLE = "text{font:13px sans-serif;fill:#333}.title{font-weight:bold}.bar{fill:#4c78a8}.slower{fill:#c44}"
"""colours and type of the plot"""


def svg_of(results: Results) -> str:
    """A bar for each workload's ratio to plain decoding, with a mark at its worst run."""
    longest = max([1.25, *(figure.ratio for figure in results.figures)])
    scale = (WIDTH - LEFT - 70) / longest
    height = TOP + ROW * len(results.figures) + 30
    title = f"{results.model}: {results.proposer} against plain decoding"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text class="title" x="10" y="22">{escape(title)}</text>',
        f'<text x="10" y="42">{escape(results.machine)}; the mark is the worst run</text>',
    ]
    for number, figure in enumerate(results.figures):
        y, length, worst = TOP + ROW * number, figure.ratio * scale, LEFT + figure.worst * scale
        name = figure.workload + f" ({figure.machines} machines)" * (figure.machines > 1)
        kind = "bar" if figure.ratio >= 1 else "slower"
        parts += [
            f'<text x="{LEFT - 10}" y="{y + 18}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{y + 4}" width="{length:.1f}" height="20"/>',
            f'<path d="M{worst:.1f} {y}v28" stroke="#333" stroke-width="2"/>',
            f'<text x="{LEFT + length + 8:.1f}" y="{y + 18}">{figure.ratio:.2f}x</text>',
        ]
    plain, end = LEFT + scale, height - 24
    parts += [
        f'<path d="M{plain:.1f} {TOP - 6}V{end}" stroke="#333" stroke-dasharray="4 3"/>',
        f'<text x="{plain:.1f}" y="{height - 8}" text-anchor="middle">plain</text>',
        "</svg>\n",
    ]
    return "\n".join(parts)
