"""Commands about whole chats: begin, find, name, copy, write into a file, delete."""

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
    """Begin a chat; the one before goes on with what it does."""
    await look_at(screen, _app(screen).new_chat())


@COMMANDS.command("private")
async def private(screen: ChatActions, argument: str) -> None:
    """Begin a chat that leaves nothing behind."""
    await look_at(screen, _app(screen).new_chat(private=True))


@COMMANDS.command("sessions", "[SEARCH]", key="ctrl+s")
async def sessions(screen: ChatActions, argument: str) -> None:
    """Show all chats, to search, open, name, copy and delete them."""
    chosen = await screen.ask(SessionsScreen(argument, current=screen.chat.session))
    if chosen is not None:
        await look_at(screen, await _app(screen).stored_chat(chosen))


@COMMANDS.command("rename", "TITLE")
async def rename(screen: ChatActions, argument: str) -> None:
    """Give the chat another title."""
    if (session := screen.chat.session) is None:
        raise InvalidOptions("there is no chat to name yet", "Say something first.")
    if not argument:
        raise InvalidOptions("a title is missing", "Write it behind the command: /rename TITLE.")
    if len(argument) > LONGEST_TITLE:
        raise InvalidOptions(f"a title has at most {LONGEST_TITLE} characters", "Shorten it.")
    await _app(screen).rename(session, argument)
    screen.notify(argument, title="Its title is now", timeout=3)


@COMMANDS.command("delete")
async def delete(screen: ChatActions, argument: str) -> None:
    """Delete the chat, once that is confirmed."""
    chat = screen.chat
    _require_said(chat)
    if await screen.ask(deletion(chat.title)):
        await _app(screen).discard(chat)


@COMMANDS.command("fork")
async def fork(screen: ChatActions, argument: str) -> None:
    """Go on in a copy of the chat, which itself stays as it is."""
    _require_said(screen.chat)
    await fork_at(screen, None)


@COMMANDS.command("export", "[md|json] [PATH]")
async def export(screen: ChatActions, argument: str) -> None:
    """Write the chat into a new file, as Markdown or JSON."""
    _require_said(screen.chat)
    path = await asyncio.to_thread(Wish.read(argument).write, await _record(screen))
    screen.notify(str(path), title="Written to")


async def may_leave(screen: ChatActions) -> bool:
    """Whether the chat may be left: the person is asked where it would be lost."""
    if not (screen.chat.private and screen.chat.said):
        return True
    question = Confirm("Leave this private chat? Nothing of it is kept.", "Leave")
    return not isinstance(screen.app.screen, Confirm) and await screen.app.push_screen_wait(question)


async def look_at(screen: ChatActions, chat: Chat) -> None:
    """Show another chat; a private one is left for good if the person says so. Another model than now is not
    loaded before something is typed."""
    left = screen.chat
    if not await may_leave(screen):
        return
    screen.show(chat)
    if left.private:
        await _app(screen).discard(left)
    if chat.session is None or chat.has_model_of(left):
        await chat.load()


async def fork_at(screen: ChatActions, said: Said | None) -> None:
    """Go on in a copy of the chat up to ``said``, or of all of it."""
    chat = screen.chat
    if chat.private:
        raise InvalidOptions("a private chat is not copied", "Keep what was said with /export.")
    copy = await chat.fork(said)
    if copy is None:
        raise EngineBusy("this message is not stored yet", "Wait for the end of the answer.")
    await look_at(screen, await _app(screen).stored_chat(copy))
    screen.notify("This is the copy; the chat itself stays as it is.", timeout=5)


async def _record(screen: ChatActions) -> Record:
    """The chat as the daemon has kept it; what is on the screen, where it has not."""
    chat = screen.chat
    model = None if chat.pairing is None else chat.pairing.target
    if (session := chat.session) is not None:
        try:
            content = await _app(screen).link.ask(lambda client: client.session(session))
        except LocalspecError:
            pass  # deleted by another program, or the daemon cannot be had: the screen still has the text
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
        raise InvalidOptions("nothing was said yet", "Say something first.")


def _app(screen: ChatActions) -> Application:
    return cast(Application, screen.app)
