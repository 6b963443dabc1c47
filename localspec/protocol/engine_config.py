"""The settings of ``[engine]``: a worker is sent them with the models that it opens."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=100_000_000)]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for loading a model and for speculation. 0 means: chosen for this machine."""

    n_ctx: Count = 0
    """tokens of context per sequence; 0: the model's own, at most 8192"""
    parallel: Annotated[int, Meta(ge=0, le=64)] = 0
    """sequences at once, each with n_ctx tokens of cache; 0: up to 4, by weights and memory"""
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    """CPU threads; 0: one per physical core"""
    gpu_layers: Annotated[int, Meta(ge=-1, le=10_000)] = -1
    """layers on the GPU; -1: all where there is one"""
    prefill_chunk: Annotated[int, Meta(ge=0, le=4096)] = 0
    """tokens of prompt per forward, at least 2; 0: 256, on a GPU 512"""
    kv_bits: Literal[0, 4, 8] = 0
    """bits of a number in the cache; 0: as the model computes it"""
    ngram_min: Annotated[int, Meta(ge=1, le=5)] = 2
    """shortest match of prompt lookup, in tokens"""
    ngram_max: Annotated[int, Meta(ge=1, le=5)] = 5
    """longest match that prompt lookup searches for, in tokens"""
    chat_cache_mb: Count = 1024
    """megabytes on disk for the caches of chats, so that they go on after a restart; 0: none"""
    memory: bool = True
    """keep an n-gram memory on disk, per workspace"""
    idle_measuring: bool = True
    """measure a model while it is idle; false, as with LOCALSPEC_IDLE=off: learn from requests"""

    @property
    def chunk(self) -> int:
        """The tokens of prompt per forward."""
        return max(2, self.prefill_chunk or 256)
