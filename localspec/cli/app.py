"""The commands by name; their code is loaded when they are called."""

from __future__ import annotations

from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from localspec._version import __version__
from localspec.cli.output import arguments, examples
from localspec.errors import ExitCode

EXIT_CODES = """\
Exit codes: 0 ok, 1 error (such as an unknown session or model), 2 wrong usage (or an input file that does \
not exist), 69 daemon, backend or service unavailable, 75 busy or past the deadline, 130 Ctrl-C."""
app = App(
    name="localspec",
    help="Answer prompts and complete code with local models, sped up by exact speculative decoding.",
    help_epilogue=f"{EXIT_CODES}\n\n"
    + examples(
        "localspec run 'Explain what a hash table is, in three sentences.'",
        "localspec models list",
        "localspec doctor",
        "localspec models pull --help",
    ),
    version=f"localspec {__version__}",
    help_format="plaintext",
    default_parameter=Parameter(show_default=False, negative=""),
    suppress_keyboard_interrupt=False,
)
app.command(
    "localspec.cli.run:run",
    help="Answer a prompt.",
    usage=arguments("run", "[PROMPT...]"),
    help_epilogue=f"""Text piped in comes first, then the argument. The answer streams to stdout, everything \
else goes to stderr; Ctrl-C ends the generation. {EXIT_CODES}

"""
    + examples(
        "localspec run 'Explain what a hash table is, in three sentences.'",
        "git diff | localspec run 'Write a commit message'",
        "localspec run -c 'Shorter, please'",
        "echo 'def add(a, b):' | localspec run --raw --json",
    ),
)
app.command(
    "localspec.cli.chat:chat",
    help="Chat in the terminal.",
    help_epilogue=examples("localspec chat -c", "localspec chat -m qwen2.5-coder:0.5b --private"),
)
app.command(
    "localspec.cli.run:complete",
    help="Fill in the middle: print the text between a prefix and a suffix.",
    help_epilogue=examples(
        "localspec complete --prefix-file before.py --suffix-file after.py",
        "head -n 20 app.py | localspec complete --language python --json",
    ),
)
app.command(
    "localspec.lsp.serve:serve",
    name="lsp",
    help="Run a language server that completes code in an editor.",
    help_epilogue="""The editor starts it and speaks LSP 3.18 over its stdin and stdout. The setup in \
Neovim, Emacs and other editors is described in plugins/lsp/README.md of localspec's source.""",
)
for _name, _help in (
    ("daemon", "Manage the background daemon; clients start it when they need it."),
    ("service", "Run the daemon as a service, started at login: a systemd user unit, or a launchd agent."),
    ("models", "Manage the models on this disk and in memory."),
    ("config", "Show and change the settings."),
    ("memory", "Manage the n-gram memory: n-grams learnt from your texts, stored on this disk."),
    ("rpc", "Serve this machine's memory to a GGUF model of another one, over llama.cpp's RPC."),
    ("bench", "Measure a model, in some 7 minutes: plain decoding against speculation, in turn."),
):
    app.command(f"localspec.cli.{_name}:app", name=_name, help=_help)
app.command(
    "localspec.ranks.follower:main",
    name="follow",
    help="Hold a share of an MLX model for another machine, whose daemon runs this by ssh.",
    help_epilogue=examples("localspec config set nodes '[\"mac-b\"]'"),
)
app.command(
    "localspec.cli.doctor:doctor",
    help="Check what works on this machine, and print a remedy for what does not.",
    help_epilogue="""Checks Python, each backend and its device, config.toml, the default model, its draft \
model and their memory, the daemon, its HTTP server and the disk. Each line is ok, warning or problem, with \
a remedy where one is needed. Exits with 1 if there is a problem.""",
)
app.command(
    "localspec.cli.purge:purge",
    help="Remove what localspec keeps on this disk, after a list of it and a question.",
    usage=arguments("purge", "[PARTS...]"),
    help_epilogue=examples("localspec purge --keep-models", "localspec purge sessions caches --yes"),
)
app.command(
    "localspec.cli.shell:install",
    name="--install-completion",
    help="Install shell completion of commands, flags, and names of models and sessions.",
    help_epilogue=examples("localspec --install-completion --shell zsh --output _localspec"),
)


def call(arguments: Sequence[str]) -> int:
    """Run the command of these arguments; raises :class:`InvalidOptions` for those that are none."""
    try:
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        from localspec.cli.usage import translate_error  # of no use to a command that can be run

        raise translate_error(error) from None
    return int(code or ExitCode.OK)
