"""Paths and workspaces relative to the current directory, made absolute for the daemon."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.config import load_config
from localspec.home import here
from localspec.memory.workspace import plain, workspace_of
from localspec.models.library import absolute
from localspec.protocol.options import Options, parse_options


def from_here(options: Options) -> Options:
    """``options`` with absolute paths and the workspace, for the daemon in another directory.

    Raises :class:`InvalidOptions` for a configuration that is not valid, also if a daemon runs with an
    earlier one.
    """
    load_config()
    values = {f: v for f in options.__struct_fields__ if (v := getattr(options, f)) is not None}
    for name in ("model", "draft"):
        if name in values:
            values[name] = absolute(values[name])
    if (workspace := workspace_from_here(values.pop("workspace", None))) is not None:
        values["workspace"] = workspace
    return parse_options(values)


def workspace_from_here(given: str | None = None) -> str | None:
    """The ``given`` workspace as an absolute path; without one, the workspace of this directory."""
    if given is not None:
        return plain(os.path.abspath(os.path.expanduser(given))) if given else given
    return workspace_at(here())


def workspace_at(directory: Path) -> str | None:
    """The workspace of a directory: its git repository."""
    root = workspace_of(directory)
    return None if root is None else plain(str(root))
