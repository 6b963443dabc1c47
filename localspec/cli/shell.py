"""``localspec --install-completion``: shell completion of commands, flags, names of models and sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from localspec import home
from localspec.cli import output
from localspec.cli.app import app
from localspec.errors import ExitCode, InvalidOptions

Shell = Literal["bash", "zsh", "fish"]
NEXT = {
    "bash": "Open a new shell. Without the package bash-completion, add to ~/.bashrc: . {path}",
    "zsh": "Add to ~/.zshrc, if it is not there: fpath=({folder} $fpath); autoload -Uz compinit && compinit",
    "fish": "Open a new shell.",
}
FILES = 'COMPREPLY=( $(compgen -f -- "${cur}") )'
"""file completion in the generated bash script: it splits names at blanks, and quotes no code in them"""
NO_WORDS = "COMPREPLY=()"
"""with ``-o default`` bash completes a name of a file itself"""
COLONS = """
# Bash begins a new word at each colon, and names of models have some: the words are joined for the function
# above, and of what it offers the part that bash has already is cut off.
_localspec_joined() {
  local -a words=()
  local word last=""
  for word in "${COMP_WORDS[@]:0:COMP_CWORD + 1}"; do
    if [[ "$word" == :* || "$last" == *: ]]; then words[${#words[@]} - 1]+="$word"; else words+=("$word"); fi
    last="$word"
  done
  local COMP_CWORD=$((${#words[@]} - 1))
  local -a COMP_WORDS=("${words[@]}")
  _localspec "$@"
  last="${words[COMP_CWORD]}"
  if [[ "$last" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
    COMPREPLY=("${COMPREPLY[@]#"${last%"${last##*:}"}"}")
  fi
}
complete -o default -F _localspec_joined localspec
"""
ANY_NAME = """
# So that it completes whatever the name of this file is.
_cyclopts_localspec "$@"
"""
MORE: dict[Shell, str] = {"bash": COLONS, "zsh": ANY_NAME}


def install(
    *, shell: Shell | None = None, to: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None
) -> int:
    """Write the completion script where the shell looks for it, and print the remaining step.

    Parameters
    ----------
    shell
        Shell to complete in; otherwise the one that started this command.
    to
        Write the script to this file instead.
    """
    from cyclopts.completion.install import get_default_completion_path

    shell = shell or _this_shell()
    if to is None:
        home.of_user()  # raises if it is unknown
    path = (to or get_default_completion_path(shell, "localspec")).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(shell), encoding="utf-8")
    output.write(f"Installed {path}\n")
    output.note(NEXT[shell].format(path=path, folder=path.parent))
    return ExitCode.OK


def script(shell: Shell) -> str:
    return app.generate_completion(shell=shell).replace(FILES, NO_WORDS) + MORE.get(shell, "")


def _this_shell() -> Shell:
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    try:
        found = detect_shell()
    except ShellDetectionError:
        found = None
    if found is not None and found != "powershell":
        return found
    raise InvalidOptions(
        "the shell is unknown: there is completion for bash, zsh and fish", "Name one of them with --shell."
    )
