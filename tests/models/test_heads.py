"""Heads, which draft for a model and are none, are refused by name wherever a model is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.engine.load import load
from localspec.errors import ModelInvalid
from localspec.models.model import HEAD, model_at
from localspec.models.pair import Room, auto_draft, judge_candidates
from localspec.protocol.requests import EngineConfig
from tests import gguf_parts, random_ggufs
from tests.models.finding import describe
from tests.models.ggufs import TARGET

SMALL = EngineConfig(n_ctx=256, parallel=1, threads=1)
HEADS = [random_ggufs.write_mtp_head, random_ggufs.write_eagle_head, random_ggufs.write_dflash_head]


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = str(tmp_path_factory.mktemp("home"))
    monkeypatch.setenv("LOCALSPEC_HOME", home)
    monkeypatch.setenv("HOME", home)


@pytest.mark.parametrize("write", HEADS)
def test_a_head_is_named_as_one_and_is_not_opened(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path / "tiny-1b.gguf")
    model = describe("tiny-1b", path)
    assert model.problem == f"the model cannot generate text: {HEAD}"
    assert "Choose the model that it drafts for" in str(model.remedy)
    with pytest.raises(ModelInvalid, match=HEAD) as caught:
        LlamaCppBackend(model_at(path), SMALL)
    assert caught.value.remedy == model.remedy
    with pytest.raises(ModelInvalid, match=HEAD):
        load(str(TARGET), draft=str(path), n_ctx=256, parallel=1)


def test_a_head_is_never_paired(tmp_path: Path) -> None:
    target = random_ggufs.write_model(tmp_path / "target.gguf", "qwen35")
    random_ggufs.write_mtp_head(tmp_path / "near.gguf", gguf_parts.Dimensions(width=16, hidden=16, layers=1))
    found = [
        each
        for each in judge_candidates(model_at(target), (str(tmp_path),), Room(SMALL))
        if each.model.description.id == "near"
    ]
    assert [each.verdict for each in found] == ["refused"] and HEAD in found[0].reason
    assert auto_draft(model_at(target), (str(tmp_path),), Room(SMALL))[0] is None


def test_a_model_with_its_head_in_it_answers(tmp_path: Path) -> None:
    path = random_ggufs.write_model_with_mtp(tmp_path / "whole.gguf")
    assert describe("whole", path).problem is None
    with load(str(path), draft="none", n_ctx=256, parallel=1) as engine:
        assert engine.generate("def f", max_tokens=4).finish().completion_tokens
