"""All commands: importing this module registers every one of them."""

from localspec.tui.commands import attach, messages, models, sampling, sessions, view
from localspec.tui.commands.command import COMMANDS

__all__ = ["COMMANDS", "attach", "messages", "models", "sampling", "sessions", "view"]
