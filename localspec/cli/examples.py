"""The examples at the end of every ``--help``; tests run those that can be run."""

from __future__ import annotations

EXIT_CODES = """\
Exit codes: 0 ok, 1 error (such as an unknown session or model), 2 wrong usage (or an input file that does \
not exist), 69 daemon, backend or service unavailable, 75 busy or past the deadline, 130 Ctrl-C."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "localspec run 'Explain what a hash table is, in three sentences.'",
        "localspec models list",
        "localspec doctor",
        "localspec models pull --help",
    ),
    "--install-completion": (
        "localspec --install-completion",
        "localspec --install-completion --shell zsh --output _localspec",
    ),
    "run": (
        "localspec run 'Explain what a hash table is, in three sentences.'",
        "git diff | localspec run 'Write a commit message'",
        "localspec run -c 'Shorter, please'",
        "echo 'def add(a, b):' | localspec run --raw --json",
    ),
    "chat": ("localspec chat", "localspec chat -c", "localspec chat -m qwen2.5-coder:0.5b --private"),
    "complete": (
        "localspec complete --prefix-file before.py --suffix-file after.py",
        "head -n 20 app.py | localspec complete --language python --json",
    ),
    "lsp": ("localspec lsp",),
    "bridge": ("localspec bridge",),
    "daemon": ("localspec daemon status", "localspec daemon logs --follow"),
    "daemon run": ("localspec daemon run", "localspec daemon run --http"),
    "daemon token": (
        "localspec daemon token",
        "localspec daemon token --new",
        "localspec daemon token --wire --new",
    ),
    "daemon start": ("localspec daemon start", "localspec daemon start --json"),
    "daemon status": ("localspec daemon status", "localspec daemon status --json"),
    "daemon logs": ("localspec daemon logs -n 100", "localspec daemon logs --follow"),
    "daemon stop": ("localspec daemon stop",),
    "daemon restart": ("localspec daemon restart", "localspec daemon restart --json"),
    "service": ("localspec service install", "localspec service status"),
    "service install": ("localspec service install", "LOCALSPEC_HOME=~/portable localspec service install"),
    "service uninstall": ("localspec service uninstall",),
    "service status": ("localspec service status", "localspec service status --json"),
    "service logs": ("localspec service logs -n 100", "localspec service logs --follow"),
    "models": ("localspec models list", "localspec models load -m qwen2.5-coder:0.5b"),
    "models list": (
        "localspec models list",
        "localspec models list coder --paths",
        "localspec models list ollama --json",
    ),
    "models load": (
        "localspec models load",
        "localspec models load -m qwen2.5-coder:0.5b --keep-alive 3600",
    ),
    "models unload": ("localspec models unload", "localspec models unload qwen2.5-coder:0.5b"),
    "models show": ("localspec models show qwen2.5-coder:0.5b", "localspec models show bundled --json"),
    "models pair": (
        "localspec models pair",
        "localspec models pair qwen2.5-coder:0.5b --n-ctx 2048",
        "localspec models pair qwen2.5-coder:0.5b --json",
    ),
    "models pull": (
        "localspec models pull",
        "localspec models pull qwen2.5-coder:1.5b --draft",
        "localspec models pull Qwen/Qwen2.5-Coder-7B-Instruct-GGUF:Q5_K_M --draft",
        "localspec models pull mlx-community/Qwen3-4B-4bit --mlx",
    ),
    "models rm": (
        "localspec models rm Qwen/Qwen2.5-Coder-7B-Instruct-GGUF:Q5_K_M",
        "localspec models rm Qwen/Qwen2.5-Coder-7B-Instruct-GGUF --yes --json",
    ),
    "config": ("localspec config show", "localspec config set n_ctx 8192"),
    "config show": (
        "localspec config show --describe",
        "localspec config show -m qwen2.5-coder:0.5b",
        "localspec config show --json",
    ),
    "config set": (
        "localspec config set n_ctx 8192",
        "localspec config set temperature 0.2 -m qwen2.5-coder:0.5b",
        """localspec config set model_dirs '["~/models"]'""",
        "localspec config set n_ctx --unset",
    ),
    "config path": ("localspec config path",),
    "config edit": ("localspec config edit",),
    "memory": ("localspec memory stats", "localspec memory prime src/"),
    "memory stats": ("localspec memory stats", "localspec memory stats --json"),
    "memory forget": (
        "localspec memory forget --workspace .",
        "localspec memory forget --source file:$PWD/app.py --yes",
        "localspec memory forget --all --yes",
    ),
    "memory prime": ("localspec memory prime src/", "localspec memory prime app.py --workspace ."),
    "doctor": ("localspec doctor", "localspec doctor --json", "localspec doctor --clients"),
    "bench": (
        "localspec bench",
        "localspec bench --workload edit --workload code --plot bench.svg",
        "localspec bench --record answers.jsonl --runs 1",
    ),
    "bench simulate": (
        "localspec bench simulate answers.jsonl --proposer memory -k 8",
        "localspec bench simulate answers.jsonl --proposer auto --cost 1=12,5=42,16=72",
    ),
}


ARGUMENTS = {
    "run": "[PROMPT...]",
    "models list": "[FILTER]",
    "models load": "[MODEL]",
    "models unload": "[MODEL]",
    "models pair": "[MODEL]",
    "models pull": "[REPOSITORY]",
    "config set": "KEY [VALUE]",
    "memory prime": "[PATHS...]",
}
"""optional arguments by name; cyclopts itself writes [ARGS] for them"""


def usage(command: str) -> str | None:
    """The first line of the help of ``localspec <command>``; None: cyclopts writes it."""
    arguments = ARGUMENTS.get(command)
    return None if arguments is None else f"Usage: localspec {command} [OPTIONS] {arguments}"


def epilogue(command: str) -> str:
    """The end of the help of ``localspec <command>``."""
    lines = "\n".join(f"  {line}" for line in EXAMPLES[command])
    return f"Examples:\n{lines}"
