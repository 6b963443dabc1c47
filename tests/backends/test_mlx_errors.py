"""Errors of MLX directories, settings and the device: each is one sentence, and no state is left behind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from localspec.backends.base import Span
from localspec.engine.engine import Engine
from localspec.errors import EngineError, InvalidOptions, LocalspecError, ModelInvalid, ModelTooLarge
from localspec.models.model import model_at
from localspec.protocol.requests import EngineConfig
from tests.mlx_models import write_model

pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
from localspec.backends.mlx.backend import MlxBackend  # noqa: E402
from localspec.backends.mlx.prefetch import STREAK  # noqa: E402

SMALL = EngineConfig(n_ctx=256, parallel=2)
CUT = {"max_length": 8, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}
Spoil = Callable[[Path], object]


def load(path: Path, **settings: Any) -> MlxBackend:
    return MlxBackend(model_at(path), replace(SMALL, **settings))


def edited(name: str, **changes: object) -> Spoil:
    """Change keys of one of the directory's JSON files."""

    def spoil(path: Path) -> None:
        file = path / name
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return spoil


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"n_ctx": 32}, InvalidOptions, "at least 64"),
        ({"n_ctx": 90_000_000, "parallel": 64}, ModelTooLarge, "GB are free"),
    ],
)
def test_settings_that_cannot_work(
    tmp_path: Path, settings: dict[str, Any], error: type[LocalspecError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        load(write_model("qwen3", tmp_path), **settings)


def test_quantised_cells_that_a_model_cannot_have(tmp_path: Path) -> None:
    with pytest.raises(ModelInvalid, match="with kv_bits = 4") as caught:
        load(write_model("gpt-oss", tmp_path), kv_bits=4)
    assert caught.value.remedy == "Set kv_bits = 0."


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda path: (path / "tokenizer.json").unlink(), "has no tokenizer.json"),
        (lambda path: (path / "tokenizer_config.json").write_text("[]"), "the expected JSON"),
        (edited("config.json", rope_theta="x"), "mlx-lm cannot"),
        (edited("config.json", num_hidden_layers=10**9), "layers"),
        (edited("config.json", hidden_size=7), "mlx-lm cannot"),
    ],
)
def test_directories_that_cannot_be_used(tmp_path: Path, spoil: Spoil, sentence: str) -> None:
    path = write_model("qwen3", tmp_path)
    spoil(path)
    with pytest.raises(ModelInvalid, match=sentence) as caught:
        load(path)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: os.mkfifo(path / "chat_template.jinja"),
        edited("tokenizer_config.json", chat_template=[1, {"name": "default"}]),
        edited("config.json", eos_token_id=[True, "x", 10**9]),
        edited("tokenizer.json", truncation=CUT),
    ],
)
def test_what_can_be_done_without_is(tmp_path: Path, spoil: Spoil) -> None:
    path = write_model("qwen3", tmp_path)
    spoil(path)
    backend = load(path)
    tokens = backend.vocabulary.encode("def shorten(text, width):\n", special=False)
    assert len(tokens) == 26 and 1 not in backend.vocabulary.end_tokens
    assert backend.forward([Span(backend.open(), tokens, 1)]).rows(0, 1).shape == (1, backend.vocabulary.size)
    backend.free()


def test_tokens_without_a_row_are_refused(tmp_path: Path) -> None:
    path = write_model("qwen3", tmp_path)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    far = {**tokenizer["added_tokens"][0], "id": 290, "content": "<|file_sep|>"}
    tokenizer["added_tokens"].append(far)
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    backend = load(path)
    assert all(token < backend.vocabulary.size for token in backend.vocabulary.special_tokens)
    sequence = backend.open()
    for token in (264, 10**6, -1):
        with pytest.raises(EngineError, match=f"no token {token}"):
            backend.forward([Span(sequence, [65, token], 1)])
    assert backend.length(sequence) == 0
    backend.free()


class Failing:
    """A model whose call number ``at`` fails, as a device without memory does."""

    def __init__(self, backend: MlxBackend, at: int) -> None:
        self._model, self._left = backend._model, at
        backend._model = self

    def __call__(self, *arguments: object, **named: object) -> object:
        self._left -= 1
        if not self._left:
            raise RuntimeError("[metal::malloc] Attempting to allocate too much")
        return self._model(*arguments, **named)


def test_a_failing_forward_appends_nothing(tmp_path: Path) -> None:
    """Caches that change in place do not record how far it came: their sequence begins anew."""
    for name in ("qwen3", "qwen3.5", "llama4"):
        backend, reference = load(write_model(name, tmp_path / "a")), load(write_model(name, tmp_path / "b"))
        tokens = list(range(60, 130))
        sequence, alone = backend.open(), reference.open()
        backend.forward([Span(sequence, tokens[:20], 0)])
        Failing(backend, 2)
        with pytest.raises(EngineError, match="too much"):
            backend.forward([Span(sequence, tokens[20:], 1)])
        held = backend.length(sequence)
        assert held == (0 if name == "llama4" else 20)
        rows = backend.forward([Span(sequence, tokens[held:], 1)]).rows(0, 1)
        expected = reference.forward([Span(alone, tokens, 1)]).rows(0, 1)
        assert np.abs(rows - expected).max() < 1e-4
        backend.free()
        reference.free()


def test_a_request_whose_device_fails_ends_with_that_and_others_go_on(tmp_path: Path) -> None:
    """A step that was begun ahead and fails is computed again when it is requested."""
    backend = load(write_model("qwen3", tmp_path))
    ask: dict[str, Any] = {"temperature": 0.0, "proposer": "none", "max_tokens": 60}
    with Engine(backend) as engine:
        plain = engine.generate("def f(x):", **ask).finish()
        Failing(backend, 5)
        with pytest.raises(EngineError, match="too much"):
            engine.generate("def f(x):", **ask).finish()
        Failing(backend, STREAK + 6)
        again = engine.generate("def f(x):", **ask).finish()
        assert again.text == plain.text and again.completion_tokens > STREAK + 6


def test_a_begun_step_counts_as_written(tmp_path: Path) -> None:
    """Its cell of a window was another token's before: what looks at that one is not promised."""
    path = write_model("gpt-oss", tmp_path)
    backend = load(path, n_ctx=448)
    sequence, text = backend.open(), [97 + i % 23 for i in range(290)]
    for at in range(0, len(text), 100):
        logits = backend.forward([Span(sequence, text[at : at + 100], 1)])
    for _ in range(STREAK + 2):
        text += logits.argmax()
        logits = backend.forward([Span(sequence, text[-1:], 1)])
    for back in (255, 256, 257, 258):
        copy, length = backend.fork(sequence, len(text)), len(text) - back
        kept = backend.truncate(copy, length)
        assert kept == (length if back <= 256 else 0)
        rows = backend.forward([Span(copy, text[kept : length + 3], 1)]).rows(0, 1)
        backend.close(copy)
        alone = backend.open()
        expected = backend.forward([Span(alone, text[: length + 3], 1)]).rows(0, 1)
        backend.close(alone)
        assert np.abs(rows - expected).max() < 1e-4
        for _ in range(STREAK + 2):
            # Begun again: the fork has ended that.
            backend.truncate(sequence, len(text) - 1)
            backend.forward([Span(sequence, text[-1:], 1)])
    backend.free()
