"""The list of stored chats: searched, opened, named, copied, exported, deleted; each key has its effect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.widgets import Input

from localspec.client import Client, connect
from localspec.tui.dialogs import sessions as dialog
from localspec.tui.dialogs.confirm import Confirm
from localspec.tui.dialogs.session_list import SessionList
from localspec.tui.dialogs.sessions import SessionsScreen
from localspec.tui.widgets.prompt import Prompt
from tests.tui.harness import GREEDY, Player, playing


async def stored(client: Client, *titles: str) -> list[str]:
    """Chats of these titles; the last one comes first in a list."""
    sessions = []
    for title in titles:
        sessions.append((await client.open_session()).session)
        await client.rename_session(sessions[-1], title)
    return sessions


async def titles(client: Client, query: str = "") -> list[str]:
    return [each.title for each in await client.sessions(query)]


class Listing:
    """The list as a user at the keyboard has it."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.press = player.press

    @property
    def widget(self) -> SessionList:
        return self.player.app.screen.query_one(SessionList)

    @property
    def rows(self) -> list[str]:
        return [str(option.prompt) for option in self.widget.options]

    async def shows(self, *titles: str) -> None:
        """Wait until it lists just these."""

        def is_listed() -> bool:
            return len(self.rows) == len(titles) and all(map(str.endswith, self.rows, titles))

        await self.player.until(is_listed, f"{titles} are listed")

    async def search(self, text: str) -> None:
        self.player.app.screen.query_one("#search", Input).value = text
        await self.player.pause()

    async def is_left(self) -> None:
        await self.player.until(lambda: self.player.app.screen is self.player.screen, "it is left")
        await self.player.settle()


@asynccontextmanager
async def listing(player: Player, search: str = "") -> AsyncIterator[Listing]:
    """The list, as long as it is looked at."""
    if search:
        player.screen.query_one(Prompt).text = f"/sessions {search}"
        await player.press("enter")
    else:
        await player.press("ctrl+s")
    await player.until(lambda: isinstance(player.app.screen, SessionsScreen), "the list is there")
    yield Listing(player)


@pytest.mark.slow
async def test_chats_are_found_by_what_is_typed(home: Path) -> None:
    async with playing() as player, await connect() as other:
        await stored(other, "A quick fox", "A lazy dog")
        async with listing(player) as seen:
            await seen.shows("A lazy dog", "A quick fox")
            await seen.press("Q", "u", "i")
            await seen.shows("A quick fox")
            await seen.press("x")
            await seen.shows()
            assert any("No chat matches." in line for line in player.lines())
            await seen.press("backspace", "escape")
            await seen.is_left()
        async with listing(player, "LAZY") as seen:
            await seen.shows("A lazy dog")
            await seen.press("escape")
            await seen.is_left()
        assert player.chat.session is None


@pytest.mark.slow
async def test_a_chat_is_opened_and_marked(home: Path) -> None:
    async with playing() as player, await connect() as other:
        one, two = await stored(other, "Open one", "Open two")
        async with listing(player, "open") as seen:
            await seen.shows("Open two", "Open one")
            await seen.press("down", "down", "enter")
            await seen.is_left()
        assert player.chat.session == one and player.chat.title == "Open one"
        async with listing(player, "open") as seen:
            await seen.shows("Open two", "Open one")
            assert [row[0] for row in seen.rows] == [" ", "●"]
            await seen.press("enter")  # right from the search: the first one
            await seen.is_left()
        assert player.chat.session == two


@pytest.mark.slow
async def test_enter_opens_what_was_typed_even_before_it_is_found(home: Path) -> None:
    async with playing() as player, await connect() as other:
        early, _ = await stored(other, "Wanted early", "Wanted late")
        async with listing(player, "wanted") as seen:
            await seen.shows("Wanted late", "Wanted early")
            await seen.search("wanted early")
            await seen.press("enter")
            await seen.is_left()
        assert player.chat.session == early


@pytest.mark.slow
async def test_a_chat_is_named_in_its_place(home: Path) -> None:
    async with playing() as player, await connect() as other:
        await stored(other, "Name me")
        async with listing(player, "name me") as seen:
            await seen.shows("Name me")
            await seen.press("down", "r", "1", "escape")  # no: it stays as it is
            await seen.press("r", "2", "enter")
            await seen.shows("Name me2")
            await seen.press("f2", "3", "enter")
            await seen.shows("Name me23")
            assert await titles(other, "name me") == ["Name me23"]
            await seen.press("r", "ctrl+u", "enter")  # a title that cannot be read is none
            await seen.shows("Name me23")
            await seen.press("escape")
            await seen.is_left()


@pytest.mark.slow
async def test_a_chat_is_deleted_once_that_is_confirmed(home: Path) -> None:
    async with playing() as player, await connect() as other:
        await stored(other, "Delete first", "Delete never", "Delete last")
        async with listing(player, "delete") as seen:
            await seen.shows("Delete last", "Delete never", "Delete first")
            await seen.press("down", "down", "down", "d")
            await player.until(lambda: isinstance(player.app.screen, Confirm), "it asks")
            assert "Delete “Delete first”?" in " ".join(player.lines())
            await seen.press("y")
            await seen.shows("Delete last", "Delete never")
            await seen.press("delete")  # what is highlighted now is the one above
            await player.until(lambda: isinstance(player.app.screen, Confirm), "it asks")
            await seen.press("n", "up", "delete")
            await player.until(lambda: isinstance(player.app.screen, Confirm), "it asks")
            await seen.press("y")
            await seen.shows("Delete never")
            assert await titles(other, "delete") == ["Delete never"]
            await seen.press("escape")
            await seen.is_left()


@pytest.mark.slow
async def test_what_comes_when_it_was_left_is_shown_nowhere(home: Path) -> None:
    async with playing() as player, await connect() as other:
        await stored(other, "Left behind")
        async with listing(player, "left behind") as seen:
            await seen.shows("Left behind")
            screen = player.app.screen
            assert isinstance(screen, SessionsScreen)
            await seen.press("escape")
            await seen.is_left()
        await other.rename_session((await other.sessions("left behind"))[0].session, "Left still")
        await player.until(lambda: not screen.is_attached, "its widgets are gone")
        screen._is_stale = True
        await screen._read()
        await screen._open_first()


@pytest.mark.slow
async def test_a_chat_is_copied_and_exported(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with playing() as player, await connect() as other:
        (session,) = await stored(other, "Copy me")
        await other.chat(session, "What does dedent do?", options=GREEDY).result()
        async with listing(player, "copy me") as seen:
            await seen.shows("Copy me")
            await seen.press("down", "e")
            await player.until(lambda: player.toasts != [], "it is written")
            assert player.toasts == [f"Written to {tmp_path / 'Copy-me.md'}"]
            await seen.press("f")
            await seen.is_left()
        assert "# Copy me\n" in (tmp_path / "Copy-me.md").read_text()
        assert player.chat.session not in (None, session) and len(player.chat.said) == 2
        assert await titles(other, "copy me") == ["Copy me", "Copy me"]


@pytest.mark.slow
async def test_the_chat_that_is_looked_at_is_deleted(home: Path) -> None:
    async with await connect() as other:
        (session,) = await stored(other, "Look at me")
        async with playing(session=session) as player:
            assert player.chat.session == session
            async with listing(player, "look at me") as seen:
                await seen.shows("Look at me")
                await seen.press("down", "d")
                await player.until(lambda: isinstance(player.app.screen, Confirm), "it asks")
                await seen.press("y")
                await seen.shows()
                await seen.press("escape")
                await seen.is_left()
            assert player.chat.session is None and player.toasts == []
            assert await titles(other, "look at me") == []


@pytest.mark.slow
async def test_the_list_follows_what_other_programs_do(home: Path) -> None:
    async with playing() as player, await connect() as other:
        first, second = await stored(other, "Follow 1", "Follow 2")
        async with listing(player, "follow") as seen:
            await seen.shows("Follow 2", "Follow 1")
            await seen.press("down", "down")
            assert seen.widget.chosen == first
            await stored(other, "Follow 3")
            await seen.shows("Follow 3", "Follow 2", "Follow 1")
            await other.rename_session(second, "Follow two")
            await seen.shows("Follow 3", "Follow two", "Follow 1")
            await other.delete_session(second)
            await seen.shows("Follow 3", "Follow 1")
            assert seen.widget.chosen == first  # it stays highlighted
            await seen.press("escape")
            await seen.is_left()


@pytest.mark.slow
async def test_up_from_the_first_one_goes_back_to_the_search(home: Path) -> None:
    async with playing(size=(60, 20)) as player, await connect() as other:
        await stored(other, "Upwards one", "Upwards two")
        async with listing(player, "upwards") as seen:
            await seen.shows("Upwards two", "Upwards one")
            await seen.press("down")
            assert player.app.focused is seen.widget
            assert any("r rename, d delete, e export, f fork" in line for line in player.lines())
            await seen.press("up", "space", "o")
            await seen.shows("Upwards one")
            await seen.press("escape")
            await seen.is_left()


@pytest.mark.slow
async def test_more_are_listed_when_the_end_is_reached(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialog, "PAGE", 4)
    async with playing() as player, await connect() as other:
        await stored(other, *(f"More {number}" for number in range(11)))
        every = [f"More {number}" for number in reversed(range(11))]
        async with listing(player, "more ") as seen:
            await seen.shows(*every[:4])
            await seen.press("down", "down")
            await seen.shows(*every[:8])
            await seen.press("end")
            await seen.shows(*every)
            await other.rename_session((await other.sessions("more 0"))[0].session, "More than all")
            await seen.shows(*every[:-1], "More than all")  # read anew, and all of them
            await seen.press("escape")
            await seen.is_left()


@pytest.mark.slow
async def test_a_click_opens_a_chat_and_one_beside_the_list_leaves_it(home: Path) -> None:
    async with playing() as player, await connect() as other:
        _, session = await stored(other, "Click 1", "Click 2")
        async with listing(player, "click") as seen:
            await seen.shows("Click 2", "Click 1")
            await player.click(SessionList, offset=(5, 0))
            await seen.is_left()
        assert player.chat.session == session
        async with listing(player) as seen:
            await player.click()
            await seen.is_left()
