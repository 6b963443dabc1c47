"""The command's entry point: every error becomes a message and an exit code here."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from localspec._version import __version__
from localspec.cli import output
from localspec.errors import ExitCode, LocalspecError, StorageError, of_system

TAKE_STDIN = ("-f", "--file", "--schema", "--grammar")
"""flags of `run` of which ``-`` is the value"""


def main(arguments: Sequence[str] | None = None) -> None:
    code = run(sys.argv[1:] if arguments is None else arguments)
    _drop_unwritten()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    as_json = any(a.partition("=")[0] in ("--json", "--stream-json") for a in arguments)
    output.prepare()
    try:
        return _dispatch(arguments)
    except (BrokenPipeError, SystemExit):  # the latter is how Rich, which writes help, ends on the former
        return ExitCode.OK  # the reader has closed the pipe, as `| head` does
    except LocalspecError as error:
        return _fail(error, as_json=as_json)
    except KeyboardInterrupt:
        output.end_interrupted_line()
        return ExitCode.INTERRUPTED
    except Exception as error:  # of the system, or a defect: still one sentence
        known = isinstance(error, OSError) and (of_system(error, "the command failed") or _unusable(error))
        return _fail(known or _make_defect_error(error), as_json=as_json)


def _unusable(error: OSError) -> LocalspecError | None:
    """The error of a file, as on a disk that cannot be written; None if it names none."""
    remedy = "Check that it and its directory can be written to; LOCALSPEC_HOME moves localspec's own files."
    what = f"{error.filename} cannot be used: {error.strerror}"
    return None if error.filename is None else StorageError(what, remedy)


def _make_defect_error(error: Exception) -> LocalspecError:
    return LocalspecError(f"{type(error).__name__}: {error}", "Report this message and the command.")


def _dispatch(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--version"]:
        # Scripts and editors run this at every start: no parser is loaded for it.
        output.write(f"localspec {__version__}\n")
        return ExitCode.OK
    if [*arguments[:1]] == ["chat"]:
        gc.disable()  # imports make no garbage: looking for it takes a twentieth of the start
        if len(arguments) == 1:  # the usual start of a chat: no parser is loaded for it
            from localspec.cli.begin import begin

            return begin()

    from localspec.cli.app import call

    if [*arguments[:1]] == ["run"]:  # stdin is read anyway
        arguments = [a for i, a in enumerate(arguments) if a != "-" or arguments[i - 1] in TAKE_STDIN]
    code = call(arguments)
    output.write("")
    return code


def _drop_unwritten() -> None:
    """Discard text that stdout did not accept: Python would write it again at exit, and report an error."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: LocalspecError, *, as_json: bool) -> int:
    try:
        output.failure(error, as_json=as_json)
    except LocalspecError as unwritten:
        output.failure(unwritten, as_json=False)
    return error.exit_code


if __name__ == "__main__":
    main()
