"""All checks, one after the other; what goes wrong in one is a finding, too."""

from __future__ import annotations

import asyncio
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import psutil

from localspec import home
from localspec.config import Config, config_path, environment_options, load_config
from localspec.doctor import checks
from localspec.doctor.child import probed
from localspec.doctor.finding import Finding, problem_of
from localspec.engine.choice import choose
from localspec.errors import LocalspecError
from localspec.models.catalogue import (
    BACKENDS,
    BUNDLED,
    describe,
    format_of,
    model_files,
    model_name,
)
from localspec.models.processor import processor_name
from localspec.models.sections import Sections
from localspec.protocol.options import Options

ANSWER_S = 5.0
"""how long a daemon may take to answer"""

Tell = Callable[[str, float], None]
Check = Callable[[], Iterator[Finding]]


def examine(tell: Tell = lambda what, fraction: None) -> list[Finding]:
    """Everything that localspec needs; ``tell`` hears what is looked at, and how much is done, 0 to 1."""
    return Examination().run(tell)


class Examination:
    """The checks, and what later ones know from earlier ones."""

    def __init__(self) -> None:
        self._config: Config | None = None
        """what the file says, where it is valid"""
        self._options: Options | None = None
        """what the file and the environment say, where both are valid"""
        self._usable: dict[str, bool] = {}

    def run(self, tell: Tell) -> list[Finding]:
        steps: dict[str, Check] = {
            "python": self._python,
            "llama_cpp": self._llama_cpp,
            "mlx": self._mlx,
            "auto": self._auto,
            "bundled": self._bundled,
            "config": self._settings,
            "model": self._model,
            "model_dirs": self._model_dirs,
            "memory": self._memory,
            "home": self._homes,
            "daemon": self._daemon,
        }
        findings: list[Finding] = []
        for number, (name, check) in enumerate(steps.items()):
            tell(f"looking at {name}", number / len(steps))
            findings.extend(_guarded(name, check))
        return findings

    def _python(self) -> Iterator[Finding]:
        system = f"{platform.system()} {platform.machine()}"
        yield checks.python(sys.version_info[:3], sys.executable, system)

    def _llama_cpp(self) -> Iterator[Finding]:
        report = probed("llama_cpp")
        self._usable["llama_cpp"] = report.usable
        yield checks.llama_cpp(report, processor_name())

    def _mlx(self) -> Iterator[Finding]:
        report = probed("mlx")
        self._usable["mlx"] = report.usable
        yield checks.mlx(report, platform.system(), platform.machine())

    def _auto(self) -> Iterator[Finding]:
        choice = choose(BUNDLED, "none", speed=_speed)
        backend = BACKENDS[format_of(choice.target)]
        yield checks.auto(self._usable, backend, choice.backend_reason.partition(", ")[2])

    def _bundled(self) -> Iterator[Finding]:
        yield checks.bundled([describe(name, path) for name, path in model_files(())])

    def _settings(self) -> Iterator[Finding]:
        """What is said in the file and in the environment."""
        path = config_path()
        config = load_config()
        self._config = config
        there = f"{path} is valid." if path.exists() else f"There is no {path}: the defaults hold."
        yield Finding("config", "ok", there)
        sections = Sections(config)
        for name in sections.strangers():
            told = f"{path} has settings for {name!r}: no model here goes by that name."
            yield Finding("config", "warning", told, "See `localspec models list` for the names.")
        self._options = sections.merged(environment_options())

    def _model(self) -> Iterator[Finding]:
        """What answers where a command names no model."""
        config, said = self._config, self._options
        if config is None or said is None:
            return
        model, draft, backend = said.model or BUNDLED, said.draft or "auto", said.backend or "auto"
        choice = choose(model, draft, config.model_dirs, backend=backend, speed=_speed)
        beside = f" with {model_name(choice.draft)} as its draft" if choice.draft else " without a draft"
        told = f"{model_name(choice.target)} answers unless told otherwise,{beside}, {choice.backend_reason}."
        runs_on = BACKENDS[format_of(choice.target)]
        files = (path for path in (choice.target, choice.draft) if path is not None)
        broken = next((why for path in files if (why := describe(model, path).problem)), None)
        if broken:
            yield Finding("model", "problem", f"{told} But {broken}.", "Choose another with -m.")
        elif not self._usable.get(runs_on, False):
            yield Finding("model", "problem", told, f"Mend {runs_on}, or choose another model.")
        else:
            yield Finding("model", "ok", told)

    def _model_dirs(self) -> Iterator[Finding]:
        if self._config is None:
            return
        if not self._config.model_dirs:
            yield checks.NO_MODEL_DIRS
        bundled = sum(1 for _ in model_files(()))
        for directory in self._config.model_dirs:
            # The bundled models come first, whatever the directory.
            files = islice(model_files((directory,)), bundled, None)
            models = [describe(name, path) for name, path in files]
            yield checks.model_dir(Path(directory).expanduser(), models, config_path())

    def _memory(self) -> Iterator[Finding]:
        found = psutil.virtual_memory()
        yield checks.memory(found.available, found.total)

    def _homes(self) -> Iterator[Finding]:
        kinds = {
            "data": home.data_dir,
            "cache": home.cache_dir,
            "state": home.state_dir,
            "runtime": home.runtime_dir,
        }
        usable: dict[str, Path] = {}
        for kind, place in kinds.items():
            try:
                usable[kind] = _writable(place())
            except LocalspecError as error:
                yield problem_of("home", error)
        if usable:
            yield checks.homes(usable)

    def _daemon(self) -> Iterator[Finding]:
        yield asyncio.run(_answer_of_the_daemon())


def _guarded(name: str, check: Check) -> list[Finding]:
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except LocalspecError as error:
        findings.append(problem_of(name, error))
    except Exception as error:
        # Nobody foresaw it, and the other checks may show why.
        told = f"This could not be checked: {type(error).__name__}: {error}."
        findings.append(Finding(name, "problem", told, "Report this sentence."))
    return findings


def _speed(model: Path) -> float | None:
    # All of the engine is loaded with it, numpy too: late, so that it cannot keep the doctor from starting.
    from localspec.engine.load import speed_of

    return speed_of(model)


def _writable(path: Path) -> Path:
    """``path``, after a file was made there; raises :class:`LocalspecError`."""
    try:
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        remedy = f"Run chmod 700 '{path}', or set LOCALSPEC_HOME to a directory you can write to."
        raise LocalspecError(f"{path} cannot be written: {error.strerror}", remedy) from None


async def _answer_of_the_daemon() -> Finding:
    from localspec.client import connect, discovery
    from localspec.errors import DaemonUnavailable

    found = discovery.find()
    if found is None:
        return checks.NO_DAEMON
    try:
        async with asyncio.timeout(ANSWER_S), await connect(start=False) as client:
            return checks.daemon(client.welcome.server.version, found.pid)
    except (DaemonUnavailable, TimeoutError):
        return checks.silent_daemon(found.pid) if _is_a_daemon(found.pid) else checks.NO_DAEMON


def _is_a_daemon(pid: int) -> bool:
    """Whether the process that a discovery file names is still that one; a number may have been reused."""
    try:
        return "localspec.daemon" in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
