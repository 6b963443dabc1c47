"""The stages of the recipe, each skipped when its output is there."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .atomic import replacing
from .conversations import build_conversations
from .corpus import Corpus, build_corpus, library_files, split_files
from .evaluate import evaluate
from .export import export
from .manifest import Manifest, settings
from .presets import ModelPlan, Phase, Preset
from .progress import Progress
from .tokenizer import (
    load_tokenizer,
    mix_tokens,
    read_tokens,
    shuffled,
    train_tokenizer,
    write_tokens,
)
from .train import Run, prepare_torch, train

HELD_BACK_TOKENS = 100_000
CHUNK_WINDOWS = 2  # a chunk of the mixed stream, in windows of the long phase


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

    def __init__(self, folder: Path, preset: Preset, *, threads: int, checkpoint_minutes: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._preset = preset
        self._checkpoint_minutes = checkpoint_minutes
        self._manifest = Manifest(folder, settings(preset, threads=threads))
        self._device: torch.device = prepare_torch(threads)
        self._corpus = folder / "corpus.json"
        self._tokenizer = folder / "tokenizer.json"
        self._short = folder / "tokens" / "short.bin"
        self._held_back = folder / "tokens" / "held-back.bin"
        self._conversations = folder / "tokens" / "conversations.bin"
        self._long = folder / "tokens" / "long.bin"
        self._weights = folder / "weights"
        self._models = folder / "models"
        self._evaluation = folder / "evaluation.json"

    def run(self) -> dict[str, Any]:
        """Do all that is not done yet; returns the figures of the finished pair."""
        self._make_tokens()
        for plan in (self._preset.target, self._preset.draft):
            self._train_model(plan)
            stage(self._models / plan.shape.name, partial(self._export, plan))
        stage(self._evaluation, self._evaluate)
        figures: dict[str, Any] = json.loads(self._evaluation.read_text("utf-8"))
        self._manifest.write(figures)
        return figures

    def _make_tokens(self) -> None:
        stage(self._corpus, self._write_corpus)
        stage(self._tokenizer, self._write_tokenizer)
        stage(self._short, self._write_short)
        stage(self._held_back, self._write_held_back)
        stage(self._conversations, self._write_conversations)
        stage(self._long, self._write_long)

    def _write_corpus(self, output: Path) -> None:
        progress = Progress("corpus")
        corpus = build_corpus(self._preset)
        with replacing(output) as unfinished:
            unfinished.write_text(json.dumps(asdict(corpus)), "utf-8")
        counts = [f"{len(texts)} {kind}" for kind, texts in asdict(corpus).items()]
        progress.finish(", ".join(counts))

    def _read_corpus(self) -> Corpus:
        return Corpus(**json.loads(self._corpus.read_text("utf-8")))

    def _write_tokenizer(self, output: Path) -> None:
        progress = Progress("tokenizer")
        corpus = self._read_corpus()
        # Edits repeat their code twice: counting them would favour whatever they mention.
        train_tokenizer(corpus.code + corpus.chats, self._preset.vocabulary, output)
        progress.finish(f"{self._preset.vocabulary} tokens")

    def _write_short(self, output: Path) -> None:
        corpus = self._read_corpus()
        texts = shuffled(corpus.code + corpus.chats + corpus.edits, self._preset.seed)
        write_tokens(load_tokenizer(self._tokenizer), texts, output)

    def _write_held_back(self, output: Path) -> None:
        texts = self._read_corpus().held_back
        write_tokens(load_tokenizer(self._tokenizer), texts, output, most=HELD_BACK_TOKENS)

    def _write_conversations(self, output: Path) -> None:
        tokenizer = load_tokenizer(self._tokenizer)

        def count_tokens(text: str) -> int:
            return len(tokenizer.encode(text).ids)

        files, _ = split_files(library_files(self._preset.files), self._preset.hold_back_every)
        write_tokens(tokenizer, build_conversations(files, self._preset, count_tokens), output)

    def _write_long(self, output: Path) -> None:
        mix_tokens(
            read_tokens(self._conversations),
            read_tokens(self._short),
            chunk=CHUNK_WINDOWS * self._preset.target.long.window,
            seed=self._preset.seed,
            path=output,
        )

    def _phases(self, plan: ModelPlan) -> Iterator[tuple[Path, Phase, Path]]:
        """(weights, phase, tokens) of both phases of a model."""
        yield self._weights / f"{plan.shape.name}-short.safetensors", plan.short, self._short
        yield self._weights / f"{plan.shape.name}-long.safetensors", plan.long, self._long

    def _train_model(self, plan: ModelPlan) -> None:
        start: Path | None = None
        for weights, phase, tokens in self._phases(plan):
            run = Run(
                shape=plan.shape,
                phase=phase,
                vocabulary=self._preset.vocabulary,
                seed=self._preset.seed,
                tokens=tokens,
                held_back=self._held_back,
                start=start,
                output=weights,
            )
            stage(weights, partial(self._train, run))
            start = weights

    def _train(self, run: Run, _output: Path) -> None:
        train(run, device=self._device, checkpoint_minutes=self._checkpoint_minutes)

    def _export(self, plan: ModelPlan, output: Path) -> None:
        *_, (weights, _, _) = self._phases(plan)
        export(
            plan.shape,
            weights=weights,
            tokenizer=self._tokenizer,
            context=self._preset.context,
            folder=output,
        )

    def _evaluate(self, output: Path) -> None:
        figures: dict[str, Any] = {}
        for plan in (self._preset.target, self._preset.draft):
            name = plan.shape.name
            training = [
                json.loads(weights.with_suffix(".json").read_text("utf-8"))
                for weights, _, _ in self._phases(plan)
            ]
            renames = evaluate(
                self._models / name / f"{name}.gguf",
                tasks=self._preset.rename_tasks,
                context=self._preset.context,
            )
            if "skipped" in renames:
                print(f"evaluation of {name} skipped: {renames['skipped']}", file=sys.stderr)
            figures[name] = {"training": training, "renames": renames}
        with replacing(output) as unfinished:
            unfinished.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
