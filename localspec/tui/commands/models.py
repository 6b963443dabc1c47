"""Commands that choose the model, the draft model and the proposer."""

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
from localspec.protocol.options import Options, check_value
from localspec.protocol.proposer_kinds import AUTO, meanings
from localspec.protocol.sessions import Pairing
from localspec.tui.actions import ChatActions
from localspec.tui.application import Application
from localspec.tui.commands.command import COMMANDS, beginning
from localspec.tui.dialogs.choose import Choice, ChooseScreen
from localspec.tui.link import Link
from localspec.units import size
from localspec.wording import one_line, pairing_told

PROPOSERS = meanings()
DRAFTS = {
    "auto": "one that fits the model, if there is any",
    "none": "no draft model; prompt lookup and memory still draft",
}
FRESH_S = 10.0
"""age until which a list of models is used for suggestions"""
_FOUND: WeakKeyDictionary[Link, tuple[float, Sequence[ModelDescription]]] = WeakKeyDictionary()


async def _lately_found(screen: ChatActions) -> Sequence[ModelDescription]:
    """The models, for suggestions; not listed anew at every key."""
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
    name = argument or await screen.ask(_model_dialog(screen))
    if name is not None:
        await screen.busy(f"loading {one_line(name)}", _configure(screen, model=name, draft=None))


@COMMANDS.command("draft", "[NAME|auto|none]", values=_draft_names)
async def draft(screen: ChatActions, argument: str) -> None:
    """Choose the draft model."""
    await screen.settled.wait()
    name = argument or await screen.ask(_draft_dialog(screen))
    if name is not None:
        await screen.busy("loading the draft model", _configure(screen, draft=name))


@COMMANDS.command("proposer", "[NAME]", values=_proposer_names)
async def proposer(screen: ChatActions, argument: str) -> None:
    """Choose the proposer of draft tokens."""
    await screen.settled.wait()
    now = screen.chat.options.proposer or AUTO
    known = [Choice(name, name, meaning, current=name == now) for name, meaning in PROPOSERS.items()]
    name = argument or await screen.ask(ChooseScreen("Proposer", known))
    if name is not None:
        check_value(
            Options, "proposer", name, said="/proposer", remedy="/proposer without a name lists them."
        )
        await _configure(screen, proposer=name)


async def _model_dialog(screen: ChatActions) -> ChooseScreen:
    return ChooseScreen("Model", _models(await _found(screen), screen.chat.pairing))


async def _draft_dialog(screen: ChatActions) -> ChooseScreen:
    return ChooseScreen("Draft model", _drafts(screen, await _found(screen)))


async def _found(screen: ChatActions) -> Sequence[ModelDescription]:
    return await screen.busy("looking for models", screen.chat.models())


async def _configure(screen: ChatActions, **named: str | None) -> None:
    """Set these options of the shown chat, and notify of the resulting models."""
    chat = screen.chat
    places = {option: name and await asyncio.to_thread(_place_of, name) for option, name in named.items()}
    await chat.configure(replace(chat.options, **places))
    if (now := chat.pairing) is not None:
        runs = chat.answer is not None and chat.answer.growing and chat.answer.model
        when = " from the next question on" if runs else ""
        screen.notify(f"{pairing_told(now)}{when}.")


def _place_of(name: str) -> str:
    """A model's name, or its absolute path. Imported late, on a thread: the module reads models."""
    from localspec.models.library import absolute

    return absolute(name)


def _models(models: Sequence[ModelDescription], now: Pairing | None) -> list[Choice]:
    """All models on this computer; unusable ones last."""
    from localspec.models.description import NEEDS_MLX, name_of, needs_mlx

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
    """The possible draft models: those of the target's backend, the smallest first."""
    now, chosen = screen.chat.pairing, screen.chat.options.draft
    backend = None if now is None else now.backend
    others = [each for each in models if backend in (None, each.backend)]
    targets = [choice.value for choice in _models(others, now) if choice.current]
    smallest = _models(sorted(others, key=lambda each: each.size), now)
    known = [
        Choice(name, name, meaning, current=(chosen or "auto") == name) for name, meaning in DRAFTS.items()
    ]
    for each in smallest:
        if each.value not in targets:
            known.append(each._replace(current=chosen == each.value))
    return known


def _facts(model: ModelDescription) -> Iterator[str]:
    """The facts that matter for a choice; of the formats only MLX is named."""
    from localspec.models.description import count

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
