"""What a shell's place means: paths are relative to it, and so is the workspace."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.config import load_config
from localspec.home import here
from localspec.memory.workspace import plain, workspace_of
from localspec.models.library import absolute
from localspec.models.sections import Sections, real
from localspec.protocol.options import Options, parse_options


def from_here(options: Options) -> Options:
    """``options`` as the daemon can understand them from its own directory."""
    values = {f: v for f in options.__struct_fields__ if (v := getattr(options, f)) is not None}
    for name in ("model", "draft"):
        if name in values:
            values[name] = absolute(values[name])
    if (workspace := workspace_from_here(values.pop("workspace", None))) is not None:
        values["workspace"] = workspace
    return parse_options(values)


def workspace_from_here(said: str | None = None) -> str | None:
    """The workspace that was ``said``, as the daemon can find it; else that of this directory."""
    if said is not None:
        return plain(os.path.abspath(os.path.expanduser(said))) if said else said
    return workspace_at(here(), Sections(load_config()))


def workspace_at(directory: Path, sections: Sections) -> str | None:
    """The workspace that a directory is in: its git repository, or a directory that the configuration has a
    section for, whichever is nearer."""
    root = workspace_of(directory)
    named = next(iter(sections.directories(str(directory))), None)
    if named is not None and (root is None or root in Path(real(named)).parents):
        return os.path.expanduser(named)
    return None if root is None else plain(str(root))
