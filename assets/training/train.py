"""One model's training: its phases in order, each step a function of the seed and its number."""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from .atomic import replacing
from .checkpoint import Checkpoints, Position
from .curve import Curve
from .errors import RecipeError
from .model import Qwen3
from .optimizers import build_optimizers, learning_rate
from .presets import ModelShape, Phase, Stream
from .progress import Progress
from .provenance import file_hash, stated
from .streams import UNTAUGHT, Batches

GRADIENT_NORM = 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """The definition of a training run: two runs that are equal give equal weights from equal rows."""

    shape: ModelShape
    phases: tuple[Phase, ...]
    streams: tuple[Stream, ...]
    vocabulary: int
    context: int
    seed: int
    tokens: Path  # folder of the streams' rows
    start: Path | None  # weights to start from; None: random ones
    teacher: tuple[ModelShape, Path] | None  # the model whose distributions are learnt
    output: Path

    @property
    def checkpoint(self) -> Path:
        """The file of its newest state."""
        return self.output.with_suffix(".checkpoint")

    def fingerprints(self) -> list[str]:
        """A text for each phase, equal for equal phases of equal runs in whatever directory."""
        files = [self.start] if self.teacher is None else [self.start, self.teacher[1]]
        hashes = [file and file_hash(file) for file in files]
        common = [asdict(self.shape), self.vocabulary, self.seed, *hashes]
        streams = {stream.name: stated(stream) for stream in self.streams}
        texts = []
        for phase in self.phases:
            numbers = stated(phase)
            del numbers["steps"]
            texts.append(json.dumps([common, numbers, [streams[name] for name in phase.rows]]))
        return texts


States = Callable[[Tensor], Tensor]


class Learner:
    """A model with its optimizers, and the teacher whose distributions it learns, if there is one."""

    def __init__(self, model: Qwen3, states: States, teacher: Qwen3 | None) -> None:
        self.model = model
        self.optimizers = build_optimizers(model)
        self._states, self._teacher = states, teacher

    def step(self, batches: list[tuple[Tensor, Tensor]], rate: float) -> Tensor:
        """One step in bfloat16 autocast; returns the mean loss of a taught token, on the device."""
        device = self.model.embed_tokens.weight.device
        taught = sum(int((targets != UNTAUGHT).sum()) for _, targets in batches)
        total = torch.zeros((), device=device)
        for inputs, targets in batches:
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = self._summed_loss(inputs.to(device), targets.to(device)) / taught
            torch.autograd.backward(loss)
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), GRADIENT_NORM)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return total

    def _summed_loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy in nats of the taught tokens, or of the teacher's distributions there."""
        taught = targets != UNTAUGHT
        logits = self.model.logits(self._states(inputs)[taught]).float()
        if self._teacher is None:
            return F.cross_entropy(logits, targets[taught], reduction="sum")
        with torch.no_grad():
            expected = self._teacher.logits(self._teacher(inputs)[taught]).float().softmax(-1)
        return F.cross_entropy(logits, expected, reduction="sum")


def load_model(shape: ModelShape, weights: Path, *, vocabulary: int, context: int) -> Qwen3:
    """A model with the weights of a file, in float32."""
    model = Qwen3(shape, vocabulary=vocabulary, context=context)
    loaded = load_file(weights)
    model.load_state_dict({name.removeprefix("model."): w.float() for name, w in loaded.items()})
    return model


def initial_model(run: Run) -> Qwen3:
    """The model a run starts from: random weights by the seed, or those of `start`."""
    torch.manual_seed(run.seed)
    if run.start is None:
        return Qwen3(run.shape, vocabulary=run.vocabulary, context=run.context)
    return load_model(run.shape, run.start, vocabulary=run.vocabulary, context=run.context)


def save_weights(model: Qwen3, path: Path, position: Position, run: list[str]) -> None:
    """Write the weights in float32 under transformers' names, with their position and run as metadata."""
    weights = {f"model.{name}": w.cpu().contiguous() for name, w in model.state_dict().items()}
    metadata = {name: str(value) for name, value in position._asdict().items()}
    with replacing(path) as partial:
        save_file(weights, partial, metadata | {"run": json.dumps(run)})


class Trainer:
    """A run under way."""

    def __init__(self, run: Run, *, device: torch.device, checkpoint_minutes: float, compiled: bool) -> None:
        self._run = run
        model = initial_model(run).to(device)
        teacher = None
        if run.teacher is not None:
            shape, weights = run.teacher
            teacher = load_model(shape, weights, vocabulary=run.vocabulary, context=run.context).to(device)
        states: States = torch.compile(model, dynamic=False) if compiled else model
        self._learner = Learner(model, states, teacher)
        self._described = run.fingerprints()
        self._checkpoints = Checkpoints(run.checkpoint, self._described, checkpoint_minutes)
        self._curve = Curve(run.output.with_suffix(".curve.jsonl"))
        self._label = run.output.stem

    def train(self) -> None:
        """Go through what is left of the phases and write the weights."""
        position = self._checkpoints.restore(self._learner.model, self._learner.optimizers)
        earlier = sum(phase.steps for phase in self._run.phases[: position.phase])
        if position.total != earlier + position.step:
            raise RecipeError(
                f"The checkpoint of {self._label} took {position.total - position.step} steps before its "
                f"phase, the recipe says {earlier}: give the finished phases their steps again."
            )
        for index in range(position.phase, len(self._run.phases)):
            if index > position.phase:
                position = position._replace(phase=index, step=0)
            position = self._go_through(position)
        save_weights(self._learner.model, self._run.output, position, self._described)

    def _go_through(self, position: Position) -> Position:
        """Do what is left of a phase; returns the position at its end."""
        run = self._run
        phase = run.phases[position.phase]
        batches = Batches(run.tokens, run.streams, run.phases, position.phase, run.seed)
        print(f"{self._label}: {phase.name}, {position.step} of {phase.steps} steps done", file=sys.stderr)
        progress = Progress(self._label)
        while position.step < phase.steps:
            rate = learning_rate(phase, position.step)
            batch = batches.batches(position.step)
            loss = self._learner.step(batch, rate)
            size = sum(inputs.numel() for inputs, _ in batch)
            position = Position(position.phase, position.step + 1, position.total + 1, position.tokens + size)
            text = self._curve.add(loss, size, position, phase, rate)
            if text:
                progress.show(f"{phase.name} {position.step}/{phase.steps}: {text}")
            if self._checkpoints.due:
                self._save(position)
        self._save(position)
        self._check()
        progress.finish(f"{phase.name} done")
        return position

    def _save(self, position: Position) -> None:
        self._checkpoints.save(self._learner.model, self._learner.optimizers, position)
        latest = self._run.output.with_suffix(".latest.safetensors")
        save_weights(self._learner.model, latest, position, self._described)

    def _check(self) -> None:
        if not all(math.isfinite(weight.sum().item()) for weight in self._learner.model.parameters()):
            raise RecipeError(f"{self._label} diverged: lower the phase's peak rate in presets.py.")
