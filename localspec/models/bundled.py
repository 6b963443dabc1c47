"""The pair of models that comes with localspec."""

from __future__ import annotations

from pathlib import Path

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


def bundled_model(name: str) -> Path:
    """The GGUF file of one of the bundled pair."""
    return bundled_dir() / name / f"{name}.gguf"
