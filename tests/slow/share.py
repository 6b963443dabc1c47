"""The share of cases that the long tests run: a quarter, or that of ``make test-slow SHARE=1``."""

from __future__ import annotations

import os

SHARE = float(os.environ.get("LOCALSPEC_SHARE") or 0.25)


def share(count: int) -> int:
    """That share of ``count``."""
    return max(1, round(count * SHARE))
