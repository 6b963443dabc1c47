"""Commands that set a chat's options and its system prompt."""

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
    """Names of options; after a name its values, if there are only a few."""
    name, blank, value = typed.partition(" ")
    if blank and name in Options.__struct_fields__:
        return [f"{name} {each}" for each in beginning(value, choices(Options, name))]
    return beginning(typed, (f"{each} " for each in Options.__struct_fields__))


@COMMANDS.command("set", "[KEY [VALUE]]", key="f2", values=_settings)
async def set_option(screen: ChatActions, argument: str) -> None:
    """Set an option, or open the sampling options; without a value the option is unset."""
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
        state = f"{name} is {text_of(value)}" if text else f"{name} is {field(name).unset}"
        screen.notify(f"{state}.")


async def _panel(screen: ChatActions) -> None:
    from localspec.tui.dialogs.sampling import SamplingScreen

    chat = screen.chat

    async def dialog() -> SamplingScreen:
        return SamplingScreen(chat.options, await asyncio.to_thread(held, chat.options))

    options = await screen.ask(dialog())
    if options is not None and options != chat.options:
        await chat.configure(options)
        screen.notify("The options apply from the next answer on.")


@COMMANDS.command("system", "[TEXT|none]")
async def system(screen: ChatActions, argument: str) -> None:
    """Set the system prompt, before the first message; without a text, show it."""
    chat = screen.chat
    if not argument:
        screen.notify(chat.system or "There is none.", title="System prompt")
    elif chat.said:
        raise InvalidOptions(
            "the system prompt cannot change after the first message",
            "Begin a new chat with /new, and set it there.",
        )
    else:
        chat.system = None if argument == "none" else argument
        screen.notify("The system prompt is set." if chat.system else "The chat has no system prompt.")
