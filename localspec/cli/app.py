"""The commands by name; their code is loaded when they are called."""

from __future__ import annotations

from cyclopts import App, Parameter

from localspec._version import __version__
from localspec.cli.examples import EXIT_CODES, epilogue

app = App(
    name="localspec",
    help="Models on this machine that answer and complete code, sped up by exact speculative decoding.",
    help_epilogue=f"{EXIT_CODES}\n\n{epilogue('')}",
    version=f"localspec {__version__}",
    help_format="plaintext",
    default_parameter=Parameter(show_default=False, negative=""),
    suppress_keyboard_interrupt=False,
)
app.command(
    "localspec.cli.run:run",
    name="run",
    help="Answer a prompt.",
    help_epilogue=f"""Text piped in comes first, then the argument. The answer streams to stdout, everything \
else goes to stderr; Ctrl-C ends the generation. {EXIT_CODES}

{epilogue("run")}""",
)
app.command(
    "localspec.cli.chat:chat",
    name="chat",
    help="Chat in the terminal.",
    help_epilogue=epilogue("chat"),
)
app.command(
    "localspec.cli.complete:complete",
    name="complete",
    help="Fill in the middle: print what stands between a prefix and a suffix.",
    help_epilogue=epilogue("complete"),
)
app.command(
    "localspec.bridge:bridge",
    name="bridge",
    help="The daemon's wire on stdin and stdout, one JSON-RPC message a line; for editors.",
    help_epilogue=f"""Starts the daemon if need be. Ends with stdin, or with 69 when the daemon is lost; the \
next one finds another daemon. Say `initialize` first.

{epilogue("bridge")}""",
)

app.command(
    "localspec.cli.lsp:lsp",
    name="lsp",
    help="Complete in an editor, as its language server.",
    help_epilogue=f"""An editor starts it, and speaks LSP 3.18 with it over stdin and stdout. How that is \
set up in Neovim, Emacs and others is told in plugins/lsp/README.md of localspec's source.

{epilogue("lsp")}""",
)

daemon = App(
    name="daemon",
    help="The background daemon; clients start it by themselves.",
    help_epilogue=epilogue("daemon"),
)
for _name, _help in (
    ("run", "Run the daemon in the foreground, logging to stderr, until Ctrl-C."),
    ("start", "Start the daemon if it does not run, and say where it listens."),
    ("stop", "Stop the daemon; running requests end with the text so far."),
    ("restart", "Stop the daemon and start one with the settings and the environment of now."),
    ("status", "What the daemon is doing; exits with 69 if none runs."),
):
    daemon.command(
        f"localspec.cli.daemon:{_name}", name=_name, help=_help, help_epilogue=epilogue(f"daemon {_name}")
    )
daemon.command(
    "localspec.cli.daemon:token",
    name="token",
    help="Print the token of the HTTP door.",
    help_epilogue=f"""Whoever asks there has to show it: in the field for a key that other programs have, or \
in a header, `Authorization: Bearer …`. It opens nothing else.

{epilogue("daemon token")}""",
)
LOGS = "The end of the daemon's log, whether a client or the service started it."
daemon.command("localspec.cli.logs:logs", name="logs", help=LOGS, help_epilogue=epilogue("daemon logs"))
app.command(daemon)

service = App(
    name="service",
    help="The daemon as a service, started at login: a systemd user unit, or a launchd agent on macOS.",
    help_epilogue=epilogue("service"),
)
for _name, _help in (
    ("install", "Start the daemon at login from now on, and now; safe to repeat."),
    ("uninstall", "End the service and start it no more."),
    ("status", "Whether the service is installed and runs; exits with 69 if not."),
    ("logs", LOGS),
):
    service.command(
        f"localspec.cli.service:{_name}", name=_name, help=_help, help_epilogue=epilogue(f"service {_name}")
    )
app.command(service)

models = App(name="models", help="The models on this disk, and in memory.", help_epilogue=epilogue("models"))
for _name, _help in (
    ("list", "Every model on this disk, whichever program keeps it."),
    ("show", "All that is known of one model, and what memory it needs."),
    ("load", "Load a model into the daemon before it is needed."),
    ("unload", "Unload a model, or all; one at work is left alone."),
):
    models.command(
        f"localspec.cli.models:{_name.replace('list', 'list_')}",
        name=_name,
        help=_help,
        help_epilogue=epilogue(f"models {_name}"),
    )
models.command(
    "localspec.cli.pull:pull",
    name="pull",
    help="Download a model from the Hugging Face hub, into its cache.",
    help_epilogue=f"""Without a quantisation, one of about four bits is chosen, or a smaller one where \
memory is short. Broken off, the same command goes on where it was. HF_TOKEN, HF_ENDPOINT, HF_HOME and \
HF_HUB_CACHE mean what they mean to the hub's own programs.

{epilogue("models pull")}""",
)
models.command(
    "localspec.cli.pull:remove",
    name="rm",
    help="Remove a model that `models pull` downloaded; those of other programs stay.",
    help_epilogue=f"""What another model needs is kept. A loaded one is unloaded first, and left alone while \
it is at work.

{epilogue("models rm")}""",
)
models.command(
    "localspec.cli.pair:pair",
    name="pair",
    help="Which draft model goes with a model, and why not the others.",
    help_epilogue=epilogue("models pair"),
)
app.command(models)

config = App(
    name="config",
    help="The settings: what they are, who says so, and how to change them.",
    help_epilogue=epilogue("config"),
)
for _name, _help in (
    ("show", "Every setting, its value, and who says so; what is printed is a valid config.toml."),
    ("get", "The value of one setting."),
    ("set", "Write one setting to config.toml, for all or for one model or workspace; or take it out."),
    ("path", "Where config.toml is."),
    ("edit", "Open config.toml in your editor; what is not valid is never used."),
):
    config.command(
        f"localspec.cli.config:{_name.replace('set', 'set_')}",
        name=_name,
        help=_help,
        help_epilogue=epilogue(f"config {_name}"),
    )
app.command(config)
app.command(
    "localspec.cli.doctor:doctor",
    name="doctor",
    help="Check what is usable here, and say what to do where something is not.",
    help_epilogue=f"""Python and the packages, each backend and its device, config.toml, the models and what \
cannot be used, the default model, its draft and whether both fit, memory, disks, rights, the daemon, its \
socket, the service, the HTTP door, editors: each line is ok, warning or problem, and says what mends it. \
Exits with 1 if there is a problem.

{epilogue("doctor")}""",
)
app.command(
    "localspec.cli.bench:app",
    name="bench",
    help="Measure what speculation gains on this machine.",
)

memory = App(
    name="memory",
    help="The n-gram memory: what was learned from your texts, on this disk.",
    help_epilogue=epilogue("memory"),
)
for _name, _help in (
    ("stats", "What is remembered: every table, its size, and who taught it."),
    ("forget", "Forget a workspace, a source, or all of the n-gram memory."),
    ("prime", "Learn text files before they are needed, into the table of their workspace."),
    ("export", "Write the n-grams of a model's vocabulary to a file, as lines of JSON."),
    ("import", "Add the n-grams of an exported file, and say how many found room."),
):
    memory.command(
        f"localspec.cli.memory:{_name.replace('import', 'import_')}",
        name=_name,
        help=_help,
        help_epilogue=epilogue(f"memory {_name}"),
    )
app.command(memory)
app.command(
    "localspec.cli.shell:install",
    name="--install-completion",
    help="Have the shell complete commands, flags, and names of models and sessions.",
    help_epilogue=epilogue("--install-completion"),
)
