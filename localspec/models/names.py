"""Names that can be typed, such as ``qwen2.5-coder:7b``, and which model is meant by one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple

from localspec.protocol.messages import ModelDescription

MILLION = 1_000_000
LONGEST = 300
"""characters of a name that are looked at: more would take time"""
QUANTISATION = re.compile(
    r"(?:^|[-._ ])((?:ud-)?(?:i?q\d\w*|mxfp\d(?:_moe)?|nvfp4|bf16|fp?16|fp?32|\d{1,2}-?bit)(?:-gs\d+|-dwq)?)"
    r"(?=$|[-. ])"
)
SIZE = re.compile(r"(?:^|[-_:. ])((?:\d+x)?e?\d+(?:\.\d+)?[bm](?:-a\d+(?:\.\d+)?b)?)(?=$|[-_. ])")
FLAT = re.compile(r"^[^_]+_.*gguf_(?=.)")
"""what llama.cpp's older cache puts before a file's own name: user and repository"""
FORM = re.compile(r"[-._ ](gguf|mlx|safetensors|hf|imatrix|imat|i1)(?=$|[-._ ])")
VARIANT = re.compile(r"[-_ ](instruct|chat|it|base|thinking|reasoning|pt)$")


class Parts(NamedTuple):
    """A name taken apart; ``variant`` and ``quantisation`` are left out where no other model needs them."""

    family: str
    size: str
    variant: str
    quantisation: str
    form: str

    @property
    def short(self) -> str:
        return f"{self.family}:{self.size}" if self.size else self.family


def typed_names(models: Sequence[ModelDescription], hints: Sequence[str]) -> list[str]:
    """A name for each model that no other has: ``family:size``, and of what tells it from others as much
    as is needed. ``hints`` are more words of each one's name, such as its repository's."""
    parts = [parse(model, hint) for model, hint in zip(models, hints, strict=True)]
    groups = defaultdict[str, list[Parts]](list)
    for each in parts:
        groups[each.short].append(each)
    return _numbered([_qualified(each, groups[each.short]) for each in parts])


def parse(model: ModelDescription, hint: str = "") -> Parts:
    """What the names of a model say: the first of file, repository and title that has a size."""
    texts = [_plain(text) for text in (model.id, hint, model.title) if text] or [""]
    chosen = next((text for text in texts if SIZE.search(text)), texts[0])
    quantised = QUANTISATION.search(chosen)
    quantisation = quantised[1] if quantised else (model.quantisation or "").lower()
    rest = QUANTISATION.sub("", chosen)
    sized = SIZE.search(rest)
    if sized and sized.start():
        family, size, variant = rest[: sized.start()], sized[1], rest[sized.end() :]
    else:
        family, size, variant = rest, _measured(model.parameters), ""
    if not variant and (found := VARIANT.search(family)):
        family, variant = family[: found.start()], found[1]
    return Parts(_slug(family) or "model", size, _slug(variant), _slug(quantisation), model.format)


def _plain(text: str) -> str:
    """The name of a model, without who made it, or in which form."""
    name = FLAT.sub("", text[-LONGEST:].lower().rpartition("/")[2]).removesuffix(":latest")
    return FORM.sub("", name)


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text.replace(":", "-")).strip("-_.")


def _measured(parameters: int | None) -> str:
    """A size in words, where no name says it."""
    if not parameters or parameters < MILLION:
        return ""
    if parameters < 1000 * MILLION:
        return f"{parameters / MILLION:.0f}m"
    return f"{parameters / 1000 / MILLION:.1f}".removesuffix(".0") + "b"


def _qualified(each: Parts, group: list[Parts]) -> str:
    """The short name, and of the parts in which models of that name differ as many as tell most apart."""
    differing = [place for place in range(2, len(each)) if len({other[place] for other in group}) > 1]
    told_apart = [
        len({tuple(other[place] for place in differing[:n]) for other in group})
        for n in range(len(differing) + 1)
    ]
    needed = differing[: told_apart.index(max(told_apart))]
    told = "-".join(each[place] for place in needed if each[place])
    return f"{each.short}{'-' if each.size else ':'}{told}" if told else each.short


def _numbered(names: list[str]) -> list[str]:
    """The names, a number at the end of those that came before."""
    taken = set(names)
    seen: set[str] = set()
    for place, name in enumerate(names):
        if name in seen:
            names[place] = next(each for n in count(2) if (each := f"{name}-{n}") not in taken)
            taken.add(names[place])
        seen.add(name)
    return names


def meant(name: str, models: Iterable[ModelDescription]) -> list[ModelDescription]:
    """The models that ``name`` may stand for: those it names in full, or else begins; broken ones last."""
    wanted = name.lower()
    known = list(models)
    for matches in (_is_first, _is_one, _begins_one):
        found = [model for model in known if matches(wanted, model)]
        usable = [model for model in found if model.problem is None]
        if usable or (found and matches is not _begins_one):
            return usable or found
    return []


def _is_first(wanted: str, model: ModelDescription) -> bool:
    return model.names[:1] == (wanted,)


def _is_one(wanted: str, model: ModelDescription) -> bool:
    return wanted in (each.lower() for each in model.names)


def _begins_one(wanted: str, model: ModelDescription) -> bool:
    return any(each.lower().startswith(wanted) for each in model.names)
