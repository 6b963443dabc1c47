"""The list of stored chats: searched, opened, deleted; each key has its effect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.widgets import Input, OptionList

from localspec.client import Client
from localspec.tui.dialog import Confirm
from localspec.tui.sessions import SessionsScreen
from tests.tui.harness import Player


async def stored(client: Client, *titles: str) -> list[str]:
    """Chats of these titles; the last one comes first in a list."""
    sessions = []
    for title in titles:
        sessions.append((await client.open().result()).session)
        await client.rename_session(sessions[-1], title)
    return sessions


async def titles(client: Client, query: str = "") -> list[str]:
    return [each.title for each in await client.sessions(query)]


class Listing:
    def __init__(self, player: Player) -> None:
        self.player = player
        self.press = player.press

    @property
    def widget(self) -> OptionList:
        return self.player.app.screen.query_one(OptionList)

    @property
    def rows(self) -> list[str]:
        return [str(option.prompt) for option in self.widget.options if not option.disabled]

    @property
    def chosen(self) -> str | None:
        option = self.widget.highlighted_option
        return None if option is None else option.id

    async def shows(self, *titles: str) -> None:
        def is_listed() -> bool:
            return len(self.rows) == len(titles) and all(map(str.endswith, self.rows, titles))

        await self.player.until(is_listed, f"{titles} are listed")

    async def leave(self, *keys: str) -> None:
        """Press keys, and wait until the chat is shown again."""
        await self.press(*keys)
        await self.player.until(lambda: self.player.app.screen is self.player.screen, "it is left")
        await self.player.settle()


@asynccontextmanager
async def listing(player: Player, search: str = "") -> AsyncIterator[Listing]:
    if search:
        await player.send(f"/sessions {search}")
    else:
        await player.press("ctrl+s")
    await player.until(lambda: isinstance(player.app.screen, SessionsScreen), "the list is there")
    yield Listing(player)


@pytest.mark.slow
async def test_chats_are_found_by_their_text(player: Player, other: Client) -> None:
    await stored(other, "A quick fox", "A lazy dog")
    async with listing(player) as seen:
        await seen.shows("A lazy dog", "A quick fox")
        await seen.press("Q", "u", "i")
        await seen.shows("A quick fox")
        await seen.press("x")
        await seen.shows()
        assert "No chat matches." in player.seen()
        await seen.leave("backspace", "escape")
    async with listing(player, "LAZY") as seen:
        await seen.shows("A lazy dog")
        await seen.leave("escape")
    assert player.chat.session is None


async def test_single_questions_stand_behind_the_chats(player: Player, other: Client) -> None:
    (chat,) = await stored(other, "Apart chat")
    run = (await other.open(once=True).result()).session
    await other.rename_session(run, "Apart run")
    copy = await other.fork_session(run)
    await other.rename_session(copy, "Apart copy")
    async with listing(player, "apart") as seen:
        await seen.shows("Apart copy", "Apart chat", "Apart run")
        assert [option.id for option in seen.widget.options] == [copy, chat, run]
        assert "localspec run Apart run" in player.seen()
        assert seen.chosen == copy
        await seen.leave("down", "down", "enter")
    assert player.chat.session == run


@pytest.mark.slow
async def test_a_chat_is_opened_and_marked(player: Player, other: Client) -> None:
    one, two = await stored(other, "Open one", "Open two")
    async with listing(player, "open") as seen:
        await seen.shows("Open two", "Open one")
        await seen.leave("pagedown", "pageup", "down", "up", "down", "enter")
    assert player.chat.session == one and player.chat.title == "Open one"
    async with listing(player, "open") as seen:
        await seen.shows("Open two", "Open one")
        assert [row[0] for row in seen.rows] == [" ", "●"]
        await player.click(OptionList, offset=(5, 0))
        await seen.leave()
    assert player.chat.session == two
    async with listing(player) as seen:
        await player.click()  # beside it
        await seen.leave()


@pytest.mark.slow
async def test_enter_opens_the_typed_chat_even_before_it_is_found(player: Player, other: Client) -> None:
    early, _ = await stored(other, "Wanted early", "Wanted late")
    async with listing(player, "wanted") as seen:
        await seen.shows("Wanted late", "Wanted early")
        player.app.screen.query_one(Input).value = "wanted early"
        await seen.leave("enter")
    assert player.chat.session == early


@pytest.mark.slow
async def test_a_chat_is_deleted_once_that_is_confirmed(player: Player, other: Client) -> None:
    first, _ = await stored(other, "Delete first", "Delete never")
    async with listing(player, "delete") as seen:
        await seen.shows("Delete never", "Delete first")
        for answer in ("n", "y"):
            await seen.press("down", "ctrl+d")
            await player.until(lambda: isinstance(player.app.screen, Confirm), "it asks")
            assert "Delete first”?" in " ".join(player.lines())
            await seen.press(answer)
            await player.until(lambda: isinstance(player.app.screen, SessionsScreen), "it has asked")
            await seen.press("up")
        await seen.shows("Delete never")
        assert await titles(other, "delete") == ["Delete never"]
        await seen.leave("escape")


@pytest.mark.slow
async def test_the_list_follows_other_programs(player: Player, other: Client) -> None:
    first, second = await stored(other, "Follow 1", "Follow 2")
    async with listing(player, "follow") as seen:
        await seen.shows("Follow 2", "Follow 1")
        await seen.press("down")
        assert seen.chosen == first
        await stored(other, "Follow 3")
        await seen.shows("Follow 3", "Follow 2", "Follow 1")
        await other.rename_session(second, "Follow two")
        await seen.shows("Follow 3", "Follow two", "Follow 1")
        await other.delete_session(second)
        await seen.shows("Follow 3", "Follow 1")
        assert seen.chosen == first  # it stays highlighted
        await seen.leave("escape")
