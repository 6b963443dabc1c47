"""The recipe's packing, batches and training; the parts with PyTorch run where it is installed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

from assets.training.chat import Example, Piece
from assets.training.examples import TAUGHT, pack, read_rows, write_rows
from assets.training.presets import SMOKE, ModelPlan, Phase, Preset, Stream
from assets.training.provenance import MADE_FROM, has_rows_of, origin_of_rows
from assets.training.tokenizer import load_tokenizer

ROOT = Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "assets" / "models" / "stdlib-6m" / "tokenizer.json"
HAS_TORCH = importlib.util.find_spec("torch") is not None


def test_examples_are_packed_whole() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 65, 500)
    examples = [np.full(size, index, dtype=np.uint16) for index, size in enumerate(sizes)]
    groups = list(pack(examples, window=64))
    packed = sorted(int(example[0]) for group in groups for example in group)
    assert packed == list(range(500))
    filled = [sum(map(len, group)) for group in groups]
    assert max(filled) <= 65
    assert sum(filled) / (65 * len(filled)) > 0.93


def test_rows_hold_the_examples_with_their_taught_tokens(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(TOKENIZER)
    examples: list[Example] = [
        [Piece("<|im_start|>user\nWhat is x?<|im_end|>\n", False), Piece(f"answer {n}<|im_end|>", True)]
        for n in range(20)
    ]
    path = tmp_path / "rows.bin"
    packed = write_rows(tokenizer, [*examples, [Piece("long " * 100, True)]], path, window=48)
    rows = read_rows(path, 48)
    assert (packed.rows, packed.too_long) == (len(rows), 1)
    taught = "".join(tokenizer.decode(row[row >= TAUGHT] & (TAUGHT - 1), False) for row in rows)
    assert sorted(taught.split("<|im_end|>")[:-1]) == sorted(f"answer {n}" for n in range(20))
    read = "".join(tokenizer.decode(row & (TAUGHT - 1), False) for row in rows)
    assert read.count("<|im_start|>user\nWhat is x?<|im_end|>\n") == 20
    assert packed.taught == pytest.approx((rows >= TAUGHT).mean())


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_only_taught_tokens_are_targets() -> None:
    from assets.training.streams import UNTAUGHT, split_rows

    row = np.array([[5, 6, 7 | TAUGHT, 8 | TAUGHT, 0]], dtype=np.uint16)
    inputs, targets = split_rows(row)
    assert inputs.tolist() == [[5, 6, 7, 8]]
    assert targets.tolist() == [[UNTAUGHT, 7, 8, UNTAUGHT]]


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_a_stream_goes_on_in_the_next_phase_where_the_last_one_left_it(tmp_path: Path) -> None:
    from assets.training.streams import Batches

    np.arange(40, dtype="<u2").repeat(5).tofile(tmp_path / "numbers.bin")
    streams = (Stream("numbers", "copying", window=4),)
    phases = (Phase("one", {"numbers": 2}, 5, 1e-3), Phase("two", {"numbers": 3}, 10, 1e-3))
    seen = [
        int(number)
        for index, phase in enumerate(phases)
        for batches in [Batches(tmp_path, streams, phases, index, seed=0)]
        for step in range(phase.steps)
        for inputs, _ in batches.batches(step)
        for number in inputs[:, 0]
    ]
    assert sorted(seen) == list(range(40))
    again = Batches(tmp_path, streams, phases, 1, seed=0).batches(4)[0][0][:, 0]
    assert again.tolist() == seen[22:25]


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_attention_on_a_cpu_is_attention() -> None:
    import torch
    from torch.nn import functional

    from assets.training.model import attend

    torch.manual_seed(0)
    queries, keys, values = (torch.randn(2, heads, 16, 8) for heads in (4, 2, 2))
    repeated = [each.repeat_interleave(2, dim=1) for each in (keys, values)]
    expected = functional.scaled_dot_product_attention(queries, *repeated, is_causal=True)
    torch.testing.assert_close(attend(queries, keys, values), expected)


def recipe(out: Path) -> list[str]:
    """The command of the smoke preset."""
    module = [sys.executable, "-m", "assets.training.train_pair", "--preset", "smoke"]
    return [*module, "--threads", "1", "--checkpoint-minutes", "0.02", "--out", str(out)]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_a_killed_recipe_goes_on_and_ends_in_the_same_models(tmp_path: Path) -> None:
    unbroken, killed = tmp_path / "unbroken", tmp_path / "killed"
    subprocess.run(recipe(unbroken), cwd=ROOT, check=True, capture_output=True, timeout=500)
    process = subprocess.Popen(recipe(killed), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "all 10/30" in line:
            os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=60)
    process.stderr.close()
    assert process.returncode == -signal.SIGKILL
    again = subprocess.run(recipe(killed), cwd=ROOT, check=True, capture_output=True, text=True, timeout=500)
    assert "questions: done before, skipped" in again.stderr
    assert "smoke-target: all, " in again.stderr and "smoke-target: short, 0 of" not in again.stderr
    for name in ("smoke-target", "smoke-draft"):
        files = [folder / "models" / name / f"{name}.gguf" for folder in (unbroken, killed)]
        assert files[0].read_bytes() == files[1].read_bytes(), name
    outputs = json.loads((killed / "manifest.json").read_text("utf-8"))["outputs"]
    assert "models/smoke-draft/smoke-draft.gguf" in outputs


def pipeline(out: Path, preset: Preset) -> None:
    from assets.training.pipeline import Pipeline

    Pipeline(out, preset, threads=1, checkpoint_minutes=0.0, compiled=False).run()


def tiny(*phases: Phase, every: int = 40) -> Preset:
    """The smoke preset's target on middles alone."""
    plan = ModelPlan(replace(SMOKE.target.shape, layers=1), phases)
    return replace(SMOKE, target=plan, draft=None, streams=(replace(MIDDLES, every=every), AGAIN))


MIDDLES = Stream("middles", "middles", window=256)
AGAIN = Stream("again", "middles", window=256, every=50)
ONE = Phase("one", {"middles": 1}, steps=2, peak_rate=1e-3)
TWO = Phase("two", {"again": 1}, steps=3, peak_rate=1e-3)


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_a_phase_after_the_last_is_trained_and_the_model_is_written_again(tmp_path: Path) -> None:
    from safetensors import safe_open

    def total() -> int:
        with safe_open(tmp_path / "weights" / "smoke-target.safetensors", framework="np") as file:
            return int(file.metadata()["total"])

    def model() -> bytes:
        return (tmp_path / "models" / "smoke-target" / "smoke-target.gguf").read_bytes()

    pipeline(tmp_path, tiny(ONE))
    rows, first = (tmp_path / "tokens" / "middles.bin").read_bytes(), model()
    assert total() == 2
    pipeline(tmp_path, tiny(ONE, TWO))
    assert total() == 5 and model() != first
    assert (tmp_path / "tokens" / "middles.bin").read_bytes() == rows
    second = model()
    pipeline(tmp_path, tiny(ONE, replace(TWO, steps=4)))
    assert total() == 6 and model() != second
    written = (tmp_path / "models" / "smoke-target" / "smoke-target.gguf").stat().st_mtime_ns
    pipeline(tmp_path, tiny(ONE, replace(TWO, steps=4)))
    assert (tmp_path / "models" / "smoke-target" / "smoke-target.gguf").stat().st_mtime_ns == written


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_rows_that_were_trained_on_outlive_a_change_that_is_refused(tmp_path: Path) -> None:
    from assets.training.errors import RecipeError

    pipeline(tmp_path, tiny(ONE))
    rows = (tmp_path / "tokens" / "middles.bin").read_bytes()
    with pytest.raises(RecipeError, match="other settings or data"):
        pipeline(tmp_path, tiny(ONE, every=41))
    assert (tmp_path / "tokens" / "middles.bin").read_bytes() == rows


def test_rows_of_a_changed_stream_are_made_anew_and_those_without_an_origin_kept(tmp_path: Path) -> None:
    output, told = tmp_path / "middles.bin", list[str]()
    origin = origin_of_rows(MIDDLES, SMOKE, TOKENIZER)
    assert not has_rows_of(output, origin, told.append)
    output.write_bytes(bytes(514))
    assert not has_rows_of(output, origin, told.append) and not told
    output.with_suffix(".json").write_text(json.dumps({"rows": 1}), "utf-8")
    assert has_rows_of(output, origin, told.append) and "taken as it is" in told.pop()
    output.with_suffix(".json").write_text(json.dumps({"rows": 1, MADE_FROM: origin}), "utf-8")
    assert has_rows_of(output, origin, told.append) and not told
    for stream, preset in ((replace(MIDDLES, window=512), SMOKE), (MIDDLES, replace(SMOKE, files=23))):
        assert not has_rows_of(output, origin_of_rows(stream, preset, TOKENIZER), told.append)
        assert "made anew" in told.pop()
    assert has_rows_of(output, origin | {"code": "other"}, told.append) and "other code" in told.pop()


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_a_description_holds_what_is_not_by_default() -> None:
    from assets.training.provenance import stated

    plain = Stream("names", "copying", window=4)
    assert stated(plain) == {"name": "names", "lesson": "copying", "window": 4}
    assert stated(Stream("names", "copying", window=4, passes=2)) == stated(plain) | {"passes": 2}


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_a_changed_phase_is_refused_and_an_added_one_is_not(tmp_path: Path) -> None:
    import torch

    from assets.training.checkpoint import Checkpoints, Position
    from assets.training.errors import RecipeError

    model = torch.nn.Linear(2, 2)
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(model.parameters())]
    path = tmp_path / "state"
    position = Position(phase=1, step=3, total=10, tokens=1000)
    Checkpoints(path, ["a", "b", "c"], 1).save(model, optimizers, position)
    assert Checkpoints(path, ["a", "b", "other", "more"], 1).restore(model, optimizers) == position
    with pytest.raises(RecipeError, match="other settings or data"):
        Checkpoints(path, ["a", "changed", "c"], 1).restore(model, optimizers)
