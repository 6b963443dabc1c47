"""The pair of models that comes with localspec."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from localspec.models.description import FORMATS, Format

BUNDLED = "bundled"
BUNDLED_TARGET = "stdlib-6m"
BUNDLED_DRAFT = "stdlib-1m"
BUNDLED_NAMES = {BUNDLED: BUNDLED_TARGET, BUNDLED_TARGET: BUNDLED_TARGET, BUNDLED_DRAFT: BUNDLED_DRAFT}
"""the pair's models by the names that requests use"""


def bundled_dir() -> Path:
    """The bundled pair: ``assets/models`` of a checkout, or the copy inside the installed package."""
    package = Path(__file__).resolve().parent.parent
    checkout = package.parent / "assets" / "models"
    return checkout if checkout.is_dir() else package / "_models"


def bundled_model(name: str, format: Format = "gguf") -> Path:
    """One of the bundled pair: its GGUF file, or its directory for MLX."""
    folder = bundled_dir() / name
    return folder if format == "mlx" else folder / f"{name}.gguf"


def bundled_models() -> Iterator[tuple[str, Path]]:
    """(name, path) of the pair, the GGUF files first."""
    for format in FORMATS:
        for name in (BUNDLED_TARGET, BUNDLED_DRAFT):
            yield name, bundled_model(name, format)
