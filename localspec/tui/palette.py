"""The entries of the command palette: commands, and themes by name."""

from __future__ import annotations

from collections.abc import Callable

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.theme import ThemeProvider

from localspec.tui.commands.command import Command
from localspec.tui.commands.registry import COMMANDS
from localspec.tui.screens.chat import ChatScreen


class CommandHits(Provider):
    """The commands that can be typed after a slash."""

    async def discover(self) -> Hits:
        for command in COMMANDS.all():
            yield DiscoveryHit(
                _title(command, Content(command.name)), self._chosen(command), help=command.help
            )

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in COMMANDS.all():
            score = matcher.match(command.name)
            if score > 0 or query.lower() in command.help.lower():
                title = _title(command, matcher.highlight(command.name))
                yield Hit(score, title, self._chosen(command), help=command.help)

    def _chosen(self, command: Command) -> Callable[[], None]:
        """The action of an entry: run the command, or type it into the prompt if it needs an argument."""
        screen = self.screen
        assert isinstance(screen, ChatScreen)

        def chosen() -> None:
            if command.argument and not command.argument.startswith("["):
                screen.begin(f"/{command.name} ")
            else:
                screen.action_run(command.name)

        return chosen


class ThemeHits(ThemeProvider):
    """Themes, listed only in a search: all of them would hide the commands."""

    async def discover(self) -> Hits:
        return
        yield


def _title(command: Command, name: Content) -> Content:
    key = f"  ({command.key})" if command.key else ""
    return Content.assemble("/", name, f" {command.argument}" if command.argument else "", key)
