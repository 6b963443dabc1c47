"""The command's entrance: commands by name, loaded when they are called, and how they end."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from localspec._version import __version__
from localspec.cli import output
from localspec.errors import ExitCode, LocalspecError

app = App(
    name="localspec",
    help="Local models, speculating, exact: chat, complete, and the daemon that serves them.",
    version=f"localspec {__version__}",
    help_format="plaintext",
)
app.command("localspec.cli.run:run", name="run", help="Answer a prompt.")
app.command("localspec.cli.complete:complete", name="complete", help="Fill in the middle of a text.")

daemon = App(name="daemon", help="The background daemon; clients start it by themselves.")
for _name, _help in (
    ("run", "Run the daemon in the foreground."),
    ("start", "Start the daemon if it does not run, and say where it listens."),
    ("stop", "Stop the daemon; running requests end first."),
    ("status", "What the daemon is doing."),
    ("logs", "The end of the daemon's log."),
):
    daemon.command(f"localspec.cli.daemon:{_name}", name=_name, help=_help)
app.command(daemon)

models = App(name="models", help="The models on this disk.")
models.command("localspec.cli.models:list_", name="list", help="Every model that can be named with -m.")
app.command(models)
app.register_install_completion_command(add_to_startup=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit code. All ways a command can end come through here."""
    try:
        code = app(arguments, exit_on_error=False, result_action="return_value")
        sys.stdout.flush()
        return int(code or ExitCode.OK)
    except CycloptsError:
        return ExitCode.USAGE
    except LocalspecError as error:
        output.failure(error, as_json="--json" in arguments or "--stream-json" in arguments)
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more: `| head` has seen enough. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK


if __name__ == "__main__":
    main()
