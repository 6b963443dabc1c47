"""All checks in their order, and those of disks; an exception in one is a finding too."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache

from localspec import home
from localspec.accelerator import find_accelerators
from localspec.config import load_config
from localspec.doctor import Finding, backends, daemon, models, problem_of
from localspec.doctor.probe import Report
from localspec.errors import LocalspecError
from localspec.models.model import BACKENDS
from localspec.wording import GB, MB, size

Check = Callable[[], Iterator[Finding]]


def examine(tell: Callable[[str, float], None] = lambda what, fraction: None) -> list[Finding]:
    """Run all checks; ``tell`` is called with the check at hand and the share done, 0 to 1."""
    findings, asked, of_config = list[Finding](), cache(daemon.ask), dict[str, Check]()
    with suppress(LocalspecError):  # the configuration's own line reports it
        config = load_config()
        of_config["nodes"] = lambda: models.nodes(config)
        of_config["rpc"] = lambda: models.servers(config)
        of_config["http"] = lambda: daemon.http(config.http, asked().status)
    with ThreadPoolExecutor() as pool:
        probes = {backend: pool.submit(backends.probe_backend, backend) for backend in BACKENDS.values()}

        def report(backend: str) -> Report:
            return probes[backend].result()

        checks: dict[str, Check] = {
            "python": backends.python,
            "llama_cpp": lambda: backends.llama_cpp(report("llama_cpp"), find_accelerators()),
            "mlx": lambda: backends.mlx(report("mlx")),
            "config": lambda: models.models(report, asked().status),
            "daemon": lambda: daemon.daemon(asked()),
            **of_config,
            "disk": disk,
        }
        for number, (name, check) in enumerate(checks.items()):
            tell(f"checking {name}", number / len(checks))
            findings.extend(dict.fromkeys(run_check(name, check)))
    return findings


def run_check(name: str, check: Check) -> list[Finding]:
    """Run a check and return its findings; an exception that ends it becomes the last one, a problem."""
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except LocalspecError as error:
        findings.append(problem_of(name, error))
    except Exception as error:
        # Unforeseen; the other checks may show the cause.
        sentence = f"This could not be checked: {type(error).__name__}: {error}."
        step = None if isinstance(error, OSError) else "Report this sentence."
        findings.append(Finding(name, "problem", sentence, step))
    return findings


LITTLE, NOTHING = GB, 16 * MB
"""free bytes of a disk; below the second the first table of n-grams, or a chat's cache, may not fit"""
STEP = "Free disk space: `localspec models rm NAME` removes a downloaded model, `localspec config set "
STEP += "chat_cache_mb 0` keeps no caches of chats."


def disk() -> Iterator[Finding]:
    """Check that each directory can be created and written, and the free space of each disk."""
    disks: dict[int, list[str]] = {}
    for place in (home.data_dir, home.cache_dir, home.state_dir, home.runtime_dir):
        try:
            with tempfile.TemporaryFile(dir=place()) as file:
                disks.setdefault(os.fstat(file.fileno()).st_dev, []).append(str(place()))
        except OSError as error:
            sentence = f"{place()} cannot be written: {error.strerror}."
            step = f"Run `chmod 700 '{place()}'`, or set LOCALSPEC_HOME to a directory you can write to."
            yield Finding("disk", "problem", sentence, step)
        except LocalspecError as error:
            yield problem_of("disk", error)
    for paths in disks.values():
        yield room(shutil.disk_usage(paths[0]).free, ", ".join(paths))


def room(free: int, places: str) -> Finding:
    """Check the free bytes of a disk with these places."""
    sentence = f"{size(free)} are free for {places}."
    if free >= LITTLE:
        return Finding("disk", "ok", sentence)
    return Finding("disk", "warning" if free >= NOTHING else "problem", sentence, STEP)
