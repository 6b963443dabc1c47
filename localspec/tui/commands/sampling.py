"""Commands about how the chat is set: its options, its system prompt."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from localspec.errors import InvalidOptions
from localspec.protocol.options import Options, check_options, choices
from localspec.tui.actions import ChatActions
from localspec.tui.commands import models
from localspec.tui.commands.command import COMMANDS, beginning
from localspec.tui.fields import field, held, text_of, value_of


async def _settings(screen: ChatActions, typed: str) -> list[str]:
    """Names of options, and behind one of these its values, if there are but a few."""
    name, blank, value = typed.partition(" ")
    if blank and name in Options.__struct_fields__:
        return [f"{name} {each}" for each in beginning(value, choices(Options, name))]
    return beginning(typed, (f"{each} " for each in Options.__struct_fields__))


@COMMANDS.command("set", "[KEY [VALUE]]", key="f2", values=_settings)
async def set_option(screen: ChatActions, argument: str) -> None:
    """Set an option, or all of sampling; without a value it is not set any more."""
    await screen.settled.wait()
    name, _, text = argument.partition(" ")
    if not name:
        await _panel(screen)
    elif name == "model" and text:
        await models.model(screen, text)
    elif name == "draft" and text:
        await models.draft(screen, text)
    else:
        value = await asyncio.to_thread(value_of, name, text)
        await screen.chat.configure(check_options(replace(screen.chat.options, **{name: value})))
        told = f"{name} is {text_of(value)}" if text else f"{name} is not set: {field(name).meaning}"
        screen.notify(f"{told}.")


async def _panel(screen: ChatActions) -> None:
    from localspec.tui.dialogs.sampling import SamplingScreen

    chat = screen.chat

    async def dialog() -> SamplingScreen:
        return SamplingScreen(chat.options, await asyncio.to_thread(held, chat.options))

    options = await screen.ask(dialog())
    if options is not None and options != chat.options:
        await chat.configure(options)
        screen.notify("Set, from the next answer on.")


@COMMANDS.command("system", "[TEXT|none]")
async def system(screen: ChatActions, argument: str) -> None:
    """Tell the model who it is, before anything is said; without a text, show what it was told."""
    chat = screen.chat
    if not argument:
        screen.notify(chat.system or "It was told nothing.", title="System prompt")
    elif chat.said:
        raise InvalidOptions("a chat keeps its system prompt", "Begin another with /new, and set it there.")
    else:
        chat.system = None if argument == "none" else argument
        screen.notify("The model is told so." if chat.system else "The model is told nothing.")
