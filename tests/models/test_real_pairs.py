"""Pairs of the vocabularies that llama.cpp's source brings along."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import TokenizerMismatch
from localspec.models.candidates import Room, judged
from localspec.models.model import model_at
from localspec.models.pairing import MAX_SIZE_DIFFERENCE, check_pair
from localspec.models.vocabulary import read_tokens, vocabulary_size
from localspec.protocol.engine_config import EngineConfig
from tests.real_vocabularies import AS_IT_IS, Changed, random_model, vocabulary_file

pytestmark = pytest.mark.slow

ROOM = Room(EngineConfig(n_ctx=256, parallel=1))


@pytest.mark.parametrize("name", ["qwen2", "llama-bpe", "llama-spm", "deepseek-coder", "starcoder", "phi-3"])
def test_a_vocabulary_goes_with_itself(name: str) -> None:
    tokens = read_tokens(model_at(vocabulary_file(name)))
    assert check_pair(tokens, tokens) == "exact"
    assert tokens.size == vocabulary_size(model_at(vocabulary_file(name))) >= len(tokens.texts)


@pytest.mark.parametrize(
    ("target", "draft", "told"),
    [
        ("qwen2", "llama-bpe", r"has 128256 tokens, the target's 151936; its token \d+ is b'"),
        ("llama-bpe", "qwen2", r"has 151936 tokens, the target's 128256; its token \d+ is b'"),
        ("qwen2", "deepseek-coder", r"has 32256 tokens, the target's 151936; its token \d+ is b'"),
        ("llama-spm", "phi-3", r"EOS is 32000, the target's is 2"),
        ("llama-spm", "baichuan", r"tokens, the target's 32000; its token \d+ is b'"),
    ],
)
def test_families_do_not_go_with_each_other(target: str, draft: str, told: str) -> None:
    with pytest.raises(TokenizerMismatch, match=told):
        check_pair(
            read_tokens(model_at(vocabulary_file(target))), read_tokens(model_at(vocabulary_file(draft)))
        )


@pytest.mark.parametrize("name", ["llama-bpe", "llama-spm"])
def test_bos_is_added_as_llama_cpp_adds_it(name: str) -> None:
    assert read_tokens(model_at(vocabulary_file(name))).bos is not None
    assert read_tokens(model_at(vocabulary_file("qwen2"))).bos is None


@pytest.mark.parametrize(
    ("changed", "verdict", "told"),
    [
        (AS_IT_IS, "exact", "same vocabulary, same family"),
        (Changed(more=MAX_SIZE_DIFFERENCE), "compatible", "compatible vocabularies, same family"),
        (Changed(more=MAX_SIZE_DIFFERENCE + 1), "refused", "vocabulary has 32129 tokens, the target's 32000"),
        (Changed(tokens={31_999: "other"}), "refused", "token 31999 is b'other', the target's is b'"),
        (Changed(tokens={500: "other"}, more=9), "refused", "token 500 is b'other', the target's is b'"),
        (Changed(tokens={4: "other"}), "compatible", "compatible vocabularies, same family"),
        (Changed(tokens={4: "other"}, values={"eos_token_id": 7}), "refused", "EOS is 7, the target's is 2"),
        (Changed(tokens={4: "other"}, values={"bos_token_id": 7}), "refused", "BOS is 7, the target's is 1"),
        (
            Changed(tokens={4: "other"}, values={"add_bos_token": 0}),
            "refused",
            "BOS is None, the target's is 1",
        ),
        (Changed(values={"eos_token_id": 7, "bos_token_id": 8}), "exact", "same vocabulary, same family"),
    ],
)
def test_what_may_differ(tmp_path: Path, changed: Changed, verdict: str, told: str) -> None:
    target = random_model(tmp_path / "target.gguf", "llama-spm", width=128)
    random_model(tmp_path / "draft.gguf", "llama-spm", width=32, changed=changed)
    found = [
        each
        for each in judged(model_at(target), (str(tmp_path),), ROOM)
        if each.model.description.id == "draft"
    ]
    (candidate,) = found
    assert candidate.verdict == verdict and told in candidate.reason
    assert candidate.helps == (verdict != "refused")
