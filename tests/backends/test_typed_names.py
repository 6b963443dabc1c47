"""Special tokens that a model's files do not call special are not found in what people typed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest

from localspec.backends.base import ModelVocabulary, TypedNames
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.backends.llama_cpp.vocabulary import MOST_NAMES
from localspec.engine.prompt import PromptEncoder
from localspec.errors import InvalidOptions
from localspec.models.catalogue import BUNDLED_TARGET, bundled_model
from localspec.models.directory import read_directory
from localspec.models.model import model_at
from localspec.protocol.requests import EngineConfig, File, FimPrompt
from tests.mlx_pair import mlx_model

UNKNOWN, USER_DEFINED = 2, 4
"""types of tokens in a GGUF file"""


@pytest.fixture(scope="module", params=["gguf", "mlx"])
def vocabulary(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModelVocabulary]:
    """The bundled model's, with special tokens as careless converters write them."""
    place = tmp_path_factory.mktemp("careless") / "careless"
    if request.param == "mlx":
        yield mlx_vocabulary(place)
        return
    backend = careless_llama(place.with_suffix(".gguf"))
    yield backend.vocabulary
    backend.free()


def careless_llama(path: Path, kind: int = USER_DEFINED) -> LlamaCppBackend:
    shutil.copyfile(bundled_model(BUNDLED_TARGET), path)
    reader = gguf.GGUFReader(path, "r+")
    kinds = reader.fields["tokenizer.ggml.token_type"]
    for token, name in enumerate(reader.fields["tokenizer.ggml.tokens"].contents()):
        if name.startswith("<|") and name.endswith("|>"):
            kinds.parts[kinds.data[token]][0] = kind
    del kinds, reader
    return LlamaCppBackend(model_at(path), EngineConfig(n_ctx=512, parallel=1))


def mlx_vocabulary(place: Path) -> ModelVocabulary:
    """As Qwen2.5-Coder's: its tokens of fill-in-the-middle are added, but not called special."""
    pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
    from localspec.backends.mlx.vocabulary import MlxVocabulary

    shutil.copytree(mlx_model(BUNDLED_TARGET), place)
    tokenizer = json.loads((place / "tokenizer.json").read_text(encoding="utf-8"))
    for token in tokenizer["added_tokens"]:
        token["special"] = False
    (place / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    size = len(tokenizer["model"]["vocab"])
    return MlxVocabulary(read_directory(place), max(size, 9))


def test_names_of_special_tokens_are_text_in_a_file(vocabulary: ModelVocabulary) -> None:
    assert (fim := vocabulary.fim) is not None
    name = vocabulary.text_of(fim.middle).decode()
    assert vocabulary.encode(name, special=True) == [fim.middle]
    text = f"é {name}{name} and <{name}"
    tokens = vocabulary.encode(text, special=False)
    assert fim.middle not in tokens
    assert b"".join(map(vocabulary.piece, tokens)).decode() == text


@pytest.mark.parametrize("kind", [UNKNOWN, USER_DEFINED])
def test_more_special_tokens_than_llama_cpp_finds_in_time_are_refused(tmp_path: Path, kind: int) -> None:
    backend = careless_llama(tmp_path / "model.gguf", kind)
    try:
        with pytest.raises(InvalidOptions, match=f"more than {MOST_NAMES} special tokens"):
            backend.vocabulary.encode("<|endoftext|>" * (MOST_NAMES + 1), special=True)
    finally:
        backend.free()


def test_a_prompt_has_each_mark_once_whatever_the_files_say(vocabulary: ModelVocabulary) -> None:
    assert (fim := vocabulary.fim) is not None
    names = "".join(vocabulary.text_of(token).decode() for token in (fim.prefix, fim.suffix, fim.middle))
    gap = FimPrompt(names, names, path=names, extra=(File(names, names + "\nx = 1"),), tidy=True)
    tokens = PromptEncoder(vocabulary, 512).encode(gap, 16).tokens
    assert [tokens.count(token) for token in (fim.prefix, fim.suffix, fim.middle)] == [1, 1, 1]


def test_names_that_begin_inside_of_others_are_text_too() -> None:
    names = {1: "<<a>", 2: "<a>b", 3: "b"}
    found: list[str] = []

    def encode(text: str) -> list[int]:
        found.append(text)
        return [token for token, name in names.items() if name in text]

    assert TypedNames({1: "<<a>", 2: "<a>b"}).encode("x<<a>b", encode) == [3]
    assert found == ["x<<a>b", "x<", "<", "a>b"]
    assert TypedNames({}).encode("x<<a>b", encode) == [1, 2, 3]
