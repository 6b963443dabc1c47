"""The models on this disk, the default model and its draft, and names in config.toml that match nothing."""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from localspec.config import Config, section_name
from localspec.doctor.finding import Finding, ended, some
from localspec.errors import LocalspecError
from localspec.models.bundled import BUNDLED
from localspec.models.candidates import LEAST
from localspec.models.disk import Disk
from localspec.models.library import find
from localspec.models.pair import Pair
from localspec.models.pairing import check_pair
from localspec.models.sections import Sections
from localspec.models.stores.store import CONFIGURED
from localspec.models.vocabulary import read_tokens
from localspec.protocol.messages import ModelDescription, StoreDescription
from localspec.protocol.options import Options

NO_MODELS = Finding(
    "models",
    "ok",
    "Only the bundled pair is on this disk; `localspec models pull ORG/NAME` downloads other models.",
)
EDIT = "Correct it with `localspec config edit`; `localspec models list` shows the names."


def found(disk: Disk) -> Iterator[Finding]:
    """Report the models in the stores, and each store that cannot be read."""
    own = _own(disk.models)
    broken = [model for model in own if model.problem is not None]
    if not own:
        yield NO_MODELS
    else:
        stores = Counter(model.store for model in own)
        by_store = ", ".join(f"{number} in {store}" for store, number in stores.items())
        sentence = f"{len(own)} model{'s' * (len(own) > 1)} beside the bundled pair: {by_store}"
        if broken:
            reasons = some((f"{model.id} ({model.problem})" for model in broken), join="; ")
            sentence += f". {len(broken)} cannot be used: {reasons}"
            step = "`localspec models list` shows every reason, `localspec models show NAME` the remedy."
            yield Finding("models", "warning", f"{sentence}.", step)
        else:
            yield Finding("models", "ok", f"{sentence}.")
    yield from map(_unreadable, (store for store in disk.stores if store.problem))


def _own(models: Iterable[ModelDescription]) -> list[ModelDescription]:
    return [model for model in models if model.store != BUNDLED]


def _unreadable(store: StoreDescription) -> Finding:
    return Finding("models", "warning", ended(f"Models of {store.name}: {store.problem}"), store.remedy)


def model_dir(folder: Path, disk: Disk) -> Finding:
    """Check a directory of ``model_dirs``."""
    if not os.path.isdir(folder):
        return _no_folder(folder)
    if not os.access(folder, os.R_OK | os.X_OK):
        mend = f"Run `chmod u+rx {shlex.quote(str(folder))}`"
        return Finding("model_dirs", "warning", f"{folder} cannot be read.", mend)
    models = [model for model in disk.models if _lies_in(folder, model)]
    if not models:
        sentence, step = f"{folder} has no models.", "Put GGUF files or MLX directories there."
        return Finding("model_dirs", "warning", sentence, step)
    return Finding("model_dirs", "ok", f"{folder} has {len(models)} model{'s' * (len(models) > 1)}.")


def _no_folder(folder: Path) -> Finding:
    edit = "correct model_dirs with `localspec config edit`."
    try:
        os.stat(folder)
    except FileNotFoundError:
        step = f"Run `mkdir -p {shlex.quote(str(folder))}`, or {edit}"
        if os.path.lexists(folder):  # mkdir follows no link
            step = edit.capitalize()
        return Finding("model_dirs", "warning", f"{folder} does not exist.", step)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "its name is not valid"
        return Finding("model_dirs", "warning", f"{folder} cannot be read: {why}.", edit.capitalize())
    return Finding("model_dirs", "warning", f"{folder} is not a directory.", edit.capitalize())


def _lies_in(folder: Path, model: ModelDescription) -> bool:
    """True if the model was found there; one that several stores have is listed under the first of them."""
    places = (model.path, *model.also) if model.store == CONFIGURED else model.also
    return any(Path(place).is_relative_to(folder) for place in places)


# The configuration's names.


def unknown_sections(config: Config) -> Iterator[Finding]:
    """Report names in sections that match no model here, or several."""
    for name, error in Sections(config).unresolved():
        yield _nowhere(f"{section_name(name)} matches no model", error)
    for name, section in config.models.items():
        yield from _named(section_name(name), section.options, config)


def _named(section: str, options: Options, config: Config) -> Iterator[Finding]:
    for key in ("model", "draft"):
        name = getattr(options, key)
        if name is not None and not (key == "draft" and name in ("auto", "none")):
            try:
                find(name, config.model_dirs)
            except LocalspecError as error:
                yield _nowhere(f"{key} in {section} matches no model", error)


def _nowhere(sentence: str, error: LocalspecError) -> Finding:
    return Finding("config", "warning", ended(f"{sentence}: {error.message}"), EDIT)


# The default model.


def default(pair: Pair, usable: bool) -> Finding:
    """Check the default model; ``usable``: its backend is."""
    target = pair.target
    sentence = f"{target.name} is the default model, {pair.why}."
    if target.problem:
        return Finding("model", "problem", f"{sentence} It cannot be used: {target.problem}.", mend("model"))
    if not usable:
        step = f"Repair {pair.backend}, as its own line says, or choose another model."
        return Finding("model", "problem", f"{sentence} {pair.backend} cannot be used.", step)
    return Finding("model", "ok", sentence)


def pairing(pair: Pair, models: Sequence[ModelDescription]) -> Finding:
    """The draft model of the default model, and the number of other ``models`` that have one.

    Raises :class:`TokenizerMismatch` for a configured draft model with another vocabulary.
    """
    name, drafter, draft = pair.target.name, pair.drafter, pair.draft
    if drafter.asked and draft is not None:
        check_pair(read_tokens(pair.target), read_tokens(draft))
    if draft is None:
        sentence = f"{name}: {drafter.why}."
    elif drafter.asked:
        sentence = f"{draft.name} drafts for {name}, as configured."
    else:
        sentence = f"{draft.name} drafts for {name}, chosen by auto: {drafter.why}."
    usable = [model for model in _own(models) if model.problem is None]
    if usable:
        sentence += (
            f" {with_drafts(usable)} of {len(usable)} other usable models have a smaller one with an "
            "identical vocabulary; `localspec models pair NAME` shows more."
        )
    return Finding("pairing", "ok", sentence)


def with_drafts(models: Iterable[ModelDescription]) -> int:
    """The number of models with another one of their format and vocabulary that is small enough to draft.

    Vocabularies that differ but are compatible are left out: comparing all of them takes too long.
    """
    groups = defaultdict[tuple[str, str], list[ModelDescription]](list)
    for model in models:
        if model.vocab_fp is not None:
            groups[model.format, model.vocab_fp].append(model)
    return sum(
        any(_ratio(target, draft) >= LEAST for draft in group)
        for group in groups.values()
        for target in group
    )


def _ratio(target: ModelDescription, draft: ModelDescription) -> float:
    if target.parameters and draft.parameters:
        return target.parameters / draft.parameters
    return target.size / max(1, draft.size)


def mend(key: str) -> str:
    """The remedy for a wrong ``model`` or ``draft`` in the environment or in the file."""
    variable = f"LOCALSPEC_{key.upper()}"
    if os.environ.get(variable):
        return f"Correct {variable}; `localspec models list` shows the names."
    other = "NAME" if key == "model" else "auto"
    return (
        f"Choose another with `localspec config set {key} {other}`; `localspec models list` shows the names."
    )
