"""Processes for work that may take too much time or memory: they end in place of the one that has the work,
as a single operation, of a native library or of Python, cannot be interrupted."""

from __future__ import annotations

import gc
import pickle
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

from localspec.errors import EngineError
from localspec.process import python, surroundings

MOST_BYTES = 1 << 29
"""memory of a child: on Linux its address space, elsewhere what it has in use"""
STACK = 4 << 20
"""bytes of a child's stack: half of what a worker's thread has"""
ALONE = {"OPENBLAS_NUM_THREADS": "1"}
"""numpy's threads, one for each core, would take up the address space"""
POLL_S = 0.05
LIMIT = signal.SIGPROF
"""the signal that ends a child at a limit, or early: that of its timer"""
SIZE = 4
"""bytes of the length of a result"""


class Child:
    """A process that runs a module whose main function calls :func:`serve`, one work after the other; any
    thread may use it. It is started at its first use, and again at the next one after its end: with ``once``
    each work has a process of its own."""

    def __init__(self, module: str, *, once: bool = False) -> None:
        self._module, self._once, self._lock = module, once, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, without waiting for it, unless it runs."""
        with self._lock:
            self._start()

    def do(self, work: object, is_cancelled: Callable[[], bool] = lambda: False) -> bytes | None:
        """Return the result of ``work``, which is pickled; None if the process has exceeded a limit, or if
        ``is_cancelled`` returns True meanwhile. Raises :class:`EngineError` if the process fails, or is ended
        from outside."""
        with self._lock:
            process, result, pickled = self._start(), None, pickle.dumps(work)
            try:
                result = self._exchange(process, pickled, is_cancelled)
            finally:  # also behind Ctrl-C: a late result would be taken for that of the next work
                if result is None or self._once:
                    self._stop(process)
            if result is None and (code := process.returncode) > 0:
                raise EngineError(f"the process {self._module} exited with code {code}")
            if result is None and -code in (signal.SIGKILL, signal.SIGTERM):
                what = f"the system ended the process {self._module} by {signal.Signals(-code).name}"
                raise EngineError(
                    what, "Free some memory, if it had too little; then send the request again."
                )
            return result

    def close(self) -> None:
        """End the process, also within its work, and if it is stopped."""
        if (process := self._process) is not None:
            _end(process)
            with self._lock:
                if process is self._process:  # not one that was started since
                    self._stop(process)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._stop(self._process)  # it was killed while it was idle
        if self._process is None:
            command, pipe, null = python(self._module), subprocess.PIPE, subprocess.DEVNULL
            # In a group of its own: Ctrl-C in a terminal is for the process that has the work.
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=null, process_group=0, **surroundings(added=ALONE)
            )
        return self._process

    def _exchange(
        self, process: subprocess.Popen[bytes], work: bytes, is_cancelled: Callable[[], bool]
    ) -> bytes | None:
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(work)
            process.stdin.flush()
            output = select.poll()  # unlike select(), also for the files of a process that has a thousand
            output.register(process.stdout, select.POLLIN)
            while not output.poll(1000 * POLL_S):
                if is_cancelled() or _exceeds(process):
                    _end(process)
            size = process.stdout.read(SIZE)
            result = process.stdout.read(int.from_bytes(size, "little"))
            return result if size and len(result) == int.from_bytes(size, "little") else None
        return None

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        self._process = None
        process.kill()
        process.communicate()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(LIMIT)
    process.send_signal(signal.SIGCONT)  # one that is stopped ends when it goes on


def _exceeds(process: subprocess.Popen[bytes]) -> bool:
    """True if a process has more memory in use than MOST_BYTES."""
    with suppress(psutil.Error):
        return bool(psutil.Process(process.pid).memory_info().rss > MOST_BYTES)
    return False


def limit_time(seconds: float) -> None:
    """End this process if its work takes so much processor time from now on."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def serve(work: Callable[[Any], bytes]) -> None:
    """Do each ``work`` that a :class:`Child` sends, until that has gone; on Linux with a
    limit of memory, and without the right to open a file or a socket, or to start a process."""
    if sys.platform == "linux":  # elsewhere these limits are not kept, or refused
        limits = {resource.RLIMIT_AS: MOST_BYTES, resource.RLIMIT_STACK: STACK}
        for limit, most in {**limits, resource.RLIMIT_NOFILE: 0, resource.RLIMIT_NPROC: 0}.items():
            resource.setrlimit(limit, (most, most))
    with suppress(EOFError):
        while True:
            try:
                result = work(pickle.load(sys.stdin.buffer))
            except MemoryError:
                signal.raise_signal(LIMIT)
            limit_time(0.0)
            sys.stdout.buffer.write(len(result).to_bytes(SIZE, "little") + result)
            sys.stdout.buffer.flush()
            gc.collect()  # the next work has all of the memory
