from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.models.catalogue import bundled_model
from tests.cli.harness import Cli
from tests.hub.server import Hub, serving
from tests.mlx_pair import mlx_model

REPO = "org/Tiny-7B-GGUF"


def model(extra: int = 0) -> bytes:
    """A real GGUF file; bytes behind its last tensor make it larger, and another."""
    return bundled_model("stdlib-1m").read_bytes() + bytes(extra)


Q4, Q8 = model(), model(1)


class Puller(Cli):
    """The command in a home of its own, with a cache of the hub's there, and a hub to pull from."""

    def __init__(self, home: Path, hub: Hub) -> None:
        super().__init__(home)
        kept = {name: value for name, value in self.environment.items() if not name.startswith("HF_")}
        self.environment = {**kept, "HF_HOME": str(home / "hf"), "HF_ENDPOINT": hub.url}
        self.cache = home / "hf" / "hub"

    def folder(self, repo: str = REPO) -> Path:
        return self.cache / f"models--{repo.replace('/', '--')}"

    def partials(self, repo: str = REPO) -> list[Path]:
        return sorted(self.folder(repo).glob("blobs/*.incomplete"))

    def pull(self, *arguments: str) -> Path:
        """The path of a model that must come."""
        return Path(self.json("models", "pull", *arguments)["path"])

    def refusal(self, *arguments: str) -> dict[str, Any]:
        """The error of a command that must fail, and its exit code."""
        done = self("models", *arguments, "--json")
        assert done.returncode != 0 and "Traceback" not in done.stderr, done.stdout
        error: dict[str, Any] = json.loads(done.stdout)["error"]
        assert error["remedy"]
        return {**error, "exit": done.returncode}

    def files(self, repo: str = REPO) -> list[str]:
        """Everything of a repository in the cache that is or leads to content."""
        found = (Path(folder) / name for folder, _, names in os.walk(self.folder(repo)) for name in names)
        return sorted(str(path.relative_to(self.folder(repo))) for path in found)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as hub:
        yield hub


@pytest.fixture
def tiny(hub: Hub) -> Hub:
    hub.add(REPO, {"README.md": b"A tiny one.", "tiny-7b-q4_k_m.gguf": Q4, "tiny-7b-q8_0.gguf": Q8})
    return hub


@pytest.fixture
def cli(tmp_path: Path, hub: Hub) -> Puller:
    return Puller(tmp_path.resolve(), hub)


def mlx_directory() -> dict[str, bytes]:
    folder = mlx_model("stdlib-1m")
    return {path.name: path.read_bytes() for path in folder.iterdir()}
