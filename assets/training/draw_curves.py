"""The curves of a training run: the loss and every ability's figures over the tokens seen.

python -m assets.training.draw_curves --curve W.curve.jsonl --evaluations E.jsonl --out curves.png
"""

import argparse
import json
from pathlib import Path
from typing import Any

SHOWN = {"questions": "first_sentence", "unknown": "refused", "middles": "line"}  # else "exact"
SMOOTHING = 5  # points of the curve


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file; none where it is missing."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def losses_by_tokens(points: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Millions of tokens seen and losses; a point repeated after a resume counts once."""
    by_tokens = {point["tokens"]: point["loss"] for point in points}
    return [tokens / 1e6 for tokens in sorted(by_tokens)], [by_tokens[tokens] for tokens in sorted(by_tokens)]


def figure_of(name: str, figures: dict[str, Any]) -> float:
    """The figure that an ability is judged by."""
    return float(figures[SHOWN.get(name, "exact")])


def draw(points: list[dict[str, Any]], evaluations: list[dict[str, Any]], out: Path) -> None:
    """Write the picture: loss on top, abilities below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tokens, losses = losses_by_tokens(points)
    figure, (top, bottom) = pyplot.subplots(2, 1, figsize=(9, 8), sharex=True)
    smooth = [
        sum(losses[max(0, i - SMOOTHING + 1) : i + 1]) / min(i + 1, SMOOTHING) for i in range(len(losses))
    ]
    top.plot(tokens, smooth)
    top.set_ylabel("loss of taught tokens, nats")
    names = sorted({name for each in evaluations for name in each if isinstance(each[name], dict)})
    for name in names:
        having = [each for each in evaluations if name in each]
        bottom.plot(
            [each["tokens"] / 1e6 for each in having],
            [figure_of(name, each[name]) for each in having],
            "o-",
            label=name,
        )
    bottom.set_ylabel("share right")
    bottom.set_ylim(0, 1.02)
    bottom.set_xlabel("million tokens")
    if names:
        bottom.legend(fontsize=8)
    for axis in (top, bottom):
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(out, dpi=110)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Draw the curves of a training run.")
    parser.add_argument("--curve", type=Path, required=True, help="the run's .curve.jsonl")
    parser.add_argument("--evaluations", type=Path, required=True, help="the log of evaluate")
    parser.add_argument("--out", type=Path, required=True, help="the picture to write")
    arguments = parser.parse_args()
    draw(read_lines(arguments.curve), read_lines(arguments.evaluations), arguments.out)


if __name__ == "__main__":
    main()
