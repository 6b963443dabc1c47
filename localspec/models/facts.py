"""Facts about a model, shown wherever a user chooses among several."""

from __future__ import annotations

from localspec.models.description import has_mlx
from localspec.protocol.messages import ModelDescription

NEEDS_MLX = "needs MLX"


def name_of(model: ModelDescription) -> str:
    """The name to type for a model."""
    return model.names[0] if model.names else model.id


def needs_mlx(model: ModelDescription) -> bool:
    """True if a sound model needs MLX, and that is not installed."""
    return model.format == "mlx" and model.problem is None and not has_mlx()


def count(parameters: int | None) -> str:
    """A number of parameters in billions or millions, such as 7.6 B; - if unknown."""
    if not parameters:
        return "-"
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"
