"""Published results of others, to show beside our own; gains over plain decoding."""

from __future__ import annotations

SWEEP_PUBLISHED: dict[str, dict[int, float]] = {
    "lookup n=3": {2: 1.68, 4: 1.64, 6: 1.64, 8: 1.46},
    "memory": {2: 1.34, 4: 1.58, 6: 1.60, 8: 1.57},
    "draft": {2: 1.21, 4: 1.15, 6: 1.12, 8: 1.01},
}
"""edits with an 8B target on Apple silicon (authors' figures): hashed n=16 for memory, a 3B draft"""
TURNS_PUBLISHED: dict[str, tuple[float, ...]] = {
    "lookup n=3, k=6": (1.14, 2.01, 2.07, 2.12),
    "hashed n=16, k=6": (0.92, 2.16, 2.24, 2.35),
}
"""long edits on an M5, speed by turn"""
RESTART_PUBLISHED = "a table warmed by a 3B model and used by an 8B one: first-turn acceptance 3 % → 27 %"
