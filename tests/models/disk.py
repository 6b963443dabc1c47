"""A home with the stores of other programs in it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

HUB = Path(".cache/huggingface/hub")
FLAT = Path(".cache/llama.cpp")
LM_STUDIO = Path(".lmstudio/models")
OLLAMA = Path(".ollama/models")


class Home:
    """The stores, and what is put into them; every method returns the path of what it wrote."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, path: str | Path, content: bytes) -> Path:
        """Any file of the home."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return target

    def hub(self, repository: str, files: dict[str, bytes | None], revision: str = "a" * 40) -> Path:
        """A repository in the hub's cache; a file without content is a link to a blob that is missing."""
        folder = HUB / f"models--{repository.replace('/', '--')}"
        self.file(folder / "refs" / "main", revision.encode())
        snapshot = self.root / folder / "snapshots" / revision
        for name, content in files.items():
            digest = hashlib.sha256(name.encode() if content is None else content).hexdigest()
            if content is not None:
                self.file(folder / "blobs" / digest, content)
            link = snapshot / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(self.root / folder / "blobs" / digest, link.parent))
        return snapshot

    def ollama(self, name: str, tag: str, content: bytes | None, **layers: str) -> Path:
        """A model of Ollama's library, or of the host that ``name`` begins with; without content its blob is
        missing. ``layers`` are more, by kind."""
        digest = hashlib.sha256(content or name.encode()).hexdigest()
        if content is not None:
            self.file(OLLAMA / "blobs" / f"sha256-{digest}", content)
        return self.manifest(name, tag, {"model": f"sha256:{digest}", **layers})

    def manifest(self, name: str, tag: str, layers: dict[str, str]) -> Path:
        """A manifest of Ollama's, with any digests."""
        kind = "application/vnd.ollama.image."
        said = [{"mediaType": kind + layer, "digest": digest, "size": 1} for layer, digest in layers.items()]
        library = Path() if "/" in name else Path("registry.ollama.ai", "library")
        path = OLLAMA / "manifests" / library / name / tag
        return self.file(path, json.dumps({"schemaVersion": 2, "config": {}, "layers": said}).encode())
