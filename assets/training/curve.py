"""The curve of a training run as a file of JSON lines."""

import json
import time
from pathlib import Path

import torch
from torch import Tensor

from .checkpoint import Position
from .presets import Phase

CURVE_STEPS = 10  # steps that one point of the curve is the mean of


class Curve:
    """A JSON line for every CURVE_STEPS steps; tokens are counted from the run's beginning."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._losses: list[Tensor] = []
        self._started = time.process_time()
        self._clock = time.monotonic()
        self._tokens = 0

    def add(self, loss: Tensor, tokens: int, position: Position, phase: Phase, rate: float) -> str:
        """Note a step; returns a text of the newest point every CURVE_STEPS steps, else none."""
        self._losses.append(loss)
        self._tokens += tokens
        if len(self._losses) < CURVE_STEPS:
            return ""
        mean = torch.stack(self._losses).mean().item()
        processor, clock = time.process_time(), time.monotonic()
        point = {
            "step": position.total,
            "phase": phase.name,
            "tokens": position.tokens,
            "loss": round(mean, 4),
            "rate": rate,
            "seconds": round(clock - self._clock, 2),
            "processor_seconds": round(processor - self._started, 2),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")
        text = f"loss {mean:.3f}, {self._tokens / (clock - self._clock):.0f} tokens/s"
        text += f", {self._tokens / (processor - self._started):.0f} a processor second"
        self._losses, self._tokens, self._started, self._clock = [], 0, processor, clock
        return text
