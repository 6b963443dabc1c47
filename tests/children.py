"""A module that a child runs: it evaluates the expressions that it gets."""

from __future__ import annotations

import os
import socket
import time

from localspec.child import limit_time, serve

__all__ = ["os", "socket", "time"]


def evaluate(work: tuple[str, float]) -> bytes:
    expression, seconds = work
    limit_time(seconds)
    try:
        return str(eval(expression)).encode()
    except OSError as error:
        return os.strerror(error.errno or 0).encode()


if __name__ == "__main__":
    serve(evaluate)
