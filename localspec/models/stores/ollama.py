"""Ollama's models: ``manifests/<host>/<namespace>/<model>/<tag>``, each of which names blobs by digest."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

from localspec.errors import ModelError
from localspec.models.bounded import decode_json, read_bounded
from localspec.models.stores.found import Found, entries, files, subfolders

MAX_MANIFEST = 4 * 1024 * 1024
DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
MODEL = "application/vnd.ollama.image.model"
WITHOUT_FILE = "Ollama has no GGUF file of it: it runs on Ollama's servers, or is stored as single tensors"
LIBRARY = ("registry.ollama.ai", "library")


class _Layer(msgspec.Struct):
    digest: str
    media_type: str = msgspec.field(name="mediaType", default="")


class _Manifest(msgspec.Struct):
    layers: list[_Layer] | None = None


def scan_ollama(root: Path) -> Iterator[Found]:
    """Every model of an Ollama store; raises :class:`OSError` where it cannot be read."""
    entries(root)
    for path in _manifests(root / "manifests"):
        yield _model(root, path)


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
    layers = [layer for layer in content.layers or () if layer.media_type == MODEL]
    if not layers:
        return bad(WITHOUT_FILE, "Choose another model.")
    digest = DIGEST.fullmatch(layers[0].digest)
    if digest is None:
        return bad(f"{manifest} names {layers[0].digest[:80]!r}, which is not a digest")
    blob = root / "blobs" / f"sha256-{digest[1].lower()}"
    if not _is_inside(root, blob):
        return bad(f"{blob} leads to a place outside of Ollama's directory")
    if not os.path.exists(blob):
        return bad(f"its download is incomplete: {blob} is missing")
    return Found(blob, id, digest=digest[1].lower())


def _is_inside(root: Path, path: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
