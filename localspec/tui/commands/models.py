"""Commands about what answers: the model, its draft, who proposes tokens."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from typing import cast
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from localspec.protocol.messages import ModelDescription
from localspec.protocol.options import Options, ProposerName, check_value
from localspec.protocol.sessions import Pairing
from localspec.tui.actions import ChatActions
from localspec.tui.application import Application
from localspec.tui.commands.command import COMMANDS, beginning
from localspec.tui.dialogs.choose import Choice, ChooseScreen
from localspec.tui.link import Link
from localspec.units import size
from localspec.wording import one_line, pairing_told

PROPOSERS = {
    "auto": "whoever pays, by what steps cost here",
    "none": "nobody: the model alone",
    "prompt-lookup": "what the conversation already holds",
    "memory": "what was said and written here before",
    "draft": "the draft model",
}
DRAFTS = {
    "auto": "one that fits, if there is any",
    "none": "no draft model; lookup and memory do what they can",
}


FRESH_S = 10.0
"""for which models that were looked for count, where they are only suggested"""
_FOUND: WeakKeyDictionary[Link, tuple[float, Sequence[ModelDescription]]] = WeakKeyDictionary()


async def _lately_found(screen: ChatActions) -> Sequence[ModelDescription]:
    """The models, for a suggestion: every key that is typed wants them."""
    link = cast(Application, screen.app).link
    when, models = _FOUND.get(link, (-inf, ()))
    if time.monotonic() - when > FRESH_S:
        models = await screen.chat.models()
        _FOUND[link] = time.monotonic(), models
    return models


async def _model_names(screen: ChatActions, typed: str) -> list[str]:
    usable = (each for each in await _lately_found(screen) if each.problem is None)
    return beginning(typed, sorted({name for each in usable for name in each.names}))


async def _draft_names(screen: ChatActions, typed: str) -> list[str]:
    return [*beginning(typed, DRAFTS), *await _model_names(screen, typed)]


async def _proposer_names(screen: ChatActions, typed: str) -> list[str]:
    return beginning(typed, PROPOSERS)


@COMMANDS.command("model", "[NAME]", key="ctrl+o", values=_model_names)
async def model(screen: ChatActions, argument: str) -> None:
    """Choose the model that answers."""
    await screen.settled.wait()
    chat = screen.chat
    name = argument or await screen.ask(_model_dialog(screen))
    if name is not None:
        place = await asyncio.to_thread(_place_of, name)
        await _configure(screen, replace(chat.options, model=place, draft=None))


@COMMANDS.command("draft", "[NAME|auto|none]", values=_draft_names)
async def draft(screen: ChatActions, argument: str) -> None:
    """Choose the model that drafts for it."""
    await screen.settled.wait()
    name = argument or await screen.ask(_draft_dialog(screen))
    if name is not None:
        place = await asyncio.to_thread(_place_of, name)
        await _configure(screen, replace(screen.chat.options, draft=place))


@COMMANDS.command("proposer", "[NAME]", values=_proposer_names)
async def proposer(screen: ChatActions, argument: str) -> None:
    """Choose who drafts tokens."""
    await screen.settled.wait()
    now = screen.chat.options.proposer or "auto"
    known = [Choice(name, name, who, current=name == now) for name, who in PROPOSERS.items()]
    name = argument or await screen.ask(ChooseScreen("Who drafts tokens", known))
    if name is not None:
        check_value(Options, "proposer", name, said="/proposer", remedy="See them with /proposer alone.")
        await _configure(screen, replace(screen.chat.options, proposer=cast(ProposerName, name)))


async def _model_dialog(screen: ChatActions) -> ChooseScreen:
    return ChooseScreen("Model", _models(await _found(screen), screen.chat.pairing))


async def _draft_dialog(screen: ChatActions) -> ChooseScreen:
    return ChooseScreen("Draft model", _drafts(screen, await _found(screen)))


async def _found(screen: ChatActions) -> Sequence[ModelDescription]:
    return await screen.busy("looking for models", screen.chat.models())


async def _configure(screen: ChatActions, options: Options) -> None:
    """Set the options of the chat that is looked at, and tell what came of it."""
    chat = screen.chat
    await chat.configure(options)
    if (now := chat.pairing) is not None:
        when = " from the next question on" if chat.answering else ""
        screen.notify(f"{pairing_told(now)}{when}.")


def _place_of(name: str) -> str:
    """A model as the daemon can find it. What reads models is imported when one is named, not before."""
    from localspec.models.library import absolute

    return absolute(name)


def _models(models: Sequence[ModelDescription], now: Pairing | None) -> list[Choice]:
    """All models on the disk; what cannot be used comes last."""
    from localspec.models.facts import NEEDS_MLX, name_of, needs_mlx

    names = Counter(name_of(each).lower() for each in models)
    found = []
    for each in models:
        is_one = names[name_of(each).lower()] == 1 or each.format == "gguf"
        current = now is not None and now.target in (each.id, *each.names) and each.backend == now.backend
        problem = each.problem or (NEEDS_MLX if needs_mlx(each) else "")
        value = name_of(each) if is_one else each.path
        facts = " · ".join(_facts(each))
        found.append(Choice(value, one_line(name_of(each)), one_line(facts), one_line(problem), current))
    return sorted(found, key=lambda choice: bool(choice.problem))


def _drafts(screen: ChatActions, models: Sequence[ModelDescription]) -> list[Choice]:
    """Who may draft: models of the format that the target has, the smallest first."""
    now, said = screen.chat.pairing, screen.chat.options.draft
    backend = None if now is None else now.backend
    others = [each for each in models if backend in (None, each.backend)]
    targets = [choice.value for choice in _models(others, now) if choice.current]
    smallest = _models(sorted(others, key=lambda each: each.size), now)
    known = [Choice(name, name, what, current=(said or "auto") == name) for name, what in DRAFTS.items()]
    for each in smallest:
        if each.value not in targets:
            known.append(each._replace(current=said == each.value))
    return known


def _facts(model: ModelDescription) -> Iterator[str]:
    """What matters for a choice; the format where it is the rarer one."""
    from localspec.models.facts import count

    if model.parameters:
        yield count(model.parameters)
    if model.quantisation:
        yield model.quantisation
    yield size(model.size)
    if model.format == "mlx":
        yield "MLX"
    if model.loaded:
        yield "loaded"
    if model.context:
        yield f"{model.context} context"
