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
    from mlx_lm.models.cache import ArraysCache as ArraysCache
    from mlx_lm.models.cache import CacheList as CacheList
    from mlx_lm.models.cache import ChunkedKVCache as ChunkedKVCache
    from mlx_lm.models.cache import ConcatenateKVCache as ConcatenateKVCache
    from mlx_lm.models.cache import KVCache as KVCache
    from mlx_lm.models.cache import QuantizedKVCache as QuantizedKVCache
    from mlx_lm.models.cache import RotatingKVCache as RotatingKVCache
    from mlx_lm.models.cache import make_prompt_cache as make_prompt_cache
    from mlx_lm.utils import _get_classes as _get_classes
    from mlx_lm.utils import load_model as load_model
    from mlx_lm.utils import maybe_set_recommended_wired_limit as maybe_set_recommended_wired_limit
