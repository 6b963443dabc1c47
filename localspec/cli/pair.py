"""``localspec models pair``: the draft model chosen for a target, and the reasons against the others."""

from __future__ import annotations

from typing import Any

from localspec.cli import output
from localspec.cli.flags import AsJson, ModelFlags, ModelName
from localspec.config import load_config
from localspec.engine.load import choose_here, room_for
from localspec.errors import ExitCode
from localspec.models.index import read_disk
from localspec.models.library import Sections
from localspec.models.model import Model
from localspec.models.pair import Candidate, choose_draft, judge_candidates
from localspec.wording import count_noun, one_line, size

HEADER = ("", "draft", "vocabulary", "smaller", "memory", "accepted", "time saved", "why")
STYLES = {"exact": "green", "compatible": "yellow", "refused": "red"}
"""colours of verdicts"""


def pair(model: ModelName = None, *, as_json: AsJson = False) -> int:
    """Show which draft model is chosen for a model, and why the others are not.

    The one that `--draft auto` would choose is marked *.

    Parameters
    ----------
    model
        A name of `localspec models list`, or a path; otherwise the configured one.
    """
    target, found = _judge_candidates(model)
    draft, reason = choose_draft(target, found)
    found.sort(key=lambda each: (not each.helps, each.verdict == "refused"))
    place = "" if draft is None else draft.place
    facts = [_facts(each) | {"chosen": each.model.place == place} for each in found]
    if as_json:
        pairing = {"target": target.name, "path": target.place, "reason": reason}
        output.json(pairing | {"draft": None if draft is None else draft.name, "candidates": facts})
        return ExitCode.OK
    usable = [each for each, of in zip(facts, found, strict=True) if of.model.problem is None]
    if usable:
        output.table(HEADER, [*map(_cells, usable)], numbers=range(3, 7), wrapped=(1, 7), styles=STYLES)
    if broken := len(facts) - len(usable):
        broken_models = f"{count_noun(broken, 'model')} cannot be used"
        output.write(f"{broken_models}: see `localspec models list`\n")
    output.write(one_line(f"{target.name}: {reason}") + "\n")
    return ExitCode.OK


def _judge_candidates(model: str | None) -> tuple[Model, list[Candidate]]:
    """The target, and all other models as its candidates; raises :class:`ModelError`."""
    config = load_config()
    sections = Sections(config)
    with output.progressing("reading the models on this disk") as progress:
        number = len(read_disk(config.model_dirs).models)
        options = sections.merge_options(ModelFlags(model=model).options())
        name, backend = options.model or "bundled", options.backend or "auto"
        target = choose_here(name, "none", config.model_dirs, backend=backend).target
        found: list[Candidate] = []
        for candidate in judge_candidates(target, config.model_dirs, room_for(sections.engine(name))):
            found.append(candidate)
            progress("comparing vocabularies", len(found) / max(number, len(found)))
    return target, found


def _facts(candidate: Candidate) -> dict[str, Any]:
    model, tried = candidate.model.description, candidate.tried
    return {
        "name": candidate.model.name,
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
        "gain": tried.gain if tried.is_known else None,
        "reason": candidate.reason,
    }


def _cells(facts: dict[str, Any]) -> tuple[str, ...]:
    needs, drafted, gain = facts["needs_bytes"], facts["drafted"], facts["gain"]
    return (
        "*" if facts["chosen"] else " ",
        facts["name"],
        facts["verdict"],
        f"{facts['ratio']:.3g}x" if facts["ratio"] < 1000 else "-",
        "-" if needs is None else size(needs),
        f"{facts['accepted'] / drafted:.0%} of {drafted}" if drafted else "-",
        "-" if gain is None else f"{1 - 1 / gain:.0%}",
        _why(facts),
    )


def _why(facts: dict[str, Any]) -> str:
    """The reason, without facts of other columns."""
    if facts["helps"]:
        return "same family" if facts["same_family"] else "another family"
    return str(facts["reason"]).removeprefix("it is ").removeprefix("it ")
