"""Ollama's models: ``manifests/<host>/<namespace>/<model>/<tag>``, each of which names blobs by digest."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from localspec.errors import ModelError
from localspec.models.bounded import decode_json, read_bounded
from localspec.models.stores.found import Found, entries, files, subfolders, unfinished

MAX_MANIFEST = 4 * 1024 * 1024
DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
KIND = "application/vnd.ollama.image."
LIBRARY = ("registry.ollama.ai", "library")


class _Layer(msgspec.Struct):
    digest: str
    media_type: str = msgspec.field(name="mediaType", default="")


class _Manifest(msgspec.Struct):
    layers: list[_Layer] | None = None
    config: Any = None


def scan_ollama(root: Path) -> Iterator[Found]:
    """Every model of an Ollama store; raises :class:`OSError` where it cannot be read."""
    entries(root)
    for path in _manifests(root / "manifests"):
        yield _model(root, path)
    blobs = root / "blobs"
    if os.path.isdir(blobs):
        for entry in entries(blobs):
            if entry.name.endswith("-partial"):
                yield unfinished(Path(entry.path), entry.name[: len("sha256-") + 12])


def tag_of(blob: Path) -> str | None:
    """Return Ollama's name, such as ``qwen3:8b``, of the model whose weights are the file ``blob``.

    None if the file is not a blob of an Ollama store, if no manifest names it, or if the store cannot be
    read.
    """
    if DIGEST.fullmatch(blob.name) is None or blob.parent.name != "blobs":
        return None
    try:
        found = scan_ollama(blob.parent.parent)
        return next((each.id for each in found if each.path.name == blob.name), None)
    except OSError:
        return None


def _manifests(root: Path) -> Iterator[Path]:
    if os.path.isdir(root) and not os.access(root, os.R_OK | os.X_OK):
        entries(root)
    for host in subfolders(root):
        for namespace in subfolders(host):
            for model in subfolders(namespace):
                yield from files(model)


def _model(root: Path, manifest: Path) -> Found:
    host, namespace, name, tag = manifest.parts[-4:]
    parts = () if (host, namespace) == LIBRARY else (namespace,) if host == LIBRARY[0] else (host, namespace)
    id = "/".join((*parts, f"{name}:{tag}"))

    def bad(problem: str, remedy: str = f"Pull it again: `ollama pull {shlex.quote(id)}`.") -> Found:
        return Found(manifest, id, problem=problem, remedy=remedy)

    if not _is_inside(root, manifest):
        return bad(f"{manifest} leads to a place outside of Ollama's directory")
    try:
        content = decode_json(read_bounded(manifest, MAX_MANIFEST), _Manifest, manifest)
    except ModelError as error:
        return bad(error.message)
    layers = [layer for layer in content.layers or () if layer.media_type == f"{KIND}model"]
    if not layers:
        return bad(_without_model(content), "Choose another model.")
    digest = DIGEST.fullmatch(layers[0].digest)
    if digest is None:
        return bad(f"{manifest} names {layers[0].digest[:80]!r}, which is not a digest")
    blob = root / "blobs" / f"sha256-{digest[1].lower()}"
    if not _is_inside(root, blob):
        return bad(f"{blob} leads to a place outside of Ollama's directory")
    if not os.path.exists(blob):
        return bad(f"its download is incomplete: {blob} is missing")
    return Found(blob, id, digest=digest[1].lower())


def _without_model(content: _Manifest) -> str:
    if any(layer.media_type == f"{KIND}tensor" for layer in content.layers or ()):
        return "Ollama keeps it as single tensors, not as a GGUF file"
    return "it is not on this disk: it runs on Ollama's servers"


def _is_inside(root: Path, path: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
