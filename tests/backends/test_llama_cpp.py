"""llama.cpp obeys the contract; its errors are sentences."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import psutil
import pytest
from msgspec.structs import replace

from localspec.backends.base import Backend, Span
from localspec.backends.llama_cpp import SPINS, native
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.errors import EngineError, InvalidOptions, ModelInvalid, ModelTooLarge, OutOfMemory
from localspec.models.catalogue import bundled_model
from localspec.models.model import model_at
from localspec.protocol.requests import EngineConfig
from tests.conformance.backend import BackendConformance

SMALL = EngineConfig(n_ctx=512, parallel=4, threads=1, prefill_chunk=128)
TARGET, DRAFT = bundled_model("stdlib-6m"), bundled_model("stdlib-1m")


class TestLlamaCpp(BackendConformance):
    # Between 1-wide and wider kernels, F16 weights: 0.010 was measured on a CPU, 0.034 by Vulkan.
    tolerance = 0.05 if native.list_gpus() else 0.03

    @classmethod
    def make(cls) -> Backend:
        return LlamaCppBackend(model_at(TARGET), SMALL)


class TestQuantisedCells(TestLlamaCpp):
    # A cell written in a wide forward may fall into another step than one written alone.
    tolerance = 0.3

    @classmethod
    def make(cls) -> Backend:
        return LlamaCppBackend(model_at(TARGET), replace(SMALL, kv_bits=8))


def test_quantised_cells_take_less_room_and_change_little() -> None:
    rows = []
    for bits in (0, 8, 4):
        backend = LlamaCppBackend(model_at(TARGET), replace(SMALL, kv_bits=bits))
        tokens = backend.vocabulary.encode("def fib(n):\n    return n if n < 2 else ", special=False)
        rows.append(backend.forward([Span(backend.open(), tokens, 1)]).rows(0, 1)[0])
        backend.free()
    exact, *others = rows
    moved = [float(np.abs(row - exact).max()) for row in others]
    assert 0.0 < moved[0] < moved[1] < 5.0


def test_wide_forwards_of_any_width_are_equal_to_the_bit() -> None:
    """On the processor strict mode is cheap because only a forward of one token rounds differently."""
    backend = LlamaCppBackend(model_at(TARGET), replace(SMALL, gpu_layers=0))
    tokens = backend.vocabulary.encode("import os, sys\n\nclass Path:\n    pass\n" * 8, special=False)[:48]
    sequence, seen = backend.open(), set()
    for width in (2, 3, 6, 16, 48):
        for start in range(0, 48, width):
            logits = backend.forward([Span(sequence, tokens[start : start + width], 1)])
        seen.add(logits.rows(0, 1).tobytes())
        backend.truncate(sequence, 0)
    backend.free()
    assert len(seen) == 1


def test_the_sequences_between_are_padded_and_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that do not take part number 2 holds a text, and 4 is closed."""
    config = EngineConfig(n_ctx=64, parallel=7, threads=1, gpu_layers=0)
    backend, alone = (LlamaCppBackend(model_at(TARGET), config) for _ in range(2))
    text = backend.vocabulary.encode("import os\nimport sys\n" * 8, special=False)[:64]
    for each in (backend, alone):
        for number in [each.open() for _ in range(7)]:
            each.forward([Span(number, text[: 10 + number], 0)])
        each.close(4)
    active, sizes, decode = (0, 1, 3, 5, 6), list[int](), lib.llama_decode

    def counted(context: object, batch: Any) -> int:
        sizes.append(batch.n_tokens)
        return int(decode(context, batch))

    monkeypatch.setattr(lib, "llama_decode", counted)
    pieces = [Span(number, text[10 + number : 12 + number], 2) for number in active]
    together = [row.tobytes() for row in backend.forward(pieces).rows(0, 10)]
    apart = [row.tobytes() for span in pieces for row in alone.forward([span]).rows(0, 2)]
    assert together == apart and sizes == [14, *[2] * 5]
    assert backend.length(2) == 12 and backend.open() == alone.open() == 4
    for number, start in ((2, 12), (4, 0)):
        rows = [each.forward([Span(number, text[start:20], 1)]).row(0).tobytes() for each in (backend, alone)]
        assert rows[0] == rows[1]
    backend.forward([Span(2, (text * 8)[20 : backend.capabilities.n_ctx], 0)])
    del sizes[:]
    backend.forward([Span(number, text[:1], 1) for number in active])
    assert sizes == [5], "number 2 has no room for padding"
    for each in (backend, alone):
        each.free()


def test_a_gguf_file_that_llama_cpp_cannot_run(tmp_path: Path) -> None:
    """The header is sound, the architecture unknown: the error has llama.cpp's own reason."""
    path = tmp_path / "odd.gguf"
    path.write_bytes(DRAFT.read_bytes().replace(b"qwen3", b"zwen3"))
    with pytest.raises(ModelInvalid, match="cannot load"):
        LlamaCppBackend(model_at(path))


def test_special_tokens_of_the_bundled_pair() -> None:
    backend = LlamaCppBackend(model_at(DRAFT), SMALL)
    vocabulary = backend.vocabulary
    assert vocabulary.bos is None and vocabulary.bos_text == "<|endoftext|>"
    assert vocabulary.end_tokens >= {0, 2}
    assert vocabulary.fim is not None and vocabulary.fim[:3] == (3, 5, 4)
    assert vocabulary.chat_template is not None and "im_start" in vocabulary.chat_template
    backend.free()


@pytest.mark.parametrize(
    ("n_ctx", "parallel", "chunk"), [(64, 1, 2), (300, 3, 3), (100, 4, 4096), (4096, 1, 17)]
)
def test_odd_sizes_work(n_ctx: int, parallel: int, chunk: int) -> None:
    backend = LlamaCppBackend(
        model_at(DRAFT), EngineConfig(n_ctx=n_ctx, parallel=parallel, prefill_chunk=chunk, threads=1)
    )
    sequences = [backend.open() for _ in range(parallel)]
    assert backend.capabilities.max_batch >= min(21 * parallel, n_ctx)
    backend.forward([Span(s, [5] * min(21, n_ctx // 4), 5) for s in sequences])
    backend.free()


def test_sizes_that_cannot_work_are_refused() -> None:
    with pytest.raises(InvalidOptions, match="at least 64"):
        LlamaCppBackend(model_at(DRAFT), EngineConfig(n_ctx=8))
    with pytest.raises(ModelTooLarge, match="GB are free"):
        LlamaCppBackend(model_at(DRAFT), EngineConfig(n_ctx=60_000_000, parallel=64, gpu_layers=0))


@pytest.mark.slow  # it reads the memory of a process that other tests use, too
def test_free_gives_the_memory_back() -> None:
    process = psutil.Process()
    LlamaCppBackend(model_at(TARGET), SMALL).free()
    before = process.memory_info().rss
    for _ in range(3):
        LlamaCppBackend(model_at(TARGET), SMALL).free()
    grown = process.memory_info().rss - before
    assert grown < TARGET.stat().st_size


def test_load_progress_is_reported() -> None:
    seen: list[float] = []
    LlamaCppBackend(model_at(DRAFT), SMALL, progress=seen.append).free()
    assert seen[-1] == 1.0 and seen == sorted(seen)


def test_only_files_are_dropped_from_memory(tmp_path: Path) -> None:
    """A GPU's driver maps its device read only and shared, too: its pages do not come back."""
    file = tmp_path / "a model.gguf"
    file.touch()
    maps = f"""\
1000-2000 r--s 00000000 00:06 142 {file}
2000-3000 r--s 00000000 00:06 142                        /dev/null
3000-4000 r--s 00000000 00:00 0
4000-5000 r--p 00000000 00:06 142 {file}
"""
    assert native._of_files(maps) == ["1000-2000"]


def test_a_load_that_finds_no_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        native._recent.extend(
            ("error loading model: unable to allocate CUDA0 buffer", "failed to load model")
        )

    monkeypatch.setattr("localspec.backends.llama_cpp.native.lib.llama_model_load_from_file", fail)
    with pytest.raises(OutOfMemory, match="unable to allocate CUDA0 buffer"):
        native.load_model("m.gguf", EngineConfig(), None)


def test_a_copy_that_fails_leaves_no_sequence_open(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LlamaCppBackend(model_at(TARGET), SMALL)
    sequence = backend.open()
    backend.forward([Span(sequence, [5, 6, 7], 0)])

    def copy(*_: int) -> None:
        raise EngineError("there is no memory for a copy")

    monkeypatch.setattr(backend._sequences, "copy", copy)
    with pytest.raises(EngineError, match="no memory"):
        backend.fork(sequence, 3)
    assert list(backend._sequences.lengths) == [sequence]
    backend.free()


@pytest.mark.parametrize(
    ("own", "spins"), [({}, SPINS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, None)]
)
def test_threads_wait_shortly_for_each_other_unless_users_set_it(
    own: dict[str, str], spins: str | None
) -> None:
    """As libgomp itself prints it."""
    mine = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    done = subprocess.run(
        (sys.executable, "-c", "import localspec.backends.llama_cpp.native"),
        env={**mine, **own, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
    )
    if "GOMP_SPINCOUNT" not in done.stderr:
        pytest.skip("llama.cpp is not built with libgomp here")
    found = re.search(r"GOMP_SPINCOUNT = '(\w+)'", done.stderr)
    assert found is not None and (found[1] == spins or spins is None)
