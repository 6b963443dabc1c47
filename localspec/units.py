"""Bytes in readable units: decimal, as disks and hubs count them."""

from __future__ import annotations

KB, MB, GB = 10**3, 10**6, 10**9


def size(n_bytes: float) -> str:
    """``4.7 GB``, ``13.3 MB``, ``262.1 kB``."""
    for unit, name in ((GB, "GB"), (MB, "MB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:.1f} {name}"
    return f"{n_bytes / KB:.1f} kB"
