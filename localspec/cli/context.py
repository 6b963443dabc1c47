"""A note on an answer that ended because the context was full."""

from __future__ import annotations

from localspec.config import load_config
from localspec.errors import LocalspecError
from localspec.models.library import find
from localspec.protocol.results import Result

FULL = "the answer was cut short: the context is full"


def full(result: Result) -> str:
    """A sentence that says how to enlarge the context, if the model was trained for more."""
    n_ctx = result.prompt_tokens + result.completion_tokens - 1  # the last token is not in the context
    return sentence(n_ctx, _trained(result.model))


def sentence(n_ctx: int, trained: int | None) -> str:
    """The sentence for a context of ``n_ctx`` tokens; ``trained``: the most that the model can have."""
    if trained is None:
        return f"{FULL} ({n_ctx:,} tokens)."
    if trained <= n_ctx:
        return f"{FULL}; this model has at most {trained:,} tokens of context."
    return f"{FULL}. Enlarge it: `localspec config set n_ctx N`, with N up to {trained}."


def _trained(model: str) -> int | None:
    try:
        return find(model, load_config().model_dirs).description.context
    except LocalspecError:  # removed since, or its name stands for several
        return None
