"""The token of TCP clients: 256 bits, per user, kept across restarts."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from localspec import home

TOKEN = re.compile(r"[0-9a-f]{64}")


def read_or_create(path: Path) -> str:
    """The token in ``path``; a missing or damaged one, or one readable by others, is replaced."""
    token = read(path)
    return create(path) if token is None else token


def create(path: Path) -> str:
    """Write a new token to ``path``, replacing the file; returns the token."""
    home.write_private(path, secrets.token_hex(32))
    token = read(path)
    if token is None:
        raise PermissionError(f"{path} stays readable by other users")
    return token


def read(path: Path) -> str | None:
    """The token in ``path``; None if it cannot be read, or if other users can read it."""
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                return None
            token = file.read(65)
    except OSError:
        return None
    return token if TOKEN.fullmatch(token) else None
