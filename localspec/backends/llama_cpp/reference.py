"""Rows that do not depend on how many stand beside them: ggml's reference mode, for the forwards of rounds.

On a CPU, flash attention sums a lone row over 512 cells and more in parts, one per thread, and a row
among others in one go (ggml-cpu/ops.cpp, ``ggml_compute_forward_flash_attn_ext_f16``). That differs in
the last bit, of which quantised activations make up to 0.2 logits. In reference mode every row is summed
in one go, at the same speed or better: 18.2 ms instead of 20.2 behind 1,900 tokens (2 cores, 0.5 billion
parameters at Q8_0), and forwards of 1, 2, 5 and 16 tokens give the same bits. Long pieces of a prompt are
much faster without it: they are computed in tiles. So are K-quants and their like from eight rows on,
which reference mode would slow by up to half and not make equal: with such weights it ends there. Up to
three rows of Q4_K, and up to seven of Q5_K and Q6_K, are equal in it.

llama.cpp's C interface does not lead to ggml's backends; the method that does is exported by its shared
library all the same. Where it is not, nothing is switched, and strict mode goes by what
:mod:`localspec.backends.rounding` measures, as everywhere.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable
from typing import Any

from localspec.backends.llama_cpp.scheduler import CPU, backends_of, exported

TILE = 64
"""from this many rows on, attention is computed in tiles"""

ALIKE = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"}
"""types of weights whose products reference mode does not touch"""
TILED_WEIGHTS = 8
"""from this many rows on, products with all others are computed in tiles"""

Switch = Callable[[bool], None]


class ReferenceMode:
    """The mode of one context, whose model holds ``weights`` of these types; off in the beginning."""

    def __init__(self, context: Any, weights: Iterable[str]) -> None:
        self._switches = _switches(context)
        self._most = math.inf if ALIKE.issuperset(weights) else TILED_WEIGHTS - 1
        self._on: bool | None = False
        """None while it is switched, and where that was interrupted"""

    @property
    def available(self) -> bool:
        return bool(self._switches)

    def for_widths(self, longest: int, total: int) -> None:
        """Before a forward of at most ``longest`` tokens a sequence and ``total`` in all: all of it goes
        one way, so that a piece of a prompt beside it takes a narrow span's rows along."""
        on = longest < TILE and total <= self._most
        if on != self._on:
            self._on = None
            for switch in self._switches:
                switch(on)
            self._on = on


def _switches(context: Any) -> list[Switch]:
    """Return one switch per CPU backend of the context; none where the library does not export the way."""
    pointer = ctypes.c_void_p
    try:
        backends = backends_of(context)
        registry_of = exported("ggml_backend_dev_backend_reg", pointer, pointer)
        find = exported("ggml_backend_reg_get_proc_address", pointer, pointer, ctypes.c_char_p)
    except AttributeError:
        return []
    found: list[Switch] = []
    for each in backends:
        if each.kind == CPU:
            address = find(registry_of(each.device), b"ggml_backend_cpu_set_use_ref")
            if address:
                found.append(_switch(address, each.backend))
    return found


def _switch(address: int, backend: int) -> Switch:
    set_use_ref = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_bool)(address)
    return lambda on: set_use_ref(backend, on)
