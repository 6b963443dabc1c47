"""Files in a model's format that generate no text, such as heads, are refused with the name of their kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.engine.load import load
from localspec.errors import ModelInvalid
from localspec.models.directory import chat_template, read_settings
from localspec.models.model import HEAD, model_at
from localspec.models.pair import Room, auto_draft, judge_candidates
from localspec.protocol.requests import EngineConfig
from tests import random_ggufs
from tests.models import directories, ggufs
from tests.models.finding import describe


def file_of(folder: Path, *values: bytes, architecture: str = "toy", tensors: bool = True) -> Path:
    said = [ggufs.string("general.architecture", architecture), *values]
    weights = [ggufs.tensor("weight", (4, 2))] if tensors else []
    return ggufs.write(folder, ggufs.gguf(said, weights, data=b"\0" * 32))


VOCABULARY = ggufs.vocabulary(["a", "b"])


SAID = "the model cannot generate text: it "
POOLING = "toy.pooling_type"


@pytest.mark.parametrize(
    ("values", "architecture", "problem"),
    [
        *(
            ([ggufs.string("general.type", kind)], "toy", SAID)
            for kind in ("adapter", "mmproj", "imatrix", "vocab")
        ),
        ([ggufs.string("general.type", "model")], "toy", None),
        ([], "clip", "reads images or audio"),
        *(([], name, "embedding model") for name in ("bert", "nomic-bert", "t5encoder")),
        *(([], name, HEAD) for name in ("eagle3", "dflash", "gemma4-assistant")),
        ([ggufs.uint32(POOLING, 3)], "toy", "embedding model"),
        ([ggufs.uint32(POOLING, 0)], "toy", None),
    ],
)
def test_a_file_of_another_kind_is_known_by_what_it_says(
    tmp_path: Path, values: list[bytes], architecture: str, problem: str | None
) -> None:
    model = describe("x", file_of(tmp_path, *VOCABULARY, *values, architecture=architecture))
    assert model.problem is None if problem is None else problem in str(model.problem)
    assert model.architecture == architecture and model.vocab_fp


def test_weights_without_a_vocabulary_and_the_reverse_are_refused(tmp_path: Path) -> None:
    assert "no vocabulary" in str(describe("x", file_of(tmp_path)).problem)
    assert "no weights" in str(describe("x", file_of(tmp_path, *VOCABULARY, tensors=False)).problem)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"architectures": ["BertModel"]}, "its architecture is BertModel"),
        ({"architectures": ["CLIPModel", "x"]}, "its architecture is CLIPModel"),
        ({"architectures": ["Qwen2ForSequenceClassification"]}, "is Qwen2ForSequenceClassification"),
        ({"architectures": ["\udc80Odd"]}, "its architecture is \N{REPLACEMENT CHARACTER}Odd"),
    ],
)
def test_a_directory_that_mlx_does_not_answer_with_is_named(
    tmp_path: Path, config: dict[str, object], sentence: str
) -> None:
    path = directories.write(tmp_path, {"config.json": {**directories.CONFIG, **config}})
    problem = str(describe("x", path).problem)
    assert sentence in problem and len(problem) < 200


def test_sentence_transformers_make_embeddings(tmp_path: Path) -> None:
    path = directories.write(tmp_path, {"modules.json": []})
    assert "embedding model" in str(describe("x", path).problem)


@pytest.mark.parametrize("where", ["tokenizer_config.json", "chat_template.jinja", "chat_template.json"])
def test_a_chat_template_is_found_wherever_it_is(tmp_path: Path, where: str) -> None:
    template = "{{ messages }}"
    content = json.dumps({"chat_template": template}) if where.endswith(".json") else template
    path = directories.write(tmp_path, {where: content.encode()})
    assert describe("x", path).template and chat_template(path, read_settings(path)) == template
    assert not describe("x", directories.write(tmp_path, name="without")).template


@pytest.mark.parametrize(
    ("values", "title"),
    [
        ((), None),
        ((ggufs.string("general.name", "Toy"),), "Toy"),
        ((ggufs.string("general.basename", "Toy"), ggufs.string("general.size_label", "7B")), "Toy-7B"),
        ((ggufs.uint32("general.name", 3),), None),
    ],
)
def test_a_files_title_is_named(tmp_path: Path, values: tuple[bytes, ...], title: str | None) -> None:
    assert describe("x", file_of(tmp_path, *VOCABULARY, *values)).title == title


def test_a_head_is_neither_opened_nor_paired(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("LOCALSPEC_HOME", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path_factory.mktemp("home")))
    config = EngineConfig(n_ctx=256, parallel=1, threads=1)
    narrow = random_ggufs.Dimensions(width=16, hidden=16, layers=1)
    head = random_ggufs.write_mtp_head(tmp_path / "near.gguf", narrow)
    remedy = str(describe("near", head).remedy)
    assert "Choose the model that it drafts for" in remedy
    with pytest.raises(ModelInvalid, match=HEAD) as caught:
        LlamaCppBackend(model_at(head), config)
    assert caught.value.remedy == remedy
    with pytest.raises(ModelInvalid, match=HEAD):
        load(str(ggufs.TARGET), draft=str(head), n_ctx=256, parallel=1)
    target, dirs = random_ggufs.write_model(tmp_path / "target.gguf", "qwen35"), (str(tmp_path),)
    found = {each.model.path: each for each in judge_candidates(model_at(target), dirs, Room(config))}
    assert found[head].verdict == "refused" and HEAD in found[head].reason
    assert auto_draft(model_at(target), dirs, Room(config))[0] is None


def test_a_model_with_its_head_in_it_answers(tmp_path: Path) -> None:
    path = random_ggufs.write_model_with_mtp(tmp_path / "whole.gguf")
    assert describe("whole", path).problem is None
    with load(str(path), draft="none", n_ctx=256, parallel=1) as engine:
        assert engine.generate("def f", max_tokens=4).finish().completion_tokens
