"""All checks in their order; an exception in one is a finding too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from localspec.config import load_config
from localspec.doctor import backends, daemon, disk, models, service
from localspec.doctor.finding import Finding, problem_of
from localspec.doctor.probe import Report
from localspec.errors import LocalspecError
from localspec.models.description import BACKENDS
from localspec.protocol.messages import DaemonStatus

Check = Callable[[], Iterator[Finding]]


def examine(tell: Callable[[str, float], None] = lambda what, fraction: None) -> list[Finding]:
    """Run all checks; ``tell`` is called with the check at hand and the share done, 0 to 1."""
    findings: list[Finding] = []
    asked = cache(daemon.ask)

    def status() -> DaemonStatus | None:
        try:
            return asked().status
        except LocalspecError:  # the daemon's own line reports it
            return None

    with ThreadPoolExecutor() as pool:
        probes = {backend: pool.submit(backends.probed, backend) for backend in BACKENDS.values()}

        def report(backend: str) -> Report:
            return probes[backend].result()

        checks: dict[str, Check] = {
            "python": backends.python,
            "llama_cpp": lambda: backends.llama_cpp(report("llama_cpp")),
            "mlx": lambda: backends.mlx(report("mlx")),
            "config": lambda: models.models(report, status()),
            "daemon": lambda: daemon.daemon(asked()),
            "http": lambda: _addresses(status()),
            "disk": disk.disk,
            "service": service.service,
        }
        for number, (name, check) in enumerate(checks.items()):
            tell(f"checking {name}", number / len(checks))
            findings.extend(dict.fromkeys(guarded(name, check)))
    return findings


def _addresses(status: DaemonStatus | None) -> Iterator[Finding]:
    try:
        config = load_config()
    except LocalspecError:  # the configuration's own line reports it
        return iter(())
    return daemon.addresses(config, status)


def guarded(name: str, check: Check) -> list[Finding]:
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
