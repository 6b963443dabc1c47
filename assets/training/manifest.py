"""manifest.json: what an output directory was made with, and what came out."""

import json
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .atomic import replacing
from .errors import RecipeError
from .presets import Preset
from .provenance import file_hash

# The recipe may be added to: checkpoints refuse changes to phases that were gone through. Sums of
# other threads or of compiled code differ in their last bits: the weights are as good, not the same.
MAY_CHANGE = ("recipe", "threads", "compiled")
LIBRARIES = ("torch", "numpy", "tokenizers", "gguf", "safetensors")


def settings(preset: Preset, *, threads: int, compiled: bool) -> dict[str, Any]:
    """Everything that decides the outputs, as plain JSON values."""
    values = {
        "preset": preset.name,
        "recipe": asdict(preset),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": threads,  # sums in another order differ in their last bits
        "compiled": compiled,
        **{name: version(name) for name in LIBRARIES},
    }
    return dict(json.loads(json.dumps(values)))


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The settings that differ, each as "python was 3.11.7, is 3.12.1"."""
    differing = [name for name, value in now.items() if name not in MAY_CHANGE and before[name] != value]
    return [f"{name} was {before[name]}, is {now[name]}" for name in differing]


class Manifest:
    """The manifest of one output directory; refuses to go on with other settings."""

    def __init__(self, folder: Path, current: dict[str, Any]) -> None:
        self._path = folder / "manifest.json"
        self._folder = folder
        self._settings = current
        if self._path.exists():
            before = json.loads(self._path.read_text("utf-8"))["settings"]
            changed = changes(before, current)
            if changed:
                raise RecipeError(
                    f"{folder} was begun with other settings: {', '.join(changed)}. "
                    "Go on with the earlier ones, or choose another --out."
                )
        else:
            self.write()

    def write(self) -> None:
        """Write the settings and, once there are some, the outputs with their hashes."""
        outputs = {
            path.relative_to(self._folder).as_posix(): {
                "bytes": path.stat().st_size,
                "sha256": file_hash(path),
            }
            for path in sorted(self._folder.rglob("*"))
            if path.is_file() and path != self._path and path.suffix != ".partial"
        }
        content = {"settings": self._settings, "outputs": outputs}
        with replacing(self._path) as partial:
            partial.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
