"""A model's file that is overwritten in place: a typed error, never an answer from spoilt weights."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localspec.backends.base import Span
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.engine.load import load
from localspec.errors import ModelChanged, ModelNotFound
from localspec.models.model import model_at
from localspec.models.opened import OpenedFiles
from localspec.protocol.engine_config import EngineConfig
from tests.cli.harness import LONG, Cli
from tests.models.ggufs import DRAFT, TARGET

SMALL = EngineConfig(n_ctx=256, parallel=1, threads=1)


def spoil(path: Path) -> None:
    """Other content of the same size."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"\0" * size)


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0" * 64)


def overwrite(path: Path) -> None:
    path.write_bytes(DRAFT.read_bytes())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copy(TARGET, tmp_path / "toy.gguf"))


def test_what_is_renamed_into_a_files_place_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    opened = OpenedFiles([path, path])
    (tmp_path / "new").write_bytes(b"other")
    (tmp_path / "new").rename(path)
    opened.check()
    path.unlink()
    opened.check()
    opened.close()


@pytest.mark.parametrize("change", [spoil, shorten, lengthen, overwrite])
def test_every_change_in_place_is_seen(model: Path, change: Callable[[Path], None]) -> None:
    opened = OpenedFiles([DRAFT, model])
    opened.check()
    change(model)
    with pytest.raises(ModelChanged, match=r"toy\.gguf was overwritten while it was in use"):
        opened.check()
    opened.close()


@pytest.mark.slow
def test_files_are_let_go(model: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(ModelNotFound, match="nowhere"):
        OpenedFiles([model, Path("/nowhere")])
    LlamaCppBackend(model_at(model), SMALL).free()
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.slow
@pytest.mark.parametrize("change", [spoil, shorten, overwrite])
def test_a_forward_of_spoilt_weights_gives_no_rows(model: Path, change: Callable[[Path], None]) -> None:
    backend = LlamaCppBackend(model_at(model), SMALL)
    sequence = backend.open()
    backend.forward([Span(sequence, [5, 6, 7], 1)])
    change(model)
    with pytest.raises(ModelChanged):
        backend.check()
    for _ in range(2):
        with pytest.raises(ModelChanged):
            backend.forward([Span(sequence, [8], 1)])
        assert backend.length(sequence) == 3
    backend.free()


@pytest.mark.slow
def test_a_request_whose_last_rounds_may_be_spoilt_ends_with_the_error(model: Path) -> None:
    with load(str(model), draft="none", n_ctx=256, parallel=1) as engine:
        engine.on_round = lambda played: spoil(model) if played.round == 4 else None
        with pytest.raises(ModelChanged):
            engine.generate("def fib(n):", max_tokens=5, proposer="none").finish()


@pytest.mark.slow
def test_a_draft_whose_file_is_spoilt_costs_speed_only(model: Path, tmp_path: Path) -> None:
    draft = Path(shutil.copy(DRAFT, tmp_path / "draft.gguf"))
    settings = {"temperature": 0.0, "max_tokens": 12, "proposer": "draft", "k": 2}
    with load(str(model), draft=str(draft), n_ctx=256, parallel=1) as engine:
        expected = engine.generate("def fib(n):", **settings).finish()
        spoil(draft)
        found = engine.generate("def fib(n):", **settings).finish()
    assert found.text == expected.text
    assert "ModelChanged" in str(found.stats.speculation_off_reason)


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    home = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    command = Cli(home)
    yield command
    command("daemon", "stop")
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.slow
def test_the_client_is_told_and_the_next_request_has_the_new_model(cli: Cli, model: Path) -> None:
    ask = ("run", "-m", str(model), "--temperature", "0", "--max-tokens", "8", "What is a dict?")
    assert cli(*ask).stdout
    content = model.read_bytes()
    spoil(model)
    os.utime(model)
    told = cli(*ask)
    assert told.returncode == 1 and not told.stdout
    assert "was overwritten while it was in use" in told.stderr and "Send the request again" in told.stderr
    (other := model.with_suffix(".new")).write_bytes(content)
    other.rename(model)
    assert cli(*ask).stdout


@pytest.mark.slow
def test_a_worker_that_reads_beyond_a_shortened_file_says_what_to_do(cli: Cli) -> None:
    running = cli.begin(*LONG)
    (pid,) = (each["pid"] for each in cli.status()["models"] if each["model"] == "stdlib-6m")
    os.kill(pid, signal.SIGBUS)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 1
    assert b"was ended by SIGBUS" in told and b"was shortened while it was in use" in told


def test_files_are_opened_where_the_system_has_no_flag_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has none; no descriptor of Python's is inherited anyway."""
    monkeypatch.delattr(os, "O_CLOEXEC")
    (tmp_path / "file").write_bytes(b"x")
    opened = OpenedFiles([tmp_path / "file"])
    opened.check()
    assert not os.get_inheritable(opened._files[0][0])
    opened.close()
