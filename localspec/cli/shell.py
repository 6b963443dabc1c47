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
"""file completion in the generated bash script: it splits names at blanks and does not quote what the shell
would run"""
SAFE_FILES = '_localspec_files "$cur"'
COLONS = """
# Names of files as a shell reads them: by bash itself, or, before bash 4, here.
_localspec_files() {
  local found quoted
  compopt -o filenames 2>/dev/null && quoted=0 || quoted=1
  COMPREPLY=()
  while IFS= read -r found; do
    [[ $quoted -eq 1 ]] && printf -v found '%q' "$found"
    COMPREPLY+=("$found")
  done < <(compgen -f -- "$1")
}

# Bash begins a new word at each colon, and names of models have some: the words are joined for the function
# above, and of what it offers the part that bash has already is cut off.
_localspec_joined() {
  local -a words=("${COMP_WORDS[0]}")
  local i cword=0 glued=0 current
  for ((i = 1; i < ${#COMP_WORDS[@]}; i++)); do
    if [[ $glued -eq 1 || "${COMP_WORDS[i]}" == :* ]]; then
      words[${#words[@]} - 1]+="${COMP_WORDS[i]}"
    else
      words+=("${COMP_WORDS[i]}")
    fi
    [[ "${COMP_WORDS[i]}" == *: ]] && glued=1 || glued=0
    [[ $i -eq $COMP_CWORD ]] && cword=$((${#words[@]} - 1))
  done
  local COMP_CWORD=$cword
  local -a COMP_WORDS=("${words[@]}")
  _localspec "$@"
  current="${COMP_WORDS[COMP_CWORD]}"
  if [[ "$current" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
    local had="${current%"${current##*:}"}"
    COMPREPLY=("${COMPREPLY[@]#"$had"}")
  fi
}
complete -F _localspec_joined localspec
"""
ANY_NAME = """
# So that it completes whatever the name of this file is.
_cyclopts_localspec "$@"
"""
MORE: dict[Shell, str] = {"bash": COLONS, "zsh": ANY_NAME}
"""additions to the generated scripts"""


def install(
    *,
    shell: Shell | None = None,
    to: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
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
    """The completion script of a shell."""
    return app.generate_completion(shell=shell).replace(FILES, SAFE_FILES) + MORE.get(shell, "")


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
