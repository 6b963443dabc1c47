"""A target and its drafter, as the daemon chose them and a worker opens them."""

from __future__ import annotations

from typing import Literal

import msgspec

from localspec.protocol.messages import ModelDescription

Signature = tuple[tuple[int, int, int, int], ...]
"""of each of a model's files: size, times of the last change of content and of permissions (ns), inode"""
DrafterKind = Literal["none", "model"]
"""``model``: a separate model. Heads within the target, or trained for it, are not supported yet."""


class ModelFile(msgspec.Struct, frozen=True):
    """A model at a path (bytes, not always valid text), with its files' state when it was chosen."""

    path: bytes
    signature: Signature
    description: ModelDescription


class DrafterFile(msgspec.Struct, frozen=True):
    """A drafter, and the reason for it or for none; ``asked``: it was named, not chosen."""

    kind: DrafterKind
    model: ModelFile | None
    why: str
    asked: bool


class PairFile(msgspec.Struct, frozen=True):
    """A target, the reason for its backend, and its drafter."""

    target: ModelFile
    why: str
    drafter: DrafterFile
