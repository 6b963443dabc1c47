"""The stages of the recipe, each skipped when its output is there."""

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .atomic import replacing
from .checkpoint import Checkpoints
from .examples import write_rows
from .export import export
from .lessons import Lessons
from .machine import prepare_torch
from .manifest import Manifest, settings
from .presets import ModelPlan, Preset, Stream
from .provenance import MADE_FROM, has_rows_of, is_trained, origin_of_rows, tell
from .tokenizer import load_tokenizer, train_tokenizer
from .train import Run, Trainer

HERE = Path(__file__).resolve().parent
BUNDLED = HERE.parent / "models"


def stage(output: Path, action: Callable[[Path], None], is_done: Callable[[], bool] | None = None) -> None:
    """Run `action` to make `output`, unless it is there already, and `is_done`."""
    label = output.stem
    if output.exists() and (is_done is None or is_done()):
        print(f"{label}: done before, skipped", file=sys.stderr)
        return
    print(f"{label}: started", file=sys.stderr, flush=True)
    action(output)


class Pipeline:
    """One output directory on its way from nothing to a published pair."""

    def __init__(
        self, folder: Path, preset: Preset, *, threads: int, checkpoint_minutes: float, compiled: bool
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._preset = preset
        self._checkpoint_minutes = checkpoint_minutes
        self._compiled = compiled
        self._manifest = Manifest(folder, settings(preset, threads=threads, compiled=compiled))
        self._device: torch.device = prepare_torch(threads)
        self._lessons = Lessons(preset)
        self._tokenizer = folder / "tokenizer.json"
        self._start = None if preset.start is None else folder / "start.safetensors"
        self._tokens = folder / "tokens"
        self._weights = folder / "weights"
        self._models = folder / "models"

    def run(self) -> None:
        """Do all that is not done yet."""
        stage(self._tokenizer, self._write_tokenizer)
        if self._start is not None:
            stage(self._start, self._copy_start)
        target, draft = self._preset.target, self._preset.draft
        # Before rows are made anew: those that were trained on must not be lost to a run that is refused.
        self._check(self._run_of(target))
        plans = [target] if draft is None else [target, draft]
        needed = {name for plan in plans for phase in plan.phases for name in phase.rows}
        for stream in self._preset.streams:
            if stream.name in needed:
                self._stream_stage(stream)
        for plan in plans:
            self._model_stages(plan)
        self._manifest.write()

    def _stream_stage(self, stream: Stream) -> None:
        output = self._tokens / f"{stream.name}.bin"
        origin = origin_of_rows(stream, self._preset, self._tokenizer)
        stage(
            output,
            partial(self._write_stream, stream, origin),
            lambda: has_rows_of(output, origin, tell(stream.name)),
        )

    def _model_stages(self, plan: ModelPlan) -> None:
        run, exported = self._run_of(plan), self._models / plan.shape.name
        if not is_trained(run.output, run.fingerprints(), run.phases, tell(plan.shape.name)):
            self._check(run)
            if exported.exists():
                shutil.rmtree(exported)  # of the weights before
            self._train(run)
        stage(exported, partial(self._export, plan))

    def _weights_of(self, plan: ModelPlan) -> Path:
        return self._weights / f"{plan.shape.name}.safetensors"

    def _bundled(self, name: str) -> Path:
        assert self._preset.start is not None
        return BUNDLED / self._preset.start / name

    def _write_tokenizer(self, output: Path) -> None:
        if self._preset.start is None:
            texts = (file.text for file in self._lessons.files)
            train_tokenizer(texts, self._preset.vocabulary, output)
            return
        with replacing(output) as unfinished:
            shutil.copyfile(self._bundled("tokenizer.json"), unfinished)

    def _copy_start(self, output: Path) -> None:
        weights = self._preset.weights
        start = self._bundled("model.safetensors") if weights is None else HERE / weights
        with replacing(output) as unfinished:
            shutil.copyfile(start, unfinished)

    def _write_stream(self, stream: Stream, origin: dict[str, Any], output: Path) -> None:
        tokenizer = load_tokenizer(self._tokenizer)
        packed = write_rows(tokenizer, self._lessons.examples(stream), output, stream.window)
        with replacing(output.with_suffix(".json")) as unfinished:
            unfinished.write_text(json.dumps({**packed._asdict(), MADE_FROM: origin}) + "\n", "utf-8")

    def _run_of(self, plan: ModelPlan) -> Run:
        target = self._preset.target
        is_target = plan is target
        return Run(
            shape=plan.shape,
            phases=plan.phases,
            streams=self._preset.streams,
            vocabulary=self._preset.vocabulary,
            context=self._preset.context,
            seed=self._preset.seed,
            tokens=self._tokens,
            start=self._start if is_target else None,
            teacher=None if is_target else (target.shape, self._weights_of(target)),
            output=self._weights_of(plan),
        )

    def _check(self, run: Run) -> None:
        """Refuse a checkpoint that is of another run."""
        Checkpoints(run.checkpoint, run.fingerprints(), self._checkpoint_minutes).checked()

    def _train(self, run: Run) -> None:
        Trainer(
            run,
            device=self._device,
            checkpoint_minutes=self._checkpoint_minutes,
            compiled=self._compiled,
        ).train()

    def _export(self, plan: ModelPlan, output: Path) -> None:
        export(
            plan.shape,
            weights=self._weights_of(plan),
            tokenizer=self._tokenizer,
            context=self._preset.context,
            folder=output,
        )
