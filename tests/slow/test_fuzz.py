"""Hundreds of thousands of damaged messages; tests/daemon/test_fuzz.py sends some to a daemon."""

from __future__ import annotations

import os
import random

import pytest

from tests.protocol.fuzzing import fuzz_messages
from tests.slow.share import share

MESSAGES = share(200_000)


@pytest.mark.slow
def test_messages() -> None:
    """Others each time; LOCALSPEC_FUZZ_SEED repeats those of a seed that was printed."""
    seed = int(os.environ.get("LOCALSPEC_FUZZ_SEED") or random.randrange(1 << 30))
    endings = fuzz_messages(MESSAGES, seed)
    print(f"seed {seed}: {endings.total()} messages, {dict(endings)}, 0 crashes")
    assert endings.total() == MESSAGES and len(endings) == 6
