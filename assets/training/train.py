"""One training run: a fixed number of steps, each a function of the seed and its number."""

import ctypes
import hashlib
import json
import math
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from .atomic import replacing
from .checkpoint import Checkpoints
from .errors import RecipeError
from .model import Qwen3
from .presets import ModelShape, Phase
from .progress import Progress
from .tokenizer import TokenArray, read_tokens

LAST_RATE_SHARE = 0.05  # of the peak rate, at the last step
FLAT_SHARE = 0.1  # of the steps, before the cosine sets in
GRADIENT_NORM = 1.0
WEIGHT_DECAY = 0.1
BETAS = (0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Run:
    """What defines a training run: two runs that are equal give equal weights."""

    shape: ModelShape
    phase: Phase
    vocabulary: int
    seed: int
    tokens: Path
    held_back: Path
    start: Path | None  # weights to start from; None: random ones
    output: Path

    def fingerprint(self) -> str:
        """A text that is equal for equal runs, whatever directory they are in."""
        files = [self.tokens] if self.start is None else [self.tokens, self.start]
        hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
        numbers = [asdict(self.shape), asdict(self.phase), self.vocabulary, self.seed]
        return json.dumps([numbers, hashes])


class Windows:
    """The training text in windows: every epoch in another order and at another offset."""

    def __init__(self, tokens: TokenArray, phase: Phase, seed: int) -> None:
        self._tokens, self._phase, self._seed = tokens, phase, seed
        # One window less than fit, so that any offset within a window stays inside.
        self._count = (len(tokens) - 1) // phase.window - 1
        if self._count < phase.batch:
            raise RecipeError(
                f"{len(tokens)} tokens are too few for batches of "
                f"{phase.batch} x {phase.window}: use more files."
            )
        self._epoch = -1
        self._starts = np.empty(0, dtype=np.int64)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and their next tokens for a step, both int64 [batch, window]."""
        size, window = self._phase.batch, self._phase.window
        epoch, index = divmod(step, self._count // size)
        if epoch != self._epoch:
            rng = np.random.default_rng((self._seed, epoch))
            self._starts = rng.permutation(self._count) * window + rng.integers(window)
            self._epoch = epoch
        starts = self._starts[index * size : (index + 1) * size]
        rows = np.stack([self._tokens[start : start + window + 1] for start in starts])
        both = torch.from_numpy(rows.astype(np.int64))
        return both[:, :-1], both[:, 1:]


def learning_rate(phase: Phase, step: int) -> float:
    """Linear warm-up, a flat start, then a cosine down to LAST_RATE_SHARE of the peak."""
    warm = min(1.0, (step + 1) / phase.warmup)
    progress = max(0.0, step / phase.steps - FLAT_SHARE) / (1 - FLAT_SHARE)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return phase.peak_rate * warm * (LAST_RATE_SHARE + (1 - LAST_RATE_SHARE) * cosine)


def build_optimizer(model: Qwen3) -> torch.optim.AdamW:
    """AdamW; norm weights do not decay, they would shrink what they scale."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    norms = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": norms, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=BETAS)


def next_token_loss(model: Qwen3, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats per token; inputs and targets are [batch, window]."""
    logits = model(inputs).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def take_step(
    model: Qwen3, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor], rate: float
) -> Tensor:
    """One optimizer step in bfloat16 autocast; returns the loss, still on the device."""
    device = next(model.parameters()).device
    for group in optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss = next_token_loss(model, *(each.to(device) for each in batch))
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def held_back_loss(model: Qwen3, tokens: TokenArray, window: int) -> float:
    """Mean loss in nats per token over whole windows of text that was not trained on."""
    device = next(model.parameters()).device
    losses = []
    for start in range(0, len(tokens) - window, window):
        row = torch.from_numpy(tokens[start : start + window + 1].astype(np.int64)).to(device)
        losses.append(next_token_loss(model, row[None, :-1], row[None, 1:]).item())
    if not losses:
        raise RecipeError(f"{len(tokens)} held-back tokens do not fill a window of {window}.")
    return sum(losses) / len(losses)


def prepare_torch(threads: int) -> torch.device:
    """Set threads and determinism; returns the device to train on: CUDA where torch sees it."""
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # Fused attention has no exactly repeatable backward pass everywhere: warn, go on.
        torch.use_deterministic_algorithms(True, warn_only=True)
        return torch.device("cuda")
    keep_freed_memory()
    return torch.device("cpu")


def keep_freed_memory() -> None:
    """Stop glibc from handing large tensors back to the kernel after every step.

    Page faults of the memory that comes back cost up to a quarter of a CPU run.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, most_mappings = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(most_mappings, 0)


def initial_model(run: Run, device: torch.device) -> Qwen3:
    """The model a run starts from: random weights by the seed, or an earlier phase's."""
    torch.manual_seed(run.seed)
    model = Qwen3(run.shape, vocabulary=run.vocabulary, context=run.phase.window)
    if run.start is not None:
        weights = load_file(run.start)
        model.load_state_dict({name.removeprefix("model."): w for name, w in weights.items()})
    return model.to(device)


def save_weights(model: Qwen3, path: Path) -> None:
    """Write the weights in float32 under transformers' names."""
    weights = {f"model.{name}": w.cpu().contiguous() for name, w in model.state_dict().items()}
    with replacing(path) as partial:
        save_file(weights, partial)


def take_steps(model: Qwen3, run: Run, checkpoints: Checkpoints, optimizer: torch.optim.Optimizer) -> None:
    """Train from the newest checkpoint, if there is one, to the last step."""
    phase = run.phase
    first = checkpoints.restore(model, optimizer)
    windows = Windows(read_tokens(run.tokens), phase, run.seed)
    label = run.output.stem
    if first:
        print(f"{label}: resuming after step {first} of {phase.steps}", file=sys.stderr)
    progress = Progress(label)
    for step in range(first, phase.steps):
        loss = take_step(model, optimizer, windows.batch(step), learning_rate(phase, step))
        done = step + 1
        if progress.due:  # reading the loss waits for the device
            speed = (done - first) / progress.seconds
            progress.show(
                f"step {done}/{phase.steps}, loss {loss.item():.3f}, "
                f"{speed * phase.batch * phase.window:.0f} tokens/s, "
                f"{(phase.steps - done) / speed / 60:.1f} min left"
            )
        checkpoints.save_if_due(model, optimizer, done)
    progress.finish(f"{phase.steps - first} steps")


def train(run: Run, *, device: torch.device, checkpoint_minutes: float) -> None:
    """Carry out a run and write its weights, with its figures in a JSON file beside them."""
    model = initial_model(run, device)
    optimizer = build_optimizer(model)
    state = run.output.with_suffix(".checkpoint")
    take_steps(model, run, Checkpoints(state, run.fingerprint(), checkpoint_minutes), optimizer)
    loss = held_back_loss(model, read_tokens(run.held_back), run.phase.window)
    if not math.isfinite(loss):
        raise RecipeError(f"{run.output.stem} diverged: lower its peak rate in presets.py.")
    figures = {"held_back_loss": round(loss, 4), "device": device.type}
    with replacing(run.output.with_suffix(".json")) as partial:
        partial.write_text(json.dumps(figures) + "\n", "utf-8")
    save_weights(model, run.output)
    state.unlink(missing_ok=True)
