"""Commands on messages: answer again, edit, stop, copy."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.errors import InvalidOptions
from localspec.tui.actions import ChatActions
from localspec.tui.commands.command import COMMANDS
from localspec.tui.conversation import Answer, Question, Said, last_question
from localspec.wording import counted


@COMMANDS.command("regenerate", key="ctrl+r")
async def regenerate(screen: ChatActions, argument: str) -> None:
    """Answer the last question again."""
    await screen.answer(screen.chat, screen.chat.regenerate())


@COMMANDS.command("stop", key="escape")
async def stop(screen: ChatActions, argument: str) -> None:
    """Stop the current answer."""
    screen.chat.stop()


@COMMANDS.command("edit", key="ctrl+g")
async def edit(screen: ChatActions, argument: str) -> None:
    """Edit the last question and answer it again."""
    screen.begin_edit(_last_question(screen.chat.said))


@COMMANDS.command("copy")
async def copy(screen: ChatActions, argument: str) -> None:
    """Copy the last answer."""
    copy_text(screen, last_answer(screen))


@COMMANDS.command("code", "[NUMBER]")
async def code(screen: ChatActions, argument: str) -> None:
    """Copy a code block of the last answer: the last one, or by its number."""
    await copy_code(screen, last_answer(screen), argument)


async def edit_of(screen: ChatActions, said: Said) -> None:
    """Edit a question, or the question of an answer."""
    up_to = screen.chat.said[: place_of(screen, said) + 1]
    screen.begin_edit(_last_question(up_to))


def place_of(screen: ChatActions, said: Said) -> int:
    """The index of a message. Raises :class:`InvalidOptions` if it is no longer in the chat."""
    if said not in screen.chat.said:
        raise InvalidOptions("this message is no longer in the chat", "Choose one that is shown.")
    return screen.chat.said.index(said)


def _last_question(said: Sequence[Said]) -> Question:
    question = last_question(said)
    if question is None:
        raise InvalidOptions("this chat has no question yet", "Send a message first.")
    return question


def copy_text(screen: ChatActions, said: Said) -> None:
    """Put a message into the clipboard, as Markdown."""
    screen.app.copy_to_clipboard(said.text)
    screen.notify("Copied.", timeout=2)


async def copy_code(screen: ChatActions, said: Said, number: str = "") -> None:
    """Put a code block of a message into the clipboard, the last one without a ``number``.

    Raises :class:`InvalidOptions`.
    """
    blocks = code_blocks(said.text)
    if not blocks:
        raise InvalidOptions("the message has no code block", "Copy the last answer with /copy.")
    if number and not (number.isdecimal() and 1 <= int(number) <= len(blocks)):
        raise InvalidOptions(
            f"the answer has {counted(len(blocks), 'code block')}, and none with the number {number!r}",
            f"Give a number from 1 to {len(blocks)}.",
        )
    chosen = int(number or len(blocks))
    screen.app.copy_to_clipboard(blocks[chosen - 1])
    screen.notify(f"Copied code block {chosen} of {len(blocks)}.", timeout=2)


def code_blocks(text: str) -> list[str]:
    """The code blocks of a text: fenced or indented, also in lists and quotations."""
    from localspec.tui.blocks import PARSER

    code = (token for token in PARSER.parse(text) if token.type in ("fence", "code_block"))
    return [token.content.removesuffix("\n") for token in code]


def last_answer(screen: ChatActions) -> Answer:
    """The last answer with text. Raises :class:`InvalidOptions` if there is none."""
    answer = next((s for s in reversed(screen.chat.said) if isinstance(s, Answer) and s.text), None)
    if answer is None:
        raise InvalidOptions("this chat has no answer yet", "Send a message first.")
    return answer
