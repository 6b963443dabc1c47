"""Small benchmark documents, made by hand."""

from __future__ import annotations

from typing import Any, TypeVar

from assets.bench.acceptance.goals import goals_of
from assets.bench.acceptance.results import AcceptanceResults
from localspec.bench.contestant import own_contestants
from localspec.bench.figures import figures_of
from localspec.bench.results import Machine, Model, Results, Run, Setting

R = TypeVar("R", bound=Results)


def run(contestant: str = "none", *, tokens: int = 101, **fields: Any) -> Run:
    """A run of one request of ``edit-short``."""
    values: dict[str, Any] = {
        "workload": "edit-short",
        "case": "case",
        "turn": 0,
        "repeat": 0,
        "prompt_tokens": 50,
        "text_hash": "same",
        "ttft_s": 0.1,
        "decode_s": 1.0,
        "total_s": 1.1,
    }
    return Run(contestant=contestant, completion_tokens=tokens, **(values | fields))


def document(runs: list[Run], **fields: Any) -> Results:
    """A document with these runs; what follows from them is not computed yet."""
    return Results(**_values(runs, fields))


def acceptance(runs: list[Run], **fields: Any) -> AcceptanceResults:
    """The same of an acceptance run."""
    return AcceptanceResults(**_values(runs, fields))


def _values(runs: list[Run], fields: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "started": "2026-01-01T00:00:00+00:00",
        "machine": Machine("a CPU", 2, 8 * 1024**3, "Linux", 0, {"localspec": "0.1.0"}),
        "models": [Model("target", "stdlib-6m", 1, "Q8_0", 6_000_000, "0" * 16, "0" * 64)],
        "setting": Setting(5, False, tuple(dict.fromkeys(r.workload for r in runs)), 2048),
        "contestants": own_contestants(["draft"]),
        "runs": runs,
    }
    return values | fields


def concluded(results: R) -> R:
    """With figures."""
    results.figures = figures_of(results)
    return results


def judged(results: AcceptanceResults) -> AcceptanceResults:
    """With figures and goals."""
    results.goals = goals_of(concluded(results))
    return results
