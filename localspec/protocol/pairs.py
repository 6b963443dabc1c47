"""A target and its drafter, as the daemon chose them and a worker opens them."""

from __future__ import annotations

import msgspec

from localspec.protocol.messages import ModelDescription

Signature = tuple[tuple[int, int, int, int], ...]
"""of each of a model's files: size, times of the last change of content and of permissions (ns), inode"""


class ModelFile(msgspec.Struct, frozen=True):
    """A model at a path (bytes, not always valid text), with its files' state when it was chosen."""

    path: bytes
    signature: Signature
    description: ModelDescription


class PairFile(msgspec.Struct, frozen=True):
    """A target, the reason for its backend, its drafter, and the reason for it or for none; ``asked``: it was
    named, not chosen."""

    target: ModelFile
    why: str
    draft: ModelFile | None
    draft_why: str
    asked: bool
