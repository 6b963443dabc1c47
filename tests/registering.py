"""Adds the proposer that CONTRIBUTING shows, and prints where it is then found, as JSON.

A process of its own: the options' types are made from the registry when they are imported.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

from localspec.protocol import proposer_kinds

ROOT = Path(__file__).parents[1]


def steps() -> list[str]:
    """The code of CONTRIBUTING's section."""
    section = (
        (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## Adding a proposer\n")[1].split("\n## ")[0]
    )
    return [textwrap.dedent(code) for code in re.findall(r" *```python\n(.*?) *```\n", section, re.DOTALL)]


def add(proposer: str, factory: str, entry: str) -> None:
    """Do what the three steps say."""
    exec(entry, vars(proposer_kinds))
    from localspec.engine import proposers

    parrot = sys.modules["localspec.speculation.parrot"] = ModuleType("localspec.speculation.parrot")
    exec(proposer, vars(parrot))
    exec(factory, vars(proposers))


def found() -> dict[str, object]:
    """Return the places that name the proposer, and its statistics in a generation on a toy model."""
    from localspec.bench.simulate import SIMULATED
    from localspec.cli.main import run
    from localspec.daemon.metrics import Metrics, label_of
    from localspec.http.gate import PROPOSERS
    from localspec.protocol.options import Options, choices
    from localspec.tui.commands import PROPOSERS as CHOICES
    from localspec.tui.widgets.status import NAMES
    from tests.toys import scripted, toy_engine
    from tests.tui.looks import LOOK

    help = io.StringIO()
    with contextlib.redirect_stdout(help):
        run(["run", "--help"])
    engine = toy_engine(scripted(b"ab" + b"c" * 60))
    said: dict[str, Any] = {"temperature": 0.0, "k": 4, "max_tokens": 40}
    result = engine.generate("ab", **said, proposer="parrot").finish()
    plain = engine.generate("ab", **said, proposer="none").finish()
    auto = engine.generate("ab", **said, proposer="auto").finish()
    metrics = Metrics()
    metrics.count_result(result)
    colours = [style.color.name for style in LOOK.sources.values() if style.color is not None]
    return {
        "choices": choices(Options, "proposer"),
        "help": help.getvalue(),
        "accepted": result.stats.proposers["parrot"].accepted,
        "same text": result.text == plain.text == auto.text,
        "label": label_of("parrot"),
        "metric": metrics.totals()['localspec_accepted_tokens_total{proposer="parrot"}'],
        "unauthenticated": PROPOSERS,
        "colours": dict(zip(LOOK.sources, colours, strict=True)),
        "dialog": CHOICES,
        "legend": NAMES,
        "simulated": SIMULATED,
    }


if __name__ == "__main__":
    add(*steps())
    print(json.dumps(found()))
