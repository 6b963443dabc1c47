"""Special tokens that a GGUF file calls the user's are not found in what people typed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import gguf
import pytest

from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.config import EngineConfig
from localspec.engine.prompt import PromptEncoder
from localspec.models.catalogue import BUNDLED_TARGET, bundled_model
from localspec.protocol.requests import File, FimPrompt

USER_DEFINED = 4


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppBackend]:
    """The bundled model with special tokens as careless converters write them."""
    path = tmp_path_factory.mktemp("careless") / "careless.gguf"
    shutil.copyfile(bundled_model(BUNDLED_TARGET, "gguf"), path)
    reader = gguf.GGUFReader(path, "r+")
    kinds = reader.fields["tokenizer.ggml.token_type"]
    for token, name in enumerate(reader.fields["tokenizer.ggml.tokens"].contents()):
        if name.startswith("<|") and name.endswith("|>"):
            kinds.parts[kinds.data[token]][0] = USER_DEFINED
    del kinds, reader
    backend = LlamaCppBackend(path, EngineConfig(n_ctx=512, parallel=1), measured=False)
    yield backend
    backend.free()


def test_names_of_special_tokens_are_text_in_a_file(backend: LlamaCppBackend) -> None:
    vocabulary = backend.vocabulary
    assert (fim := vocabulary.fim) is not None
    name = vocabulary.text_of(fim.middle).decode()
    assert vocabulary.encode(name, special=True) == [fim.middle]
    text = f"é {name}{name} and <{name}"
    tokens = vocabulary.encode(text, special=False)
    assert fim.middle not in tokens
    assert b"".join(map(vocabulary.piece, tokens)).decode() == text


def test_a_prompt_has_each_mark_once_whatever_the_files_say(backend: LlamaCppBackend) -> None:
    vocabulary = backend.vocabulary
    assert (fim := vocabulary.fim) is not None
    names = "".join(vocabulary.text_of(token).decode() for token in (fim.prefix, fim.suffix, fim.middle))
    gap = FimPrompt(names, names, path=names, extra=(File(names, names + "\nx = 1"),), tidy=True)
    tokens = PromptEncoder(vocabulary, 512).encode(gap, 16).tokens
    assert [tokens.count(token) for token in (fim.prefix, fim.suffix, fim.middle)] == [1, 1, 1]
