"""``localspec memory …``: the n-gram memory's files, with a daemon or without."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from localspec import home
from localspec.cli import output
from localspec.cli.answer import workspace_at
from localspec.cli.flags import AsJson
from localspec.cli.output import arguments, examples
from localspec.errors import ExitCode, InvalidOptions
from localspec.memory import memory
from localspec.protocol.messages import TableStats
from localspec.wording import count_noun, size

SHOWN_SOURCES = 3
app = App(name="memory", help_epilogue=examples("localspec memory stats", "localspec memory prime src/"))


@app.command
def stats(*, as_json: AsJson = False) -> int:
    """List every table of the n-gram memory, its size and its sources."""
    tables = memory.stats(memory_directory(), notice)
    lines = [line for table in tables for line in _lines(table)] or ["Nothing is remembered yet."]
    output.show({"tables": tables}, "\n".join(lines) + "\n", as_json=as_json)
    return ExitCode.OK


def _lines(table: TableStats) -> Iterator[str]:
    yield f"{table.workspace or 'user'} (vocabulary {table.vocab_fp})"
    used = f"{table.entries} of {table.capacity} n-grams ({table.occupancy:.0%})"
    yield f"  {used}, {size(table.bytes)}"
    if table.last_use is not None:
        yield f"  last learnt {datetime.fromtimestamp(table.last_use):%Y-%m-%d %H:%M}"
    names = [f"{count_noun(count, 'n-gram')} from {name}" for name, count in table.sources.items()]
    more = [f"and from {len(names) - SHOWN_SOURCES} more"] if len(names) > SHOWN_SOURCES else []
    if names:
        yield f"  {', '.join(names[:SHOWN_SOURCES] + more)}"


@app.command(
    help_epilogue=examples(
        "localspec memory forget --workspace .",
        "localspec memory forget --source file:$PWD/app.py --yes",
        "localspec memory forget --all --yes",
    )
)
def forget(
    *,
    workspace: str | None = None,
    source: str | None = None,
    every: Annotated[bool, Parameter(name="--all")] = False,
    yes: bool = False,
    as_json: AsJson = False,
) -> int:
    """Forget what the n-gram memory learnt in a workspace, from a source, or all of it.

    The history of chats is another file and is kept.

    Parameters
    ----------
    workspace
        Only n-grams learnt in the workspace of this directory.
    source
        Only n-grams learnt from this source, by its name in `localspec memory stats --json`.
    every
        All n-grams of all workspaces.
    yes
        Do not ask.
    """
    _check_selection(workspace, source, every=every)
    if workspace is not None:
        path = os.path.abspath(os.path.expanduser(workspace))
        workspace = workspace_at(Path(path)) or path
    scope = f" from {source!r}" if source is not None else ""
    scope += f" in {workspace}" if workspace is not None else ""
    what = "the memory of all workspaces" if every else f"what was learnt{scope}"
    if not yes:
        held = memory.count(memory_directory(), notice, workspace=workspace) if source is None else None
        amount = "" if held is None else f" ({count_noun(held, 'table')})"
        if not output.ask_confirmation(f"Forget {what}{amount}? It cannot be undone."):
            output.note("Nothing was forgotten.")
            return ExitCode.ERROR
    forgotten = memory.forget(memory_directory(), notice, workspace=workspace, source=source)
    unit = "table" if source is None else "n-gram"
    nothing = f"There is nothing to forget: nothing was learnt{scope}.\n"
    text = f"Forgot {what}: {count_noun(forgotten, unit)}.\n" if forgotten else nothing
    output.show({"forgotten": forgotten, "unit": f"{unit}s"}, text, as_json=as_json)
    return ExitCode.OK


def _check_selection(workspace: str | None, source: str | None, *, every: bool) -> None:
    """Raise :class:`InvalidOptions` unless the flags of `memory forget` say what is forgotten."""
    if workspace == "":
        raise InvalidOptions("--workspace is empty", "Give a directory, or drop --workspace.")
    if workspace is None and source is None and not every:
        raise InvalidOptions(
            "nothing is selected to be forgotten",
            "Add --workspace . (this workspace), --source NAME (a file or a chat), or --all.",
        )
    if every and not (workspace is None and source is None):
        raise InvalidOptions(
            "--all cannot be combined with --workspace or --source", "Drop --all, or the others."
        )


app.command(
    "localspec.cli.prime:prime",
    help="Learn text files in advance, each into the table of its workspace.",
    usage=arguments("memory prime", "[PATHS...]"),
    help_epilogue=examples("localspec memory prime src/", "localspec memory prime app.py --workspace ."),
)


def memory_directory() -> Path:
    return home.data_dir() / "memory"


def notice(text: str) -> None:
    output.note(f"localspec: {text}")
