"""All commands: importing this module brings every one of them in."""

from localspec.tui.commands import attach, messages, models, sampling, sessions, view
from localspec.tui.commands.command import COMMANDS

__all__ = ["COMMANDS", "attach", "messages", "models", "sampling", "sessions", "view"]
