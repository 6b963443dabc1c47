"""PyTorch's settings for this machine."""

import ctypes
import os
import sys

import torch


def prepare_torch(threads: int) -> torch.device:
    """Set threads and determinism; returns the device to train on: CUDA where torch sees it."""
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # Fused attention has no exactly repeatable backward pass everywhere: warn, go on.
        torch.use_deterministic_algorithms(True, warn_only=True)
        return torch.device("cuda")
    keep_freed_memory()
    return torch.device("cpu")


def keep_freed_memory() -> None:
    """Stop glibc from handing large tensors back to the kernel after every step.

    Page faults of the memory that comes back cost up to a quarter of a CPU run.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, most_mappings = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(most_mappings, 0)
