"""From names to an engine."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

import localspec
from localspec.backends.base import Backend
from localspec.backends.llama_cpp import native
from localspec.backends.llama_cpp.backend import NO_STATES
from localspec.engine.load import (
    DEVICE_CHUNK,
    choose_here,
    load,
    load_engine,
    open_backend,
    placement_of,
    plan_placement,
)
from localspec.errors import (
    BackendUnavailable,
    InvalidOptions,
    LocalspecError,
    ModelInvalid,
    ModelNotFound,
    ModelTooLarge,
    OutOfMemory,
    TokenizerMismatch,
)
from localspec.models.catalogue import bundled_model
from localspec.models.fit import device_bytes, needs_beside, needs_of, part_of
from localspec.models.model import Model, model_at
from localspec.models.pair import Pair, choose
from localspec.models.records import read_pair_results
from localspec.protocol.messages import Placement
from localspec.protocol.requests import EngineConfig
from tests import random_ggufs
from tests.mlx_pair import in_both_formats, mlx_model
from tests.models import directories
from tests.models.disk import OLLAMA, Home
from tests.models.finding import asking, pair_of

TARGET, DRAFT = bundled_model("stdlib-6m"), bundled_model("stdlib-1m")
INSTEAD = "prompt lookup and n-gram memory draft instead"
NONE = f"no draft model: no model on this disk is smaller and has the same vocabulary; {INSTEAD}"
GGUF, ASKED = "on llama_cpp, as requested", "this draft model was requested; same vocabulary"
SMALL = EngineConfig(n_ctx=256, parallel=1, threads=1)
ON_DEVICE = replace(SMALL, prefill_chunk=DEVICE_CHUNK)


def other_vocabulary(path: Path) -> Path:
    """The bundled draft with one of its tokens renamed."""
    path.write_bytes(DRAFT.read_bytes().replace("Ġdef".encode(), "Ġdxf".encode(), 1))
    return path


@pytest.mark.parametrize(
    ("model", "draft", "choice"),
    [
        ("bundled", "auto", pair_of(TARGET, DRAFT, GGUF, "the bundled pair", asked=False)),
        ("stdlib-6m", "auto", pair_of(TARGET, DRAFT, GGUF, "the bundled pair", asked=False)),
        ("bundled", "none", pair_of(TARGET, None, GGUF, "no draft model was requested (draft = none)")),
        ("stdlib-1m", "auto", pair_of(DRAFT, None, GGUF, NONE, asked=False)),
        ("stdlib-1m", "stdlib-6m", pair_of(DRAFT, TARGET, GGUF, ASKED)),
    ],
)
def test_which_files_are_opened(model: str, draft: str, choice: Pair) -> None:
    assert choose(model, draft, backend="llama_cpp") == choice


def test_the_format_decides_where_there_is_only_one() -> None:
    directory = str(mlx_model("stdlib-6m"))
    gguf, mlx = choose(str(TARGET), "none"), choose(directory, "none")
    assert gguf.why == "on llama_cpp, which runs a GGUF file"
    assert mlx.why == "on mlx, which runs an MLX directory"
    with pytest.raises(InvalidOptions, match="it is a GGUF file, not an MLX directory"):
        choose(str(TARGET), "none", backend="mlx")
    with pytest.raises(InvalidOptions, match="it is an MLX directory, not a GGUF file"):
        choose(directory, "none", backend="llama_cpp")
    assert choose("bundled", "none").why == gguf.why
    with pytest.raises(InvalidOptions, match="the backend mlx cannot run bundled: it is a GGUF file"):
        choose("bundled", "none", backend="mlx")


def test_of_two_formats_mlx_is_taken_on_apple_silicon_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf, mlx = in_both_formats(tmp_path, "twin", "stdlib-6m")
    monkeypatch.setattr("localspec.models.pair.has_mlx", lambda: True)
    for is_apple, path in ((False, gguf), (True, mlx)):
        monkeypatch.setattr("localspec.models.pair.is_apple_silicon", lambda is_apple=is_apple: is_apple)
        assert choose("twin", "auto", (str(tmp_path),)).target.path == path


def test_the_public_entrance() -> None:
    with localspec.load(TARGET, draft=DRAFT, n_ctx=256, threads=1, temperature=0.0, max_tokens=5) as engine:
        assert engine.reason == f"on llama_cpp, which runs a GGUF file; {ASKED}"
        assert engine.target.capabilities.n_ctx == 256
        one, two = engine.generate("def f(").finish(), engine.generate("def f(").finish()
        assert one.text == two.text and one.completion_tokens == 5
        assert engine.generate("def f(", max_tokens=3, temperature=0.0).finish().completion_tokens == 3


def test_names_are_those_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, config = tmp_path / "models", tmp_path / "config" / "config.toml"
    for folder in (models, config.parent):
        folder.mkdir()
    shutil.copy(DRAFT, models / "Small-1M.gguf")
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    with pytest.raises(ModelNotFound):
        localspec.load("small:1m")
    config.write_text(f'model_dirs = ["{models}"]\n[engine]\nn_ctx = 64\n')
    with localspec.load("small:1m", draft="none", n_ctx=128, threads=1) as engine:
        assert (engine.target.model, engine.target.capabilities.n_ctx) == ("small:1m", 128)
    config.write_text("[engine")
    with pytest.raises(InvalidOptions, match=r"config\.toml is not valid TOML"):
        localspec.load("bundled")


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"n_ctx": -1}, InvalidOptions, "n_ctx"),
        ({"temperature": 9}, InvalidOptions, "temperature"),
        ({"treads": 1}, InvalidOptions, "treads"),
        ({"backend": "toy"}, BackendUnavailable, "toy"),
    ],
)
def test_bad_settings(settings: dict[str, Any], error: type[LocalspecError], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        load("bundled", **settings)


def test_where_a_draft_cannot_be_loaded_nothing_stays_open(tmp_path: Path) -> None:
    choice = pair_of(TARGET, in_disguise(tmp_path / "other.gguf"), GGUF, ASKED)
    process = psutil.Process()
    with pytest.raises(ModelInvalid, match="cannot load"):
        load_engine(choice, config=SMALL)
    gc.collect()
    before = process.memory_info().rss
    for _ in range(5):
        with pytest.raises(ModelInvalid):
            load_engine(choice, config=SMALL)
    # A target left open each time would be five times its size.
    assert process.memory_info().rss - before < 2 * TARGET.stat().st_size


def test_progress_names_the_stage() -> None:
    reported: list[tuple[str, float]] = []
    load_engine(
        choose("bundled", "auto", backend="llama_cpp"),
        config=SMALL,
        progress=lambda stage, f: reported.append((stage, f)),
    ).close()
    assert [stage for stage, fraction in reported if fraction == 1.0] == ["target", "draft"]


def in_disguise(path: Path) -> Path:
    """The bundled draft without one of its tensors: sound to all who read its header, but for llama.cpp."""
    path.write_bytes(DRAFT.read_bytes().replace(b"output_norm.weight", b"output_nurm.weight"))
    return path


def test_a_chosen_draft_that_cannot_be_loaded_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "target.gguf").write_bytes(TARGET.read_bytes())
    broken = in_disguise(tmp_path / "a-draft.gguf")
    chosen = pair_of(tmp_path / "target.gguf", broken, GGUF, "a-draft drafts", asked=False)
    with load_engine(chosen, config=SMALL) as engine:
        assert engine.draft is None
        assert engine.reason.startswith(f"{GGUF}; no draft model: llama.cpp cannot load {broken}")
        assert engine.generate("def f(", max_tokens=3, temperature=0.0).finish().completion_tokens == 3
    with pytest.raises(ModelInvalid, match="cannot load"):
        load_engine(asking(chosen, True), config=SMALL)


def test_what_cannot_be_loaded_is_called_as_its_store_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / OLLAMA))
    Home(tmp_path).ollama("toy", "7b", in_disguise(tmp_path / "toy.gguf").read_bytes())
    with pytest.raises(ModelInvalid, match="^toy:7b cannot be used: llama.cpp cannot load "):
        load_engine(choose("toy:7b", "none"), config=SMALL)


def test_what_cannot_go_back_has_no_draft(tmp_path: Path) -> None:
    mamba = random_ggufs.write_model(tmp_path / "mamba.gguf", "mamba")
    choice = pair_of(mamba, DRAFT, GGUF, "it drafts", asked=False)
    with load_engine(choice, config=SMALL) as engine:
        assert engine.draft is None and f"no draft model: {NO_STATES}; {INSTEAD}" in engine.reason
        assert engine.generate("def f(", max_tokens=3, temperature=0.0).finish().completion_tokens == 3


def test_a_chosen_draft_for_which_memory_is_gone_meanwhile_is_left_out() -> None:
    choice = choose("bundled", "auto", backend="llama_cpp")
    alone, both = (needs_of(model_at(TARGET), draft, SMALL).total for draft in (None, model_at(DRAFT)))
    with load_engine(choice, config=SMALL, free=both - 1) as engine:
        assert engine.draft is None and "MB are free" in engine.reason
    for asked, free in ((True, both - 1), (False, alone - 1)):
        with pytest.raises(ModelTooLarge):
            load_engine(asking(choice, asked), config=SMALL, free=free)


def test_a_context_that_has_no_room_is_lowered_and_said(tmp_path: Path) -> None:
    shutil.copy(TARGET, tmp_path / "target.gguf")
    alone = needs_of(model_at(TARGET), None, EngineConfig(parallel=1)).total
    low = needs_of(model_at(TARGET), None, EngineConfig(parallel=1, n_ctx=1024)).total
    choice = choose_here(str(tmp_path / "target.gguf"), "none")
    assert [each.total for each in choice.least] == [alone, low]
    with load_engine(choice, free=alone - 1) as engine:
        assert engine.target.capabilities.n_ctx == 1024
        assert "; the context is lowered to 1024 tokens: more have no room" in engine.reason
    for config, free in ((EngineConfig(), low - 1), (EngineConfig(n_ctx=2048), alone - 1)):
        with pytest.raises(ModelTooLarge, match="are free"):
            load_engine(choice, config=config, free=free)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that are free in the memory of a GPU, which this machine seems to have."""
    free = [0]
    monkeypatch.setattr(native, "list_gpus", lambda: {1: native.Device("gpu", "Some GPU")})
    monkeypatch.setattr(native, "room_on_gpus", dict)
    monkeypatch.setattr("localspec.engine.load._on_device", lambda model, config: config.gpu_layers != 0)
    monkeypatch.setattr(native, "free_bytes", lambda config: free[0])
    return free


def test_a_model_gets_the_sequences_and_layers_with_room_on_a_device(device: list[int]) -> None:
    part = part_of(model_at(TARGET), EngineConfig(gpu_layers=99))
    config = EngineConfig(n_ctx=256, prefill_chunk=DEVICE_CHUNK)
    two, one = (part.needs(None, replace(config, parallel=n)).total for n in (2, 1))
    for device[0], sequences, where in (
        (two, 2, "; all layers on Some GPU; no"),
        (one, 1, "; all layers on Some GPU; no"),
        (one - 1, 2, "; 6 of 7 layers on Some GPU, as many as have room; no"),
        (0, 2, "; 0 of 7 layers on Some GPU, as many as have room; no"),
    ):
        planned, settings = plan_placement(model_at(TARGET), replace(config, prefill_chunk=0))
        with load_engine(choose("bundled", "none"), config=config) as engine:
            assert engine.target.capabilities.max_sequences == engine.needs.sequences == sequences
            assert where in engine.reason and engine.config.chunk == DEVICE_CHUNK
            assert engine.placement == planned is not None
            assert (settings.parallel, settings.n_ctx) == (sequences, 256)
    for device[0] in (0, one - 1):
        with pytest.raises(ModelTooLarge, match="are free"):
            load_engine(choose("bundled", "none"), config=config, free=one // 2)
    config = replace(config, gpu_layers=0, cpu_experts=9)
    with load_engine(choose("bundled", "none"), config=config) as engine:
        assert "; 0 of 7 layers on Some GPU; no" in engine.reason and engine.config.cpu_experts == 0


@pytest.mark.parametrize(
    ("kinds", "changed", "placement"),
    [
        (["gpu", "integrated gpu"], {}, Placement(("gpu 0",), 7, 7)),
        (["gpu", "gpu"], {"gpu_layers": 5, "cpu_experts": 6}, Placement(("gpu 0", "gpu 1"), 5, 7, 4)),
        (["integrated gpu"], {"gpu_layers": 0, "cpu_experts": 6}, Placement(("integrated gpu 0",), 0, 7)),
        (["gpu"], {"rpc": ("127.0.0.1:1",)}, None),
        ([], {"gpu_layers": 5}, None),
    ],
)
def test_the_place_of_a_model(
    kinds: list[str], changed: dict[str, Any], placement: Placement | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = {i: native.Device(kind, f"{kind} {i}") for i, kind in enumerate(kinds)}
    monkeypatch.setattr(native, "list_gpus", lambda: gpus)
    assert placement_of(model_at(TARGET), replace(SMALL, **changed)) == placement


def test_an_mlx_model_is_on_the_gpu_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mx = pytest.importorskip("mlx.core", exc_type=ImportError)
    model = model_at(directories.write(tmp_path))
    assert placement_of(model, SMALL) is None
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))
    monkeypatch.setattr(mx, "device_info", lambda: {"device_name": "Apple M3"})
    placement = placement_of(model, SMALL)
    assert placement is not None and placement == Placement(("Apple M3",), placement.of, placement.of)


@pytest.fixture
def placed(device: list[int], monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The layers and sequences of each load, which takes memory of the GPU."""
    found: list[tuple[int, int]] = []

    def load(model: Model, config: EngineConfig, *rest: Any, **more: Any) -> Backend:
        found.append((config.gpu_layers, config.parallel))
        device[0] -= device_bytes(model, config)
        return open_backend(model, config, *rest, **more)

    monkeypatch.setattr("localspec.engine.load.open_backend", load)
    return found


def test_a_draft_goes_to_the_processor_before_the_target_loses_layers(
    device: list[int], placed: list[tuple[int, int]]
) -> None:
    target, draft = (device_bytes(model_at(each), ON_DEVICE) for each in (TARGET, DRAFT))
    none = replace(SMALL, gpu_layers=0)
    for device[0], config, layers in (
        (target + draft, SMALL, [7, -1]),
        (target + draft - 1, SMALL, [7, 0]),
        (target, replace(SMALL, gpu_layers=7), [7, 0]),
        (target + draft, none, [0, 0]),
    ):
        load_engine(choose("bundled", "auto"), config=config).close()
        assert [of_load for of_load, _ in placed] == layers
        placed.clear()


def test_a_target_leaves_room_for_its_draft_by_fewer_sequences(
    device: list[int], placed: list[tuple[int, int]]
) -> None:
    four, one = (replace(ON_DEVICE, parallel=n) for n in (4, 1))
    device[0] = device_bytes(model_at(TARGET), four) + device_bytes(model_at(DRAFT), one)
    load_engine(choose("bundled", "auto"), config=replace(SMALL, parallel=0)).close()
    assert placed == [(7, 2), (-1, 2)]


def refuse(monkeypatch: pytest.MonkeyPatch, when: Callable[[Model, EngineConfig], bool]) -> None:
    """Let the loads that ``when`` names fail for the memory of a GPU."""

    def load(model: Model, config: EngineConfig, *rest: Any, **more: Any) -> Backend:
        if when(model, config):
            raise OutOfMemory("llama.cpp cannot load it: unable to allocate Vulkan0 buffer")
        return open_backend(model, config, *rest, **more)

    monkeypatch.setattr("localspec.engine.load.open_backend", load)


@pytest.mark.parametrize("draft", ["auto", "stdlib-1m"])
def test_a_draft_is_loaded_on_the_processor_where_a_gpu_or_its_room_fails(
    device: list[int], monkeypatch: pytest.MonkeyPatch, draft: str
) -> None:
    refuse(monkeypatch, lambda model, config: model == model_at(DRAFT) and bool(config.gpu_layers))
    device[0] = sum(device_bytes(model_at(each), ON_DEVICE) for each in (TARGET, DRAFT))
    with load_engine(choose("bundled", draft), config=SMALL) as engine:
        assert engine.draft is not None
        here = engine.needs.total
    beside = needs_beside(model_at(TARGET), model_at(DRAFT), ON_DEVICE, 1).total
    for less in (0, 1):  # the GPU's memory is no room for a draft on the processor
        device[0] -= 1
        choice = asking(choose("bundled", draft), False)
        with load_engine(choice, config=SMALL, free=here + beside - less) as engine:
            assert (engine.draft is None) == bool(less)


def test_a_load_that_fails_for_memory_is_tried_with_less(
    device: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(monkeypatch, lambda model, config: config.gpu_layers > 5)
    for factor in (1, 10):
        device[0] = factor * device_bytes(model_at(TARGET), ON_DEVICE)
        with load_engine(choose("bundled", "none"), config=SMALL) as engine:
            assert " of 7 layers on Some GPU, as many as have room" in engine.reason
    assert caplog.text.count("it is loaded again with 15.9 MB of the GPU's memory") == 2


def test_a_model_is_loaded_on_the_processor_where_an_integrated_gpu_has_too_little(
    device: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, lambda model, config: bool(config.gpu_layers))
    device[0] = None
    with load_engine(choose("bundled", "none"), config=SMALL) as engine:
        assert "; 0 of 7 layers on Some GPU, which refused its memory; no draft" in engine.reason
    with pytest.raises(OutOfMemory):
        load_engine(choose("bundled", "none"), config=replace(SMALL, gpu_layers=7))


def test_a_gguf_model_is_not_shared_and_says_so() -> None:
    with load_engine(choose("bundled", "none"), config=replace(SMALL, nodes=("mac-b",))) as engine:
        assert "only MLX models are shared with nodes" in engine.reason


def test_a_draft_that_was_asked_for_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    other = other_vocabulary(tmp_path / "other.gguf")
    with pytest.raises(TokenizerMismatch, match=r"token \d+ is b' dxf', the target's is b' def'") as caught:
        choose(str(TARGET), str(other))
    assert "--draft none" in caught.value.remedy


def test_how_a_draft_fared_is_kept_for_the_next_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    with load_engine(choose("bundled", "auto", backend="llama_cpp"), config=SMALL) as engine:
        result = engine.generate("def f(", max_tokens=40, proposer="draft", k=4, temperature=0.0).finish()
    share = result.stats.proposers["draft"]
    tried = read_pair_results(model_at(TARGET), model_at(DRAFT))
    assert (tried.drafted, tried.accepted) == (share.drafted, share.accepted) and tried.drafted > 0


def test_the_cost_of_a_drafts_step_is_known_before_the_first_request() -> None:
    with load_engine(choose("bundled", "auto", backend="llama_cpp"), config=SMALL) as engine:
        assert engine.draft is not None and engine.learning.know_draft(engine.draft).costs.knows(1, 0)
