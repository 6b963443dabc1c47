"""Training state on disk: what a killed run needs to go on as if nothing had happened.

Batches and learning rates are functions of (seed, step) and no layer draws random numbers, so
the step number is also the position in the data and the state of every random generator.
"""

import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .atomic import replacing
from .errors import RecipeError


class Checkpoints:
    """The newest state of one run, written every `minutes` in place of the one before.

    `run` names everything that defines the run: the state of any other run is refused.
    """

    def __init__(self, path: Path, run: str, minutes: float) -> None:
        self._path, self._run, self._seconds = path, run, minutes * 60
        self._written = time.monotonic()

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        """Load the newest state, if there is one; returns the number of steps done."""
        if not self._path.exists():
            return 0
        state: dict[str, Any] = torch.load(self._path, map_location="cpu", weights_only=True)
        if state["run"] != self._run:
            raise RecipeError(
                f"{self._path} belongs to a run with other settings or data: "
                "remove it, or choose another --out."
            )
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])

    def save_if_due(self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> bool:
        """Write the state after `step` steps if the last one is old enough; says whether it did."""
        if time.monotonic() - self._written < self._seconds:
            return False
        state = {
            "run": self._run,
            "step": step,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
        }
        with replacing(self._path) as partial:
            torch.save(state, partial)
        self._written = time.monotonic()
        return True
