"""The commands by name; their code is loaded when they are called."""

from __future__ import annotations

import sys

from cyclopts import App, Parameter

from localspec._version import __version__

app = App(
    name="localspec",
    help="Local models, speculating, exact: answers, completions, and the daemon that serves them.",
    version=f"localspec {__version__}",
    help_format="plaintext",
    default_parameter=Parameter(show_default=False, negative=""),
)
app.command(
    "localspec.cli.run:run",
    name="run",
    help="Answer a prompt.",
    help_epilogue="""Text piped in comes first, then the argument. The answer streams to stdout, everything \
else goes to stderr; Ctrl-C ends the generation. Exit codes: 0 ok, 1 error (no such model or session, too), \
2 usage (a file that is not there, too), 69 daemon or backend unavailable, 75 busy or deadline, 130 Ctrl-C.

Examples:
  localspec run 'What does textwrap.dedent do?'
  git diff | localspec run 'Write a commit message'
  localspec run -c 'Shorter, please'
  echo 'def add(a, b):' | localspec run --raw --json""",
)
app.command(
    "localspec.cli.complete:complete",
    name="complete",
    help="Fill in the middle: print what stands between a prefix and a suffix.",
    help_epilogue="""Examples:
  localspec complete --prefix-file before.py --suffix-file after.py
  head -n 20 app.py | localspec complete --language python --json""",
)

daemon = App(name="daemon", help="The background daemon; clients start it by themselves.")
for _name, _help in (
    ("run", "Run the daemon in the foreground, logging to stderr, until Ctrl-C."),
    ("start", "Start the daemon if it does not run, and say where it listens."),
    ("stop", "Stop the daemon; running requests end with the text so far."),
    ("status", "What the daemon is doing; exits with 69 if none runs."),
    ("logs", "The end of the log of the daemon that clients start."),
):
    daemon.command(f"localspec.cli.daemon:{_name}", name=_name, help=_help)
app.command(daemon)

models = App(name="models", help="The models on this disk, and in memory.")
for _name, _help in (
    ("list", "Every model on this disk, whichever program keeps it."),
    ("show", "All that is known of one model, and what memory it needs."),
    ("load", "Load a model into the daemon before it is needed."),
    ("unload", "Unload a model, or all; one at work is left alone."),
):
    models.command(f"localspec.cli.models:{_name.replace('list', 'list_')}", name=_name, help=_help)
app.command(models)
app.command(
    "localspec.cli.doctor:doctor",
    name="doctor",
    help="Check what is usable here, and say what to do where something is not.",
)
app.command(
    "localspec.cli.bench:app",
    name="bench",
    help="Measure this machine: plain against every proposer.",
)

memory = App(name="memory", help="The n-gram memory: what was learned from your texts, on this disk.")
for _name, _help in (
    ("stats", "What is remembered: every table, its size, and who taught it."),
    ("forget", "Forget a workspace, a source, or all of the n-gram memory."),
    ("prime", "Learn text files before they are needed, into the table of their git repository."),
    ("export", "Write the n-grams of a model's vocabulary to a file, as lines of JSON."),
    ("import", "Add the n-grams of an exported file, and say how many found room."),
):
    memory.command(f"localspec.cli.memory:{_name.replace('import', 'import_')}", name=_name, help=_help)
app.command(memory)
if "--install-completion" in sys.argv or "--help" in sys.argv or "-h" in sys.argv:
    # What it needs takes as long to load as all of the above.
    app.register_install_completion_command(add_to_startup=False)
