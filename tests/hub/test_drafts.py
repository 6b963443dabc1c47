"""Small models of the same family, by the names that families have."""

from __future__ import annotations

import pytest

from localspec.hub.drafts import candidates


@pytest.mark.parametrize(
    ("target", "drafts"),
    [
        ("Qwen/Qwen2.5-Coder-7B-Instruct-GGUF", ["Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF"]),
        ("x/Qwen2.5-Coder-32B", ["x/Qwen2.5-Coder-1.5B", "x/Qwen2.5-Coder-3B"]),
        ("Qwen/Qwen2.5-72B-Instruct", ["Qwen/Qwen2.5-3B-Instruct"]),
        ("mlx-community/Qwen3-8B-4bit", ["mlx-community/Qwen3-0.6B-4bit"]),
        ("x/Meta-Llama-3.1-8B-Instruct-GGUF", ["x/Llama-3.2-1B-Instruct-GGUF"]),
        ("x/Llama-3.3-70B-Instruct", ["x/Llama-3.2-3B-Instruct"]),
        ("x/gemma-3-4b-it-GGUF", ["x/gemma-3-270m-it-GGUF"]),
        ("x/SmolLM2-1.7B-Instruct", ["x/SmolLM2-135M-Instruct"]),
    ],
)
def test_five_to_thirty_times_smaller(target: str, drafts: list[str]) -> None:
    assert list(candidates(target)) == drafts


@pytest.mark.parametrize(
    "target",
    ["x/Qwen2.5-Coder-0.5B", "x/Qwen3-30B-A3B-GGUF", "x/Mistral-7B", "x/Qwen2.5", "Qwen3-8B/Mistral"],
)
def test_small_ones_experts_and_strangers_have_none(target: str) -> None:
    assert list(candidates(target)) == []
