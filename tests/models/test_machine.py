"""The free memory, and records that name the device, its driver and the library's build: what was learnt of
another is not read."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from localspec.backends.base import Rounding
from localspec.backends.llama_cpp import native
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.engine.learning import Learning
from localspec.errors import ModelInvalid
from localspec.models import machine, records
from localspec.models.gguf import read_header
from localspec.models.machine import (
    build_for,
    driver,
    free_memory,
    library_build,
    native_files,
    read_group_room,
)
from localspec.models.model import model_at
from localspec.protocol.requests import EngineConfig
from localspec.speculation.costs import PRIORS, prior_for
from localspec.wording import MB
from tests.models.ggufs import DRAFT, TARGET

SMALL = EngineConfig(n_ctx=256, parallel=1, threads=1)
EXACT = Rounding(exact_width=21, exact_batches=True)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(text)


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    group(tmp_path, max="1000\n", current="900\n", stat="anon 500\nactive_file 40\ninactive_file 60\n")
    assert read_group_room(tmp_path) == 200
    group(tmp_path, max="300\n", current="350\n", stat="anon 350\n")
    assert read_group_room(tmp_path) == 0


def test_without_a_limit_the_machine_counts(tmp_path: Path) -> None:
    assert read_group_room(tmp_path / "none") is None
    group(tmp_path, max="max\n", current="5\n", stat="")
    assert read_group_room(tmp_path) is None
    assert 0 < free_memory() <= psutil.virtual_memory().total


def test_the_version_of_the_driver_is_read(tmp_path: Path) -> None:
    version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build"
    assert driver(write(tmp_path / "version", f"{version}\nGCC version: 12\n")) == version
    assert "NVRM" not in driver(tmp_path / "none")


def test_a_build_is_known_by_its_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path / "engine_of_a_test/lib/libggml-cpu.so.0.9", "cpu")
    write(tmp_path / "engine_of_a_test/__init__.py", "")
    (cpu,) = native_files("engine_of_a_test")
    assert cpu[:2] == ("libggml-cpu.so.0.9", 3)
    write(tmp_path / "engine_of_a_test/lib/libggml-cuda.so", "cuda")
    assert len(list(native_files("engine_of_a_test"))) == 2
    assert library_build("llama_cpp", "llama-cpp-python") == build_for("gguf")
    assert build_for("gguf") not in build_for("mlx")
    assert library_build("no_such_package", "no-such-distribution").startswith("no-such-distribution unknown")


def test_a_backend_names_its_device_and_build() -> None:
    backend = LlamaCppBackend(model_at(DRAFT), SMALL)
    found = native.devices_of(backend._context)
    description = backend.description
    backend.free()
    assert [device.kind for device in found] == ["cpu"]
    assert f"on cpu, build {native.build()}" in description
    assert native.GPU not in description and " 0 layers on the GPU" in description


def test_a_model_that_is_whole_on_a_gpu_begins_with_a_gpus_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, cpu = native.Device("gpu", "CUDA0 NVIDIA H200"), native.Device("cpu", "CPU Some")
    monkeypatch.setattr(native, "devices_of", lambda context: [gpu, cpu])
    whole = native.describe_devices(None, layers=28, layers_on_gpu=999)
    some = native.describe_devices(None, layers=28, layers_on_gpu=12)
    assert whole.startswith("CUDA0 NVIDIA H200 (gpu), build ")
    assert some.startswith("CUDA0 NVIDIA H200, build ")
    assert prior_for(f"llama_cpp Q4_K {whole}") is PRIORS[0][1] is not prior_for(f"llama_cpp Q4_K {some}")


def test_weights_are_counted_in_the_memory_of_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    header = read_header(DRAFT)
    whole = header.bytes_of_last(999)
    for kind, count in (("gpu", whole), ("integrated gpu", whole), ("accelerator", 0), ("cpu", 0)):
        monkeypatch.setattr(native, "devices_of", lambda context, kind=kind: [native.Device(kind, "x")])
        monkeypatch.setattr(native, "gpu_layers", lambda config: config.gpu_layers)
        assert native.offloaded_bytes(None, header, EngineConfig(gpu_layers=999)) == count, kind
        assert native.offloaded_bytes(None, header, EngineConfig(gpu_layers=0)) == 0


def test_the_free_memory_of_gpus_is_counted_without_a_spare_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the functions of a library with a CPU, two GPUs and an integrated one, which has the machine's."""
    kinds, free = [0, 1, 1, 2], [99 * MB, 600 * MB, 700 * MB, 99 * MB]

    def read(device: int, there: Any, whole: Any) -> None:
        there._obj.value, whole._obj.value = free[device], 900 * MB

    functions: dict[str, Callable[..., Any]] = {
        "ggml_backend_dev_count": lambda: len(kinds),
        "ggml_backend_dev_get": int,
        "ggml_backend_dev_type": kinds.__getitem__,
        "ggml_backend_dev_description": lambda device: b"GPU %d" % device,
        "ggml_backend_dev_memory": read,
    }
    monkeypatch.setattr(native, "find_function", lambda name, *types: functions[name])
    assert native.free_bytes(EngineConfig()) == 1300 * MB - 2 * native.SPARE
    assert native.free_bytes(EngineConfig(gpu_memory_mb=50)) == 50 * MB
    free[1] = 2**64 - 1
    assert native.free_bytes(EngineConfig()) == 700 * MB - native.SPARE
    kinds[1:3] = [2, 2]
    assert native.free_bytes(EngineConfig()) is None


def learnt(directory: Path, change: Callable[[LlamaCppBackend], None] = lambda backend: None) -> Learning:
    backend = LlamaCppBackend(model_at(DRAFT), SMALL)
    change(backend)
    learning = Learning(backend, directory=directory, model=model_at(DRAFT))
    backend.free()
    return learning


def rebuild(backend: LlamaCppBackend) -> None:
    backend.description = backend.description.replace(native.build(), "0badbeef")


def move(backend: LlamaCppBackend) -> None:
    backend.description = backend.description.replace("on cpu", "on CUDA0 NVIDIA H200 (gpu)")


@pytest.mark.parametrize("change", [rebuild, move])
def test_what_another_device_or_build_was_measured_to_do_is_not_believed(
    tmp_path: Path, change: Callable[[LlamaCppBackend], None]
) -> None:
    first = learnt(tmp_path)
    first.rounding.measured = EXACT
    for _ in range(3):
        first.costs.observe(1, 512, 0.01)
        first.costs.observe(8, 512, 0.02)
    first.save()
    again = learnt(tmp_path)
    assert again.rounding.measured == EXACT and again.costs.knows(8, 512)
    other = learnt(tmp_path, change)
    assert other.rounding.measured is None and not other.costs.knows(1, 512)


def test_a_gpu_without_a_layer_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise llama.cpp takes its memory for forwards, and long prompts."""
    listed: list[bool] = []

    def load(path: bytes, params: Any) -> None:
        listed.append(bool(params.devices) and not ctypes.c_void_p.from_address(params.devices).value)

    gpus(monkeypatch, {1: native.SPARE + MB})
    monkeypatch.setattr("llama_cpp.llama_cpp.llama_model_load_from_file", load)
    for layers in (0, 1, -1):
        with pytest.raises(ModelInvalid):
            native.load_model(str(DRAFT), EngineConfig(gpu_layers=layers), None)
    assert listed == [True, False, False]


def gpus(monkeypatch: pytest.MonkeyPatch, free: dict[int, int]) -> None:
    """GPUs that this machine seems to have, with their free bytes, by address."""
    monkeypatch.setattr(native, "list_gpus", lambda: {each: native.Device("gpu", "Some") for each in free})
    monkeypatch.setattr(native, "free_of", free.__getitem__)


def test_layers_go_to_the_gpus_that_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[list[int], list[float]]] = []

    def load(path: bytes, params: Any) -> None:
        listed = ctypes.cast(params.devices, ctypes.POINTER(ctypes.c_void_p))
        given.append((listed[:3], params.tensor_split[:16]))

    gpus(monkeypatch, {1: native.SPARE, 2: native.SPARE + MB, 3: 0, 4: native.SPARE + 2 * MB})
    monkeypatch.setattr("llama_cpp.llama_cpp.llama_model_load_from_file", load)
    with pytest.raises(ModelInvalid):
        native.load_model(str(DRAFT), EngineConfig(), None)
    assert given == [([2, 4, None], [MB, 2 * MB, *[0] * 14])]


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[LlamaCppBackend]]:
    """A model whole on a GPU, which this machine seems to have, and otherwise."""
    devices = [native.Device("gpu", "Vulkan0 Some"), native.Device("cpu", "CPU Some")]
    gpus(monkeypatch, {1: 0})
    monkeypatch.setattr(native, "devices_of", lambda context: devices)
    layers, backends = read_header(DRAFT).layers, list[LlamaCppBackend]()
    for number, experts in ((layers + 1, 0), (layers, 0), (1, 0), (0, 0), (layers + 1, 1), (layers + 1, 2)):
        config = replace(SMALL, gpu_layers=number, cpu_experts=experts)
        backends.append(LlamaCppBackend(model_at(DRAFT), config))
    yield backends
    for backend in backends:
        backend.free()


def test_costs_are_those_of_one_placement(tmp_path: Path, placed: list[LlamaCppBackend]) -> None:
    for seconds, backend in enumerate(placed, 1):
        first = Learning(backend, directory=tmp_path)
        assert not first.costs.list_measured()
        first.costs.observe(1, 0, seconds)
        first.save()
    for seconds, backend in enumerate(placed, 1):
        assert Learning(backend, directory=tmp_path).costs.list_measured() == {1: pytest.approx(seconds)}


def test_a_model_is_not_whole_on_a_gpu_without_its_first_layer(placed: list[LlamaCppBackend]) -> None:
    assert [native.GPU in each.description for each in placed] == [True, *[False] * 5]
    assert [each.reference_mode.available for each in placed] == [False, *[True] * 5]


@pytest.mark.parametrize("change", ["library", "driver"])
def test_pairs_of_another_library_or_driver_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    target, draft = (model_at(Path(shutil.copy(path, tmp_path))) for path in (TARGET, DRAFT))
    directory, learnt = records.learnt_dir(), records.PairRecord()
    learnt.tried = records.PairResults(100, 90, 1.5)
    records.Record(directory, records.name_of_pair(target, draft), learnt).write()
    assert records.read_pair_results(target, draft).drafted == 100
    if change == "library":
        monkeypatch.setattr(machine, "library_build", lambda *package: "llama-cpp-python 0.3.36 0badbeef")
    else:
        monkeypatch.setattr(machine, "driver", lambda: "NVRM version: 570.86.15")
    assert records.read_pair_results(target, draft) == records.PairResults()
    assert os.listdir(directory)  # what was known is there again with the old library
