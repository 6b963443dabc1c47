"""Names that can be typed, such as ``qwen2.5-coder:7b``: made from the names of files and stores."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import chain, count
from pathlib import Path, PurePath
from typing import NamedTuple

from localspec.models.gguf import split_of
from localspec.protocol.messages import ModelDescription

MILLION = 1_000_000
LONGEST = 300
"""characters of a name that are parsed: more would take time"""
QUANTISATION = re.compile(
    r"(?:^|[-._ ])((?:ud-)?(?:i?q\d\w*|tq\d_\d|mxfp\d(?:_moe)?|nvfp4|bf16|fp?16|fp?32|\d{1,2}-?bit)"
    r"(?:-gs\d+|-dwq)?)(?=$|[-. ])"
)
SIZE = re.compile(r"(?:^|[-_:. ])((?:\d+x)?e?\d+(?:\.\d+)?[bm](?:-a\d+(?:\.\d+)?b)?)(?=$|[-_. ])")
FLAT = re.compile(r"^[^_]+_.*gguf_(?=.)")
"""prefix of file names in llama.cpp's older cache: user and repository"""
FORM = re.compile(r"[-._ ](gguf|mlx|safetensors|hf|imatrix|imat|i1)(?=$|[-._ ])")
VARIANT = re.compile(r"[-_ ](instruct|chat|it|base|thinking|reasoning|pt)$")
PREFERRED = (
    *("Q4_K_M", "UD-Q4_K_XL", "Q4_K_L", "Q4_K_S", "MXFP4", "MXFP4_MOE", "IQ4_NL", "IQ4_XS", "Q4_0", "Q4_1"),
    *("4BIT", "Q5_K_M", "UD-Q5_K_XL", "Q5_K_S", "Q5_0", "5BIT", "Q6_K", "6BIT", "Q8_0", "8BIT"),
    *("BF16", "F16", "F32"),
)
"""quantisations, the best balance of size and quality first; of others the largest"""
RESERVED = ("auto", "none")
"""values of ``draft`` that are not the name of a model"""


class NameParts(NamedTuple):
    """A name taken apart; ``variant`` and ``quantisation`` are left out where no other model needs them."""

    family: str
    size: str
    variant: str
    quantisation: str
    form: str

    @property
    def short(self) -> str:
        return f"{self.family}:{self.size}" if self.size else self.family

    @property
    def preference(self) -> int:
        """The place of the quantisation among :data:`PREFERRED`, after all of them if it is not there."""
        own = self.quantisation.replace("-bit", "bit").upper()
        alike = (own and (own.startswith(each) or each.startswith(own)) for each in PREFERRED)
        return next((place for place, is_it in enumerate(alike) if is_it), len(PREFERRED))


def label_of(stem: PurePath) -> str | None:
    """The quantisation at the end of the name of a file without its suffix, or else of its directory's."""
    for name in (stem.name.lower(), stem.parent.name.lower()):
        found = QUANTISATION.findall(name)
        if found and name.endswith(found[-1]):
            label = str(found[-1]).upper()
            return {"FP16": "F16", "FP32": "F32"}.get(label, label)
    return None


def pulled_name(repository: str, path: Path) -> str:
    """``ORG/NAME:QUANTISATION``, as ``models pull`` takes it, for a file of a repository."""
    split = split_of(path)
    label = label_of(path.with_suffix("") if split is None else path.with_name(split.stem))
    return f"{repository}:{label}" if label else repository


def typed_names(models: Sequence[NameParts | None], called: Sequence[Collection[str]]) -> list[str | None]:
    """A unique name for each model: ``family:size``, and as many of the other parts as are needed; None for
    None. ``called`` are the names of each in its stores: no model gets such a name of another."""
    groups = defaultdict[str, list[NameParts]](list)
    for each in models:
        if each is not None:
            groups[each.short].append(each)
    return _number_names([each and _qualify_name(each, groups[each.short]) for each in models], called)


def parse(model: ModelDescription, hint: str = "") -> NameParts:
    """The parts of a model's name: of the first of file, repository and title that has a size. ``hint`` is
    more words of its name, such as its repository's."""
    texts = [_plain(text) for text in (model.id, hint, model.title) if text] or [""]
    chosen = next((text for text in texts if SIZE.search(text)), texts[0])
    quantised = QUANTISATION.search(chosen)
    quantisation = quantised[1] if quantised else (model.quantisation or "").lower()
    rest = QUANTISATION.sub("", chosen)
    sized = SIZE.search(rest)
    if sized and sized.start():
        family, size, variant = rest[: sized.start()], sized[1], rest[sized.end() :]
    else:
        family, size, variant = rest, _name_size(model.parameters), ""
    if not variant and (found := VARIANT.search(family)):
        family, variant = family[: found.start()], found[1]
    return NameParts(_slug(family) or "model", size, _slug(variant), _slug(quantisation), model.format)


def _plain(text: str) -> str:
    """The name of a model in lower case, without its publisher and file format."""
    name = FLAT.sub("", text[-LONGEST:].lower().rpartition("/")[2]).removesuffix(":latest")
    return FORM.sub("", name)


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text.replace(":", "-")).strip("-_.")


def _name_size(parameters: int | None) -> str:
    """The size as in names, such as ``7b``, for a model whose names have none; empty below a million."""
    if not parameters or parameters < MILLION:
        return ""
    if parameters < 1000 * MILLION:
        return f"{parameters / MILLION:.0f}m"
    return f"{parameters / 1000 / MILLION:.1f}".removesuffix(".0") + "b"


def _qualify_name(each: NameParts, group: list[NameParts]) -> str:
    """The short name, and as many of the parts in which models of that name differ as distinguish most of
    them."""
    differing = [place for place in range(2, len(each)) if len({other[place] for other in group}) > 1]
    distinct = [
        len({tuple(other[place] for place in differing[:n]) for other in group})
        for n in range(len(differing) + 1)
    ]
    needed = differing[: distinct.index(max(distinct))]
    rest = "-".join(each[place] for place in needed if each[place])
    return f"{each.short}{'-' if each.size else ':'}{rest}" if rest else each.short


def _number_names(names: Sequence[str | None], called: Sequence[Collection[str]]) -> list[str | None]:
    """The names, with a number at the end of those that another model has, by its own or its store's name."""
    owners = defaultdict[str, set[int]](set)
    for place, ids in enumerate(called):
        for id in ids:
            owners[id.lower()].add(place)
    given, own, unnumbered = set(RESERVED), list[str | None](), {*names}
    for place, name in enumerate(names):
        if name is not None:
            numbered = (each for n in count(2) if (each := f"{name}-{n}") not in unnumbered)
            free = (each for each in chain([name], numbered) if each not in given)
            name = next(each for each in free if owners[each] <= {place})
            given.add(name)
        own.append(name)
    return own
