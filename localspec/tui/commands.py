"""All commands: importing this module registers every one of them."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from localspec.agent.loop import servers_in
from localspec.config import Setting, find, load_config
from localspec.errors import InvalidOptions
from localspec.hub.default import MissingModel
from localspec.models.catalogue import BUNDLED, CATALOGUE, Entry
from localspec.models.descriptions import NEEDS_MLX, count, name_of, needs_mlx
from localspec.models.paths import absolute
from localspec.protocol.messages import ModelDescription, Pairing
from localspec.protocol.options import SETTABLE, unknown_key
from localspec.tui.command import command
from localspec.tui.conversation import ChatAnswer
from localspec.tui.dialog import Confirm
from localspec.tui.export import markdown, write
from localspec.tui.screen import ChatScreen
from localspec.tui.sessions import SessionsScreen
from localspec.wording import one_line, pairing_sentence, size, stats_lines

TOY = "toy, for tests"
RANKS = {"current": 0, "to download": 2, TOY: 3, "unusable": 4, "": 1}
"""places of models in a list, by the beginnings of their facts"""


@command("regenerate", key="ctrl+r")
async def regenerate(screen: ChatScreen, argument: str) -> None:
    """Answer the last question again."""
    await screen.answer(screen.chat.regenerate())


@command("edit", key="ctrl+g")
async def edit(screen: ChatScreen, argument: str) -> None:
    """Edit the last question and answer it again."""
    await screen.edit(None)


@command("copy")
async def copy(screen: ChatScreen, argument: str) -> None:
    """Copy the last answer."""
    screen.copy(last_answer(screen).text)


@command("code")
async def code(screen: ChatScreen, argument: str) -> None:
    """Copy the last code block of the last answer."""
    blocks = code_blocks(last_answer(screen).text)
    if not blocks:
        raise InvalidOptions("the answer has no code block", "Copy the whole answer with /copy.")
    screen.copy(blocks[-1])


def code_blocks(text: str) -> list[str]:
    """The code blocks of a text: fenced or indented, also in lists and quotations."""
    from localspec.tui.blocks import PARSER

    blocks = (token for token in PARSER.parse(text) if token.type in ("fence", "code_block"))
    return [token.content.removesuffix("\n") for token in blocks]


@command("stats")
async def stats(screen: ChatScreen, argument: str) -> None:
    """Show the statistics of the last answer."""
    result = last_answer(screen).result
    known = "its statistics are not stored" if result is None else stats_lines(result)
    screen.notify(known, title="The last answer", timeout=30)


def last_answer(screen: ChatScreen) -> ChatAnswer:
    """The last answer with text. Raises :class:`InvalidOptions` if there is none."""
    answer = next((s for s in reversed(screen.chat.said) if isinstance(s, ChatAnswer) and s.text), None)
    if answer is None:
        raise InvalidOptions("this chat has no answer yet", "Send a message first.")
    return answer


@command("new", key="ctrl+n")
async def new(screen: ChatScreen, argument: str) -> None:
    """Begin a new chat; a running answer of this one continues."""
    await screen.change_to(screen.application.new_chat())


@command("private")
async def private(screen: ChatScreen, argument: str) -> None:
    """Begin a private chat: nothing of it is kept."""
    await screen.change_to(screen.application.new_chat(private=True))


@command("sessions", "[SEARCH]", key="ctrl+s")
async def sessions(screen: ChatScreen, argument: str) -> None:
    """Show all chats, to search, open and delete them."""
    chosen = await screen.ask(SessionsScreen(screen, argument))
    if chosen is not None:
        await screen.change_to(await screen.application.stored_chat(chosen))


@command("rename", "TITLE")
async def rename(screen: ChatScreen, argument: str) -> None:
    """Rename the chat."""
    chat = screen.chat
    if (session := chat.session) is None:
        raise InvalidOptions("this chat is not stored yet", "Send a message first.")
    if not argument:
        raise InvalidOptions("no title was given", "Write it after the command: /rename TITLE.")
    await screen.application.link.ask(lambda client: client.rename_session(session, argument))
    chat.title = argument
    screen.notify(argument, title="The chat's title is now", timeout=3)


@command("export", "[PATH]")
async def export(screen: ChatScreen, argument: str) -> None:
    """Write the chat into a new Markdown file."""
    chat = screen.chat
    if not chat.said:
        raise InvalidOptions("this chat has no messages yet", "Send a message first.")
    model = chat.options.model if chat.pairing is None else chat.pairing.target
    text = markdown(chat.title, model, chat.system, chat.said)
    path = await asyncio.to_thread(write, text, argument, chat.title)
    screen.notify(str(path), title="Written to")


@command("quit", key="ctrl+q")
async def leave(screen: ChatScreen, argument: str) -> None:
    """Leave the chat; the daemon keeps running."""
    question = Confirm("Leave, though a message waits for the end of the answer?", "Leave")
    if (not screen.prompt.waiting or await screen.ask(question)) and await screen.may_leave():
        screen.app.exit()


async def _models(screen: ChatScreen) -> dict[str, str]:
    """All models: the current one, those that are here, those to download, toys, and unusable ones."""
    models = await screen.models()
    found = describe_models(models, screen.chat.pairing)
    found |= {each.name: f"to download: {size(each.size)} · {each.use}" for each in _absent(models)}

    def rank(name: str) -> int:
        return next(rank for begin, rank in RANKS.items() if found[name].startswith(begin))

    return {name: found[name] for name in sorted(found, key=rank)}


def _absent(models: Sequence[ModelDescription]) -> list[Entry]:
    names = {name.lower() for each in models for name in each.names}
    return [each for each in CATALOGUE.values() if each.name not in names]


async def _settings(screen: ChatScreen) -> dict[str, str]:
    """The options, each with the value in force, its default, its meaning, and what it takes if not text."""
    from localspec.models.library import Sections  # loads the lookup of models

    own, found = screen.chat.options, {}
    options = await asyncio.to_thread(lambda: Sections(load_config()).merge_options(own))
    for name in dict.fromkeys(("temperature", "top_p", "max_tokens", *SETTABLE)):
        option, now = field(name), text_of(getattr(options, name))
        meaning, _, default = option.meaning.partition("; not set: ")
        default = default or text_of(option.default)
        value = f"{now} (default: {default})" if now not in ("", default) else f"{default} (default)"
        found[f"{name} "] = f"{value} · {meaning} · {option.takes}".partition(" · text of")[0]
    return found


@command("model", "[NAME]", key="ctrl+o", values=_models)
async def model(screen: ChatScreen, argument: str) -> None:
    """Choose the model that answers, also one to download."""
    for entry in _absent(await screen.models()):
        if entry.name == argument.lower():
            question = f"Download {entry.name} ({size(entry.size)})?"
            agrees = await screen.ask(Confirm(question, "Download", "primary"))
            if not agrees or not await screen.download(MissingModel(name=entry.name)):
                return
    place = await asyncio.to_thread(value_of, "model", argument)
    await screen.settled.wait()
    chat = screen.chat
    work = chat.configure(replace(chat.options, model=place, draft=None))
    await screen.busy(f"loading {one_line(argument)}", work)
    if (now := chat.pairing) is not None and chat is screen.chat:
        runs = chat.answer is not None and chat.answer.growing and chat.answer.model
        when = " from the next question on" if runs else ""
        screen.notify(f"{pairing_sentence(now)}{when}.")


@command("set", "[KEY [VALUE]]", key="f2", values=_settings)
async def set_option(screen: ChatScreen, argument: str) -> None:
    """Set or unset an option, such as temperature."""
    name, _, text = argument.partition(" ")
    if name == "model" and text:
        await model(screen, text)
        return
    value = await asyncio.to_thread(value_of, name, text)
    await screen.settled.wait()
    await screen.chat.configure(replace(screen.chat.options, **{name: value}))
    screen.notify(f"{name} is {text_of(value) if text else field(name).unset}.")


@command("system", "[TEXT|none]")
async def system(screen: ChatScreen, argument: str) -> None:
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


def describe_models(models: Sequence[ModelDescription], now: Pairing | None) -> dict[str, str]:
    """Models by name, with the facts that matter for a choice; one whose name is not its own, by its path."""
    names = Counter(name_of(each).lower() for each in models)
    found = {}
    for each in models:
        is_one = names[name_of(each).lower()] == 1 or each.format == "gguf"
        problem = each.problem or (NEEDS_MLX if needs_mlx(each) else "")
        facts = f"unusable: {problem}" if problem else _facts(each, now)
        found[name_of(each) if is_one else each.path] = one_line(facts)
    return found


def _facts(model: ModelDescription, now: Pairing | None) -> str:
    """The facts that matter for a choice; of the formats only MLX is named."""
    is_current = now is not None and now.target in (model.id, *model.names) and model.backend == now.backend
    facts = (
        "current" if is_current else "",
        TOY if model.store == BUNDLED else "",
        count(model.parameters) if model.parameters else "",
        model.quantisation or "",
        size(model.size),
        "MLX" if model.format == "mlx" else "",
        "loaded" if model.loaded else "",
        f"{model.context:,} context" if model.context else "",
    )
    return " · ".join(filter(None, facts))


def field(name: str) -> Setting:
    """An option; raises :class:`InvalidOptions` with the nearest name."""
    if name not in SETTABLE:
        raise InvalidOptions(unknown_key("option", name, SETTABLE), "Type a space after /set: it lists them.")
    return find(f"options.{name}")


def value_of(name: str, text: str) -> Any:
    """The value of a text, None for a blank one; raises :class:`InvalidOptions` with the values it takes."""
    option, text = field(name), text.strip()
    if not text:
        return None
    value = option.parse(text, name)
    if name in ("model", "draft"):
        return absolute(value)
    return os.path.abspath(os.path.expanduser(value)) if name == "workspace" else value


def text_of(value: Any) -> str:
    """A value as :func:`value_of` reads it."""
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | tuple) else str(value)


@command("tools", "[FILE|off]")
async def tools(screen: ChatScreen, argument: str) -> None:
    """Let the model call the tools of a file; without it, list them; off ends them."""
    await screen.settled.wait()
    box = screen.application.tools.box
    if argument == "off":
        await box.close()
    elif argument:
        await screen.open_tools(await asyncio.to_thread(servers_in, Path(argument).expanduser()))
        return
    none = "They are off" if argument else "There are none"
    screen.notify(box.listing or f"{none}: /tools FILE starts some.", title="Tools")


@command("colours", key="ctrl+t")
async def colours(screen: ChatScreen, argument: str) -> None:
    """Show answers as raw text, each token coloured by its proposer; again: as Markdown."""
    screen.colour()


@command("theme")
async def theme(screen: ChatScreen, argument: str) -> None:
    """Choose the colours; kept for later chats."""
    screen.app.search_themes()


@command("help", key="f1")
async def help(screen: ChatScreen, argument: str) -> None:
    """Show the keys that act now, in a panel; again: hide it."""
    if screen.query("HelpPanel"):
        screen.app.action_hide_help_panel()
    else:
        screen.app.action_show_help_panel()
