"""``localspec models pair``: which draft model a target is paired with, and why not with the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from localspec.cli import output
from localspec.cli.daemon import MEGABYTE
from localspec.cli.flags import ModelFlags, absolute
from localspec.errors import ExitCode

if TYPE_CHECKING:
    from localspec.models.candidates import Candidate

HEADER = ("", "draft", "vocabulary", "smaller", "memory", "right", "gain", "why")


def pair(
    model: str | None = None,
    /,
    *,
    n_ctx: int | None = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Every model on this disk as a draft for one target: what `--draft auto` chooses, marked *, and why not
    the others.

    Parameters
    ----------
    model
        A name of `localspec models list`, or a path; otherwise the configured one.
    n_ctx
        Tokens of context that both are to have room for, instead of the configured n_ctx.
    as_json
        Print one JSON object.
    """
    from localspec.engine.choice import choose
    from localspec.engine.load import room_for, speed_of
    from localspec.models.candidates import chosen, judged
    from localspec.models.catalogue import model_name, place_of
    from localspec.models.sections import Sections

    config = ModelFlags(opt=() if n_ctx is None else (f"n_ctx={n_ctx}",)).config()
    sections = Sections(config)
    said = sections.merged(ModelFlags(model=None if model is None else absolute(model)).options())
    name, backend = said.model or "bundled", said.backend or "auto"
    target = choose(name, "none", config.model_dirs, backend=backend, speed=speed_of).target
    found = list(judged(target, config.model_dirs, room_for(sections.engine(name))))
    draft, reason = chosen(target, found)
    found.sort(key=lambda each: (not each.helps, each.verdict == "refused"))
    place = "" if draft is None else place_of(draft)
    facts = [_facts(each) | {"chosen": place_of(Path(each.model.path)) == place} for each in found]
    if as_json:
        told = {"target": model_name(target), "path": place_of(target), "reason": reason}
        output.json(told | {"draft": None if draft is None else model_name(draft), "candidates": facts})
        return ExitCode.OK
    if facts:
        output.table([HEADER, *map(_cells, facts)])
    output.write(f"{model_name(target)}: {reason}\n")
    return ExitCode.OK


def _facts(candidate: Candidate) -> dict[str, Any]:
    model, tried = candidate.model, candidate.tried
    return {
        "id": model.id,
        "path": model.path,
        "format": model.format,
        "verdict": candidate.verdict,
        "helps": candidate.helps,
        "ratio": round(candidate.ratio, 2),
        "same_family": candidate.same_family,
        "needs_bytes": candidate.needs,
        "drafted": tried.drafted,
        "accepted": tried.accepted,
        "gain": tried.gain,
        "reason": candidate.reason,
    }


def _cells(facts: dict[str, Any]) -> tuple[str, ...]:
    needs, drafted, gain = facts["needs_bytes"], facts["drafted"], facts["gain"]
    return (
        "*" if facts["chosen"] else " ",
        facts["id"],
        facts["verdict"],
        f"{facts['ratio']:.3g}x",
        "-" if needs is None else f"{needs / MEGABYTE:.0f} MB",
        f"{facts['accepted'] / drafted:.0%} of {drafted}" if drafted else "-",
        "-" if gain is None else f"{gain:.2f}x",
        facts["reason"],
    )
