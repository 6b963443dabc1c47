"""Measure everything that localspec promises of its speed, and judge it by the goals.

    python -m assets.bench.acceptance [the flags of `localspec bench`]

It is `localspec bench` with three more workloads, `warm-restart`, `two-up` and `sweep`, the overhead with a
large vocabulary, and the goals.
"""

from __future__ import annotations

import sys

from assets.bench.acceptance.bench import AcceptanceBench
from assets.bench.acceptance.output import lines_of, page_of
from localspec.cli.app import app
from localspec.cli.bench import NO_FLAGS, BenchFlags, Output, measured
from localspec.cli.main import main


@app.command(help="Measure as `localspec bench`, and judge the goals of localspec.")
def acceptance(*, flags: BenchFlags = NO_FLAGS) -> int:
    """Return the exit code."""
    return measured(flags, AcceptanceBench, Output(lines_of, page_of))


if __name__ == "__main__":
    main(["acceptance", *sys.argv[1:]])
