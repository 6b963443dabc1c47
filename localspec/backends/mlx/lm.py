"""The parts of mlx-lm that are used, imported without a side effect on this process.

When mlx-lm is imported it lowers the limit of open files for good, and fails where that is not permitted.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _limits_left_alone() -> Iterator[None]:
    change = resource.setrlimit
    resource.setrlimit = lambda *_: None
    try:
        yield
    finally:
        resource.setrlimit = change


with _limits_left_alone():
    from mlx_lm.models.cache import (
        ArraysCache,
        CacheList,
        ChunkedKVCache,
        ConcatenateKVCache,
        KVCache,
        QuantizedKVCache,
        RotatingKVCache,
        make_prompt_cache,
    )
    from mlx_lm.utils import _get_classes, load_model, maybe_set_recommended_wired_limit

__all__ = [
    "ArraysCache",
    "CacheList",
    "ChunkedKVCache",
    "ConcatenateKVCache",
    "KVCache",
    "QuantizedKVCache",
    "RotatingKVCache",
    "_get_classes",
    "load_model",
    "make_prompt_cache",
    "maybe_set_recommended_wired_limit",
]
