"""The stages of the recipe, each skipped when its output is there."""

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from .atomic import replacing
from .examples import write_rows
from .export import export
from .lessons import Lessons
from .machine import prepare_torch
from .manifest import Manifest, settings
from .presets import ModelPlan, Preset, Stream
from .tokenizer import load_tokenizer, train_tokenizer
from .train import Run, Trainer

BUNDLED = Path(__file__).resolve().parents[1] / "models"


def stage(output: Path, action: Callable[[Path], None]) -> None:
    """Run `action` to make `output`, unless it is there already."""
    label = output.stem
    if output.exists():
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
        plans = [plan for plan in (self._preset.target, self._preset.draft) if plan is not None]
        needed = {name for plan in plans for phase in plan.phases for name in phase.rows}
        for stream in self._preset.streams:
            if stream.name in needed:
                stage(self._tokens / f"{stream.name}.bin", partial(self._write_stream, stream))
        for plan in plans:
            stage(self._weights_of(plan), partial(self._train, plan))
            stage(self._models / plan.shape.name, partial(self._export, plan))
        self._manifest.write()

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
        with replacing(output) as unfinished:
            shutil.copyfile(self._bundled("model.safetensors"), unfinished)

    def _write_stream(self, stream: Stream, output: Path) -> None:
        tokenizer = load_tokenizer(self._tokenizer)
        packed = write_rows(tokenizer, self._lessons.examples(stream), output, stream.window)
        with replacing(output.with_suffix(".json")) as unfinished:
            unfinished.write_text(json.dumps(packed._asdict()) + "\n", "utf-8")

    def _train(self, plan: ModelPlan, output: Path) -> None:
        target = self._preset.target
        is_target = plan is target
        run = Run(
            shape=plan.shape,
            phases=plan.phases,
            streams=self._preset.streams,
            vocabulary=self._preset.vocabulary,
            context=self._preset.context,
            seed=self._preset.seed,
            tokens=self._tokens,
            start=self._start if is_target else None,
            teacher=None if is_target else (target.shape, self._weights_of(target)),
            output=output,
        )
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
