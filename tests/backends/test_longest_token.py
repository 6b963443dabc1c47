"""The most bytes of text that one token of a GGUF model stands for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import gguf
import llama_cpp.llama_cpp as lib
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.backends.llama_cpp.vocabulary import LlamaVocabulary
from localspec.models.catalogue import BUNDLED_TARGET, bundled_model
from tests.real_models import SOURCE

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
TEXTS = (*" \n\ta<>é▁\0", "  ", "日本", "Hello world", "def f():\n    return 1\n")
ASKED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@cache
def vocabulary_at(path: Path) -> LlamaVocabulary:
    """A vocabulary through llama.cpp, without weights; kept until the end of the tests."""
    parameters = lib.llama_model_default_params()
    parameters.vocab_only = True
    return LlamaVocabulary(lib.llama_model_load_from_file(str(path).encode(), parameters))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    place = tmp_path_factory.mktemp("vocabularies")
    yield {
        "bundled": bundled_model(BUNDLED_TARGET),
        "sentencepiece": sentencepiece(place / "spm.gguf", "any"),
        "stripping": sentencepiece(place / "strips.gguf", "Phi-3"),
    }


def sentencepiece(path: Path, name: str) -> Path:
    """A SentencePiece vocabulary whose special tokens overlap; beside those of Phi-3 blanks are stripped."""
    own = [*"▁abHelo wrd", "▁a", "He", "ll", "llo", "▁w", "▁▁"]
    special = [
        *("<s>", "</s>", "<|end|>", "<|e", "d|><s", "  ", "   "),
        *("\n\n", "a\n", "<|user|>", "<|endoftext|>", "<x>"),
    ]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    for add in (writer.add_context_length, writer.add_embedding_length, writer.add_feed_forward_length):
        add(64)
    writer.add_block_count(1)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    tokens = ["<unk>", *special, *bytes_, *own]
    writer.add_token_list(tokens)
    writer.add_token_scores(
        [0.0] * (len(tokens) - len(own)) + [-float(len(own) - n) for n in range(len(own))]
    )
    kinds = [UNKNOWN, *[CONTROL, USER_DEFINED] * (len(special) // 2), *[BYTE] * 256, *[NORMAL] * len(own)]
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def texts_of(vocabulary: LlamaVocabulary) -> list[str]:
    """All that llama.cpp may look for, and parts of those."""
    tokens = range(vocabulary.size)
    kinds = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_USER_DEFINED | lib.LLAMA_TOKEN_ATTR_UNKNOWN
    found = [t for t in tokens if lib.llama_vocab_get_attr(vocabulary._vocab, t) & kinds]
    names = [lib.llama_vocab_get_text(vocabulary._vocab, t).decode() for t in found]
    return [*names, *(name[1:] for name in names), *(name[:-1] for name in names)]


def check(vocabulary: LlamaVocabulary, text: str, special: bool) -> None:
    if vocabulary.longest is not None:
        assert len(text.encode()) <= vocabulary.longest * len(vocabulary.encode(text, special=special))


@pytest.mark.parametrize("name", ["bundled", "sentencepiece", "stripping"])
@given(data=st.data(), special=st.booleans())
@ASKED
def test_no_token_stands_for_more(
    places: dict[str, Path], name: str, data: st.DataObject, special: bool
) -> None:
    vocabulary = vocabulary_at(places[name])
    pieces = st.sampled_from([*texts_of(vocabulary), *TEXTS])
    check(vocabulary, "".join(data.draw(st.lists(pieces, max_size=40))), special)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted(Path(os.environ.get(SOURCE, "/nowhere"), "models").glob("ggml-vocab-*.gguf")), ids=str
)
@given(data=st.data(), special=st.booleans())
@ASKED
def test_no_token_stands_for_more_in_real_vocabularies(
    path: Path, data: st.DataObject, special: bool
) -> None:
    vocabulary = vocabulary_at(path)
    names = texts_of(vocabulary)
    pieces = st.sampled_from([*names[:: max(1, len(names) // 500)], *TEXTS])
    check(vocabulary, "".join(data.draw(st.lists(pieces, max_size=40))), special)


def test_both_kinds_of_strips_are_met(places: dict[str, Path]) -> None:
    assert vocabulary_at(places["stripping"]).longest is None
    assert vocabulary_at(places["sentencepiece"]).longest == len("<|endoftext|>")
