"""Rows that do not depend on the number of rows beside them: ggml's reference mode, for forwards of rounds.

On a CPU, flash attention sums a lone row over 512 cells and more in parts, one per thread, and a row among
others in one go (ggml-cpu/ops.cpp, ``ggml_compute_forward_flash_attn_ext_f16``). That differs in the last
bit, which quantised activations amplify to up to 0.2 logits. In reference mode every row is summed in one go,
and forwards of 1, 2, 5 and 16 tokens give the same bits, however long the context. That is faster or slower:
on 2 cores a lone row behind 1,900 tokens takes 18.2 ms instead of 20.2 (0.5 billion parameters at Q8_0),
behind 1,500 42.8 instead of 39.7 (1.5 billion at Q4_K_M), behind 3,500 34.3 instead of 32.5 (0.5 billion). So
where more rows of a model's weights are not equal anyway, a lone row is in it only if it must be. Long pieces
of a prompt are much faster without it: they are computed in tiles. So are products with K-quants and similar
types from eight rows on, which pays from 16 on: with 1.5 billion parameters at Q4_K_M, 8 rows cost 5.0
forwards of one row in reference mode and 6.5 without, 12 rows 7.3 and 7.9, 16 rows 7.6 and 7.5, 32 rows 14.9
and 12.8. In it, up to three rows of Q4_K, and up to seven of Q5_K and Q6_K, are equal.

llama.cpp's C interface gives no access to ggml's backends, but its shared library exports the C++ method
that does. Where it is not exported, the mode stays off. In either case strict mode relies only on what
:mod:`localspec.backends.rounding` measures.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable
from typing import Any

from localspec.backends.llama_cpp.devices import CPU, backends_of, exported

TILE = 64
"""from this many rows on, attention is computed in tiles"""

ALIKE = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"}
"""types of weights whose products are the same with and without reference mode"""
TILED_WEIGHTS = 16
"""from this many rows on, products with all others are faster in tiles"""

Switch = Callable[[bool], None]


class ReferenceMode:
    """The mode of one context, whose model has weights of the types ``weights``; off in the beginning, and
    not available where no layer is computed ``on_cpu``."""

    def __init__(self, context: Any, weights: Iterable[str], *, on_cpu: bool = True) -> None:
        self._switches = _switches(context) if on_cpu else []
        self._most = math.inf if ALIKE.issuperset(weights) else TILED_WEIGHTS - 1
        self._on = False
        self.available = bool(self._switches)
        self.fast_alone = self.available and self._most < math.inf
        """True if lone rows are summed in parts unless they must be exact"""

    def for_widths(self, longest: int, total: int, *, exact: bool = True) -> None:
        """Switch the mode for a forward of at most ``longest`` tokens a sequence and ``total`` in all. It
        holds for the whole forward: beside a long piece of a prompt, short spans are computed without it."""
        on = longest < TILE and total <= self._most and (exact or longest > 1 or not self.fast_alone)
        if on != self._on:
            for switch in self._switches:
                switch(on)
            self._on = on


def _switches(context: Any) -> list[Switch]:
    """Return one switch per CPU backend of the context; none where the library exports no access to them."""
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
