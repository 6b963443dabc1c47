"""Git repositories for tests: a new one, and clones made to stop or to control a program that reads them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

NAME = "a" * 60 + ".py"
RULES: dict[str, Callable[[Path], object]] = {
    "backtracking": lambda rules: rules.write_text("*a" * 24 + "*b\n"),
    "broken-bracket": lambda rules: rules.write_text("[z-a]\n"),
    "fifo": lambda rules: os.mkfifo(rules),
    "device": lambda rules: rules.symlink_to("/dev/zero"),
    "directory": lambda rules: rules.mkdir(),
}


def git(folder: Path, *arguments: str) -> str:
    """Run git as a user does; return its output."""
    command = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path) -> Path:
    """Make a git repository of a folder, which need not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    return folder


def make(root: Path, kind: str) -> Path:
    """Make a clone with such a file of rules; return a file in it that an editor may open."""
    repository(root)
    (root / NAME).write_text("x = 1\n")
    os.mkfifo(root / "pipe.py")
    (root / "round").symlink_to(root)
    with (root / "huge.py").open("wb") as file:
        file.truncate(2 << 30)
    RULES[kind](root / ".gitignore")
    return root / NAME


def armed(root: Path, mark: Path) -> Path:
    """Make a clone that names a program wherever git may run one; the program creates ``mark``."""
    repository(root)
    program = root / "program"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    program.chmod(0o755)
    (root / "a.py").write_text("x = 1\n")
    (root / ".gitattributes").write_text("* filter=own diff=own\n")
    (root / "inner").mkdir()
    (root / "inner" / ".gitignore").write_text("*.log\n")
    (root / "inner" / "b.py").write_text("x = 2\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "x")
    (root / "a.py").write_text("x = 3\n")
    _promise_rules(root)
    (root / "hooks").mkdir()
    for hook in ("post-index-change", "fsmonitor-watchman", "query-watchman"):
        (root / "hooks" / hook).symlink_to(program)
    for setting in (
        *("core.fsmonitor", "core.pager", "pager.ls-files", "core.editor", "core.askPass", "core.sshCommand"),
        *("filter.own.clean", "filter.own.smudge", "filter.own.process", "diff.own.command"),
        *("diff.own.textconv", "diff.external", "credential.helper", "remote.origin.uploadpack"),
    ):
        git(root, "config", setting, str(program))
    for alias in ("ls-files", "check-ignore"):
        git(root, "config", f"alias.{alias}", f"!{program}")
    git(root, "config", "core.hooksPath", str(root / "hooks"))
    return root


def _promise_rules(root: Path) -> None:
    """Leave a file of rules to be fetched, by a program."""
    blob = git(root, "rev-parse", ":inner/.gitignore")
    git(root, "update-index", "--skip-worktree", "inner/.gitignore")
    (root / "inner" / ".gitignore").unlink()
    (root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for setting, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{root / 'program'}",
        "protocol.ext.allow": "always",
    }.items():
        git(root, "config", setting, value)
