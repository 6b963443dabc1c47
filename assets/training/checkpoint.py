"""Training state on disk: enough for a killed run to go on as if nothing had happened.

Batches and learning rates are functions of (seed, phase, step) and no layer draws random numbers,
so the step number is also the position in the data and the state of every random generator.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from .atomic import replacing
from .errors import RecipeError


class Position(NamedTuple):
    """The steps done of a phase, and all steps and tokens since the beginning of the run."""

    phase: int
    step: int
    total: int
    tokens: int


class Checkpoints:
    """The newest state of one run, written every `minutes` in place of the one before.

    `run` names everything that defines the run up to and including each phase: a state is refused
    where the phases that it has been through are not those of the run any more. A later phase may
    be added, and the running one may be given more or fewer steps.
    """

    def __init__(self, path: Path, run: list[str], minutes: float) -> None:
        self._path, self._run, self._seconds = path, run, minutes * 60
        self._written = time.monotonic()

    def restore(self, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> Position:
        """Load the newest state, if there is one; returns the place to go on at."""
        state = self.checked()
        if state is None:
            return Position(0, 0, 0, 0)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        return Position(*state["position"])

    def checked(self) -> dict[str, Any] | None:
        """The newest state, if there is one; refuses one of a run that is not this one."""
        if not self._path.exists():
            return None
        state: dict[str, Any] = torch.load(self._path, map_location="cpu", weights_only=True)
        if state["run"] != self._run[: Position(*state["position"]).phase + 1]:
            raise RecipeError(
                f"{self._path} belongs to a run with other settings or data: "
                "remove it, or choose another --out."
            )
        return state

    @property
    def due(self) -> bool:
        """True once the last state is old enough for another one."""
        return time.monotonic() - self._written >= self._seconds

    def save(self, model: nn.Module, optimizers: list[torch.optim.Optimizer], position: Position) -> None:
        """Write the state at `position`."""
        state = {
            "run": self._run[: position.phase + 1],
            "position": list(position),
            "model": model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        }
        with replacing(self._path) as partial:
            torch.save(state, partial)
        self._written = time.monotonic()
