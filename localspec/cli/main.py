"""The command's entrance: every way a command can end comes through here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from localspec._version import __version__
from localspec.cli import output
from localspec.errors import ExitCode, LocalspecError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit code."""
    try:
        if list(arguments) == ["--version"]:
            # Asked by scripts and editors at every start: not worth loading the command line for.
            output.write(f"localspec {__version__}\n")
            return ExitCode.OK
        return _dispatch(arguments)
    except LocalspecError as error:
        output.failure(error, as_json="--json" in arguments or "--stream-json" in arguments)
        return error.exit_code
    except KeyboardInterrupt:
        output.end_line()
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more: `| head` has seen enough. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK


def _dispatch(arguments: Sequence[str]) -> int:
    from cyclopts import CycloptsError

    from localspec.cli.app import app

    try:
        code = app(arguments, exit_on_error=False, result_action="return_value")
        output.write("")
        return int(code or ExitCode.OK)
    except CycloptsError:
        return ExitCode.USAGE


if __name__ == "__main__":
    main()
