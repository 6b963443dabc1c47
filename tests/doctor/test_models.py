"""Lines on the configuration, the default model, its draft and their memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from localspec.backends.llama_cpp import rpc
from localspec.config import Config, ModelConfig
from localspec.doctor import Finding
from localspec.doctor.models import models, nodes, servers
from localspec.doctor.probe import Report
from localspec.models.catalogue import DEFAULT
from localspec.protocol.requests import EngineConfig

USABLE = Report(versions="x 1", device="the CPU")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    for name in ("MODEL", "DRAFT", "BACKEND", "PROPOSER"):
        monkeypatch.delenv(f"LOCALSPEC_{name}", raising=False)
    (tmp_path / "config").mkdir()
    return tmp_path


def write(home: Path, text: str) -> None:
    (home / "config" / "config.toml").write_text(text)


def found(report: Report = USABLE) -> dict[str, Finding]:
    return {each.name: each for each in models(lambda backend: report, None)}


def test_the_bundled_pair_where_the_default_model_is_not_here(home: Path) -> None:
    lines = found()
    assert list(lines) == ["config", "model", "pairing", "memory"]
    assert {name for name, each in lines.items() if each.level != "ok"} == {"model"}
    assert "the defaults apply" in lines["config"].sentence
    assert lines["model"].sentence.endswith(" is not on this disk: stdlib-6m answers instead.")
    assert f"`localspec models pull {DEFAULT}`" in str(lines["model"].remedy)
    assert lines["pairing"].sentence == "stdlib-1m drafts for stdlib-6m, chosen by auto: the bundled pair."
    assert lines["memory"].sentence.startswith("stdlib-6m with stdlib-1m needs ")
    write(home, '[options]\nmodel = "bundled"\n')
    assert found()["model"].sentence.startswith("stdlib-6m is the default model, on ")


def test_drafts_that_were_chosen(home: Path) -> None:
    write(home, '[options]\ndraft = "stdlib-1m"\n')
    assert found()["pairing"].sentence == "stdlib-1m drafts for stdlib-6m, as configured."
    write(home, '[options]\ndraft = "none"\n')
    assert found()["pairing"].sentence.startswith("stdlib-6m: no draft model was requested")


def test_a_section_that_matches_no_model(home: Path) -> None:
    write(home, '[models."budnled"]\nk = 1\n')
    line = found()["config"]
    assert line.level == "warning" and 'The section [models."budnled"] matches no model' in line.sentence
    assert "in config.toml" in str(line.remedy)


def test_a_key_that_is_no_setting(home: Path) -> None:
    write(home, "[engine]\nnctx = 1\n")
    line = found()["config"]
    named = "A key is left out: there is no setting named 'engine.nctx'; did you mean 'engine.n_ctx'?"
    assert (line.level, line.sentence) == ("warning", named)


@pytest.mark.parametrize(("key", "name", "other"), [("model", "model", "NAME"), ("draft", "pairing", "auto")])
def test_a_name_that_no_model_has(home: Path, key: str, name: str, other: str) -> None:
    write(home, f'[options]\n{key} = "nonsense"\n')
    line = found()[name]
    assert line.level == "problem" and f"`localspec config set {key} {other}`" in str(line.remedy)


def test_a_broken_model_of_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "broken.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("LOCALSPEC_MODEL", str(home / "broken.gguf"))
    line = found()["model"]
    assert line.level == "problem" and str(line.remedy).startswith("Correct LOCALSPEC_MODEL;")


def test_a_backend_that_cannot_be_used() -> None:
    lines = found(Report(error="it is broken"))
    assert lines["model"].level == "problem" and str(lines["model"].remedy).startswith("Repair ")
    assert "pairing" not in lines


def test_a_pair_that_may_not_take_its_memory(home: Path) -> None:
    write(home, "[daemon]\nmemory_mb = 100\n")
    line = found()["memory"]
    assert line.level == "warning" and "100.0 MB are free" in line.sentence


def test_a_pair_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.doctor.models.is_apple_silicon", lambda: False)
    line = found(Report(versions="x 1", device="a GPU"))["memory"]
    assert line.level == "ok" and "device's memory" in line.sentence


def test_a_node_that_answers_and_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.ranks.peer.SSH", ("false",))
    lost, local = nodes(Config(engine=EngineConfig(nodes=("mac-b", "local"))))
    assert re.search(r": [0-9.]+ ms there and back\.$", local.sentence)
    assert lost.level == "problem" and "over ssh on mac-b" in lost.sentence
    assert local.level == "ok" and local.sentence.startswith("local answers, with the same versions: ")


def test_a_library_without_rpc_and_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(models={"large": ModelConfig(engine={"rpc": ("127.0.0.1:1",)})})
    monkeypatch.setattr(rpc, "HEADER", Path("/dev/null/none"))
    unbuilt, lost = servers(config)
    assert unbuilt.level == "problem" and "make install" in str(unbuilt.remedy)
    assert lost.level == "problem"
    assert lost.sentence.startswith("No RPC server answers at 127.0.0.1:1")
