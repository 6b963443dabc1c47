"""Commands on whole chats: begin, find, rename, fork, export, delete."""

from __future__ import annotations

import asyncio
from typing import cast

from localspec.errors import EngineBusy, InvalidOptions, LocalspecError
from localspec.tui.actions import ChatActions
from localspec.tui.application import Application
from localspec.tui.chat import Chat
from localspec.tui.commands.command import COMMANDS
from localspec.tui.conversation import Said
from localspec.tui.dialogs.confirm import Confirm, deletion
from localspec.tui.dialogs.sessions import LONGEST_TITLE, SessionsScreen
from localspec.tui.export import Record, Wish, lines_of


@COMMANDS.command("new", key="ctrl+n")
async def new(screen: ChatActions, argument: str) -> None:
    """Begin a new chat; a running answer of this one continues."""
    await look_at(screen, _app(screen).new_chat())


@COMMANDS.command("private")
async def private(screen: ChatActions, argument: str) -> None:
    """Begin a private chat: nothing of it is kept."""
    await look_at(screen, _app(screen).new_chat(private=True))


@COMMANDS.command("sessions", "[SEARCH]", key="ctrl+s")
async def sessions(screen: ChatActions, argument: str) -> None:
    """Show all chats, to search, open, rename, export, fork and delete them."""
    chosen = await screen.ask(SessionsScreen(argument, current=screen.chat.session))
    if chosen is not None:
        await look_at(screen, await _app(screen).stored_chat(chosen))


@COMMANDS.command("rename", "TITLE")
async def rename(screen: ChatActions, argument: str) -> None:
    """Rename the chat."""
    if (session := screen.chat.session) is None:
        raise InvalidOptions("this chat is not stored yet", "Send a message first.")
    if not argument:
        raise InvalidOptions("no title was given", "Write it after the command: /rename TITLE.")
    if len(argument) > LONGEST_TITLE:
        raise InvalidOptions(
            f"the title has {len(argument)} characters, more than {LONGEST_TITLE}", "Shorten it."
        )
    await _app(screen).rename(session, argument)
    screen.notify(argument, title="The chat's title is now", timeout=3)


@COMMANDS.command("delete")
async def delete(screen: ChatActions, argument: str) -> None:
    """Delete the chat, after a confirmation."""
    chat = screen.chat
    _require_said(chat)
    if await screen.ask(deletion(chat.title)):
        await _app(screen).discard(chat)


@COMMANDS.command("fork")
async def fork(screen: ChatActions, argument: str) -> None:
    """Continue in a copy of the chat; the original stays as it is."""
    _require_said(screen.chat)
    await fork_at(screen, None)


@COMMANDS.command("export", "[md|json] [PATH]")
async def export(screen: ChatActions, argument: str) -> None:
    """Write the chat into a new file, as Markdown or JSON."""
    _require_said(screen.chat)
    path = await asyncio.to_thread(Wish.read(argument).write, await _record(screen))
    screen.notify(str(path), title="Written to")


async def may_leave(screen: ChatActions) -> bool:
    """Return True if the chat may be left: the user confirms it for a private chat with messages."""
    if not (screen.chat.private and screen.chat.said):
        return True
    question = Confirm("Leave this private chat? Nothing of it is kept.", "Leave")
    return not isinstance(screen.app.screen, Confirm) and await screen.app.push_screen_wait(question)


async def look_at(screen: ChatActions, chat: Chat) -> None:
    """Show another chat; a private one is deleted, after a confirmation. A model that is not the current one
    is loaded only when the user types."""
    left = screen.chat
    if not await may_leave(screen):
        return
    screen.show(chat)
    if left.private:
        await _app(screen).discard(left)
    if chat.session is None or chat.has_model_of(left):
        await chat.load()


async def fork_at(screen: ChatActions, said: Said | None) -> None:
    """Continue in a copy of the chat up to ``said``, or of all of it."""
    chat = screen.chat
    if chat.private:
        raise InvalidOptions("a private chat cannot be forked", "Save it with /export.")
    copy = await chat.fork(said)
    if copy is None:
        raise EngineBusy("this message is not stored yet", "Wait for the end of the answer.")
    await look_at(screen, await _app(screen).stored_chat(copy))
    screen.notify("This is the copy; the original chat stays as it is.", timeout=5)


async def _record(screen: ChatActions) -> Record:
    """The chat as stored by the daemon, or else as it is on the screen."""
    chat = screen.chat
    model = None if chat.pairing is None else chat.pairing.target
    if (session := chat.session) is not None:
        try:
            content = await _app(screen).link.ask(lambda client: client.session(session))
        except LocalspecError:
            pass  # deleted by another program, or no daemon: the screen still has the text
        else:
            return Record.stored(content, model)
    return Record(
        session=None,
        title=chat.title,
        model=model or chat.options.model,
        system=chat.system,
        options=chat.options,
        messages=lines_of(chat.said),
    )


def _require_said(chat: Chat) -> None:
    if not chat.said:
        raise InvalidOptions("this chat has no messages yet", "Send a message first.")


def _app(screen: ChatActions) -> Application:
    return cast(Application, screen.app)
