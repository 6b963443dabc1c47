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
    ("list", "Every model that can be named with -m."),
    ("load", "Load a model into the daemon before it is needed."),
    ("unload", "Unload a model, or all; one at work is left alone."),
):
    models.command(f"localspec.cli.models:{_name.replace('list', 'list_')}", name=_name, help=_help)
models.command(
    "localspec.cli.pull:pull",
    name="pull",
    help="Download a model from the Hugging Face hub, into its cache.",
    help_epilogue="""Without a quantisation, one of about four bits is chosen, or a smaller one where memory \
is short. Broken off, the same command goes on where it was. HF_TOKEN, HF_ENDPOINT, HF_HOME and HF_HUB_CACHE \
mean what they mean to the hub's own programs.

Examples:
  localspec models pull Qwen/Qwen2.5-Coder-7B-Instruct-GGUF
  localspec models pull Qwen/Qwen2.5-Coder-7B-Instruct-GGUF:Q5_K_M --draft
  localspec models pull mlx-community/Qwen3-4B-4bit --mlx""",
)
models.command(
    "localspec.cli.pull:remove",
    name="rm",
    help="Remove a model that `models pull` downloaded; those of other programs stay.",
    help_epilogue="""What another model needs is kept. A loaded one is unloaded first, and left alone while \
it is at work.

Examples:
  localspec models rm Qwen/Qwen2.5-Coder-7B-Instruct-GGUF:Q5_K_M
  localspec models rm Qwen/Qwen2.5-Coder-7B-Instruct-GGUF --yes --json""",
)
app.command(models)

config = App(name="config", help="The settings: what they are, who says so, and changing them.")
for _name, _help, _examples in (
    (
        "show",
        "Every setting, its value, and who says so; what is printed is a valid config.toml.",
        ("show --describe", "show -m bundled --workspace ~/src/project", "show --json"),
    ),
    ("get", "The value of one setting.", ("get n_ctx", "get temperature -m bundled --json")),
    (
        "set",
        "Write one setting to config.toml, for all or for one model or workspace; or take it out.",
        (
            "set n_ctx 8192",
            "set temperature 0.2 -m bundled",
            "set remember false --workspace ~/src/project",
            """set model_dirs '["~/models"]'""",
            "set n_ctx --unset",
        ),
    ),
    ("path", "Where config.toml is.", ("path",)),
    ("edit", "Open config.toml in your editor; what is not valid is never used.", ("edit",)),
):
    config.command(
        f"localspec.cli.config:{_name.replace('set', 'set_')}",
        name=_name,
        help=_help,
        help_epilogue="\n".join(["Examples:", *(f"  localspec config {each}" for each in _examples)]),
    )
app.command(config)
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
