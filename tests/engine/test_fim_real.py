"""Formats over the vocabularies that llama.cpp's source brings along, and over the bundled ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import llama_cpp.llama_cpp as lib
import pytest

from localspec.backends.base import Vocabulary
from localspec.backends.llama_cpp.vocabulary import LlamaVocabulary
from localspec.engine.fim import fim_format
from localspec.engine.prompt import PromptEncoder
from localspec.models.bundled import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.protocol.requests import File, FimPrompt

SOURCE = "LOCALSPEC_LLAMA_CPP_SOURCE"
GAP = FimPrompt("def f(", "):\n    pass\n", path="b.py", extra=(File("a.py", "A = 1"),))
TOLD = {
    "starcoder": "<repo_name>project<file_sep>a.py\nA = 1<file_sep>"
    "<fim_prefix>b.py\ndef f(<fim_suffix>):\n    pass\n<fim_middle>",
    "refact": "<fim_prefix># a.py\nA = 1\ndef f(<fim_suffix>):\n    pass\n<fim_middle>",
    "deepseek-coder": "<｜begin▁of▁sentence｜>#a.py\nA = 1\n#b.py\n"
    "<｜fim▁begin｜>def f(<｜fim▁hole｜>):\n    pass\n<｜fim▁end｜>",
}
WITHOUT = ("llama-spm", "gpt-2")


@contextmanager
def vocabulary_of(path: Path) -> Iterator[LlamaVocabulary]:
    """A vocabulary through llama.cpp, without weights."""
    parameters = lib.llama_model_default_params()
    parameters.vocab_only = True
    model = lib.llama_model_load_from_file(str(path).encode(), parameters)
    yield LlamaVocabulary(model)
    lib.llama_model_free(model)


def spelt(vocabulary: Vocabulary, tokens: list[int]) -> str:
    return b"".join(vocabulary.text_of(token) for token in tokens).decode()


@pytest.mark.parametrize("name", [BUNDLED_TARGET, BUNDLED_DRAFT])
def test_the_bundled_pair_is_told_the_suffix_first(name: str) -> None:
    with vocabulary_of(bundled_model(name)) as vocabulary:
        format = fim_format(vocabulary, "anything")
        assert format is not None and format.suffix_first
        tokens = PromptEncoder(vocabulary, 2048, model="anything").encode(GAP, 64).tokens
        expected = "<|fim_suffix|>):\n    pass\n<|fim_prefix|># a.py\nA = 1\ndef f(<|fim_middle|>"
        assert spelt(vocabulary, tokens).endswith(expected)
        assert format.end_tokens >= vocabulary.special_tokens and len(format.end_tokens) >= 9


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TOLD, *WITHOUT])
def test_a_real_vocabulary(name: str) -> None:
    path = Path(os.environ.get(SOURCE, "/nowhere"), "models", f"ggml-vocab-{name}.gguf")
    if not path.exists():
        pytest.skip(f"set {SOURCE} to a source tree of llama.cpp: its {path.name} is used")
    with vocabulary_of(path) as vocabulary:
        format = fim_format(vocabulary, name)
        assert (format is not None) == (name in TOLD)
        if format is not None:
            tokens = PromptEncoder(vocabulary, 2048, model=name).encode(GAP, 64).tokens
            assert spelt(vocabulary, tokens) == TOLD[name]
            assert format.end_tokens >= vocabulary.end_tokens
