"""The commands by name; their code is loaded when they are called."""

from __future__ import annotations

from cyclopts import App

from localspec._version import __version__

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
