"""Short texts and facts of a described model; light, for commands that start at once."""

from __future__ import annotations

from importlib.util import find_spec

from localspec.protocol.messages import ModelDescription

NEEDS_MLX = "needs MLX"


def name_of(model: ModelDescription) -> str:
    return model.names[0] if model.names else model.id


def needs_mlx(model: ModelDescription) -> bool:
    """True if a sound model needs MLX, and that is not installed."""
    return model.format == "mlx" and model.problem is None and not has_mlx()


def count(parameters: int | None) -> str:
    """A number of parameters in billions or millions, such as 7.6 B; - if unknown."""
    if not parameters:
        return "-"
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"


def has_mlx() -> bool:
    """True if mlx-lm is installed; it is not imported, which would take a second."""
    return find_spec("mlx_lm") is not None
