"""The note on an answer that ended because the context was full."""

from __future__ import annotations

import pytest

from localspec.cli.context import FULL, full, sentence
from localspec.protocol.results import Result, Stats


@pytest.mark.parametrize(
    ("trained", "end"),
    [
        (2048, "; this model has at most 2,048 tokens of context."),
        (4096, ". Enlarge it: `localspec config set n_ctx N`, with N up to 4096."),
        (None, " (2,048 tokens)."),
    ],
)
def test_only_a_context_that_can_be_larger_is_to_be_enlarged(trained: int | None, end: str) -> None:
    assert sentence(2048, trained) == FULL + end


@pytest.mark.parametrize(("tokens", "may_grow"), [(64, True), (1 << 20, False)])
def test_the_model_is_found_by_the_name_in_the_result(tokens: int, may_grow: bool) -> None:
    result = Result(
        text="x",
        finish_reason="context_full",
        model="stdlib-6m",
        draft=None,
        backend="llama_cpp",
        prompt_tokens=tokens,
        cached_tokens=0,
        completion_tokens=1,
        stats=Stats(),
    )
    assert ("config set n_ctx N`" in full(result)) == may_grow
    result.model = "nobody"
    assert full(result) == f"{FULL} ({tokens:,} tokens)."
