"""All checks in their order; an exception in one is a finding too."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path

import psutil

from localspec import home
from localspec.config import CORRECT, Config, config_path, environment_options, load_config, renamed_settings
from localspec.doctor import daemon, editors, history, http, memory, models, packages, places, service
from localspec.doctor.child import probed
from localspec.doctor.finding import Finding, ended, problem_of
from localspec.doctor.probe import Report
from localspec.errors import LocalspecError
from localspec.models.bundled import BUNDLED, bundled_models
from localspec.models.candidates import Room
from localspec.models.description import BACKENDS
from localspec.models.disk import Disk, read_disk
from localspec.models.fit import context_size, free_memory, needs_of
from localspec.models.model import Model, model_at
from localspec.models.pair import Pair, choose, is_apple_silicon, preferred
from localspec.models.processor import processor_name
from localspec.models.sections import Sections
from localspec.models.stores.store import User, hub_cache
from localspec.protocol.options import Options
from localspec.units import MB

Tell = Callable[[str, float], None]
Check = Callable[[], Iterator[Finding]]


def examine(tell: Tell = lambda what, fraction: None) -> list[Finding]:
    """Run all checks; ``tell`` is called with the check at hand and the share done, 0 to 1."""
    return Examination().run(tell)


class Examination:
    """The checks, and the results of earlier ones that later ones need."""

    def __init__(self) -> None:
        # First of all: using a directory removes the permissions of others.
        self._rights = guarded("permissions", lambda: places.permissions(home.places()))
        self._probes: dict[str, Future[Report]] = {}
        self._config: Config | None = None
        """the configuration of the file, if it is valid"""
        self._options: Options | None = None
        """the options of the file and the environment, if both are valid"""
        self._pair: Pair | None = None
        """the default pair, if it is usable"""
        self._tell: Tell = lambda what, fraction: None

    def run(self, tell: Tell) -> list[Finding]:
        steps: dict[str, Check] = {
            "python": self._python,
            "llama_cpp": self._llama_cpp,
            "mlx": self._mlx,
            "auto": self._auto,
            "bundled": self._bundled,
            "config": self._settings,
            "models": self._models,
            "model_dirs": self._model_dirs,
            "model": self._model,
            "pairing": self._pairing,
            "memory": self._memory,
            "ngrams": self._ngrams,
            "history": lambda: iter([history.history(home.places()["data"] / home.HISTORY)]),
            "disk": self._disk_space,
            "home": places.homes,
            "permissions": lambda: iter(self._rights),
            "daemon": self._daemon,
            "sockets": self._sockets,
            "service": lambda: iter([service.service()]),
            "http": self._http,
            "editors": lambda: editors.editors(home.of_user()),
        }
        findings: list[Finding] = []
        with ThreadPoolExecutor() as pool:
            self._probes = {backend: pool.submit(probed, backend) for backend in BACKENDS.values()}
            for number, (name, check) in enumerate(steps.items()):
                tell(f"checking {name}", number / len(steps))
                self._tell = partial(_tell_part, tell, number, len(steps))
                findings.extend(guarded(name, check))
        return findings

    # Packages.

    def _python(self) -> Iterator[Finding]:
        system = f"{platform.system()} {platform.machine()}"
        yield packages.python(sys.version_info[:3], sys.executable, system)

    def _llama_cpp(self) -> Iterator[Finding]:
        yield packages.llama_cpp(self._report("llama_cpp"), processor_name())

    def _mlx(self) -> Iterator[Finding]:
        yield packages.mlx(self._report("mlx"), platform.system(), platform.machine())

    def _report(self, backend: str) -> Report:
        return self._probes[backend].result()

    def _auto(self) -> Iterator[Finding]:
        format, why = preferred()
        usable = {backend: self._report(backend).usable for backend in self._probes}
        yield packages.auto(usable, BACKENDS[format], why)

    def _bundled(self) -> Iterator[Finding]:
        yield packages.bundled([model_at(path).described(name) for name, path in bundled_models()])

    # Models.

    def _settings(self) -> Iterator[Finding]:
        """Check the settings in the file and in the environment."""
        path = config_path()
        config = load_config()
        self._config = config
        there = f"{path} is valid." if path.exists() else f"There is no {path}: the defaults apply."
        yield Finding("config", "ok", there)
        for notice in renamed_settings(path):
            yield Finding("config", "warning", ended(notice), CORRECT)
        yield from models.unknown_sections(config)
        self._options = Sections(config).merged(environment_options())

    @property
    def _dirs(self) -> tuple[str, ...]:
        return () if self._config is None else self._config.model_dirs

    @cached_property
    def _disk(self) -> Disk:
        return read_disk(self._dirs, progress=self._tell)

    def _models(self) -> Iterator[Finding]:
        yield from models.found(self._disk)

    def _model_dirs(self) -> Iterator[Finding]:
        for directory in self._dirs:
            yield models.model_dir(Path(os.path.expanduser(directory)), self._disk)

    def _model(self) -> Iterator[Finding]:
        if self._options is None:
            return
        try:
            pair = self._chosen(self._options, "none")
        except LocalspecError as error:
            yield problem_of("model", error, models.mend("model"))
            return
        found = models.default(pair, self._report(pair.backend).usable)
        if found.level == "ok":
            self._pair = pair
        yield found

    def _pairing(self) -> Iterator[Finding]:
        if self._options is None or self._pair is None:
            return
        try:
            self._pair = self._chosen(self._options, self._options.draft or "auto")
            yield models.pairing(self._pair, self._disk.models)
        except LocalspecError as error:
            yield problem_of("pairing", error, models.mend("draft"))

    def _chosen(self, options: Options, draft: str) -> Pair:
        config = self._config or Config()
        engine = Sections(config).engine(options.model or BUNDLED)
        room = Room(engine, lambda target: None if self._is_on_device(target) else self._room())
        model, backend = options.model or BUNDLED, options.backend or "auto"
        return choose(model, draft, config.model_dirs, backend=backend, room=room)

    # Memory, disk, permissions.

    def _is_on_device(self, target: Model) -> bool:
        """True if a model is loaded to a device's memory, as ``engine.load`` decides; by the probes."""
        engine = Sections(self._config or Config()).engine(str(target.path))
        is_mlx = target.format == "mlx"
        device = self._report("mlx" if is_mlx else "llama_cpp").device
        return not is_apple_silicon() and device not in ("", "the CPU") and (is_mlx or engine.gpu_layers != 0)

    def _room(self) -> int:
        """Bytes that a model can take: free ones and those of loaded models, at most memory_mb."""
        try:
            loaded = () if self._asked.status is None else self._asked.status.models
        except LocalspecError:  # the check of the daemon reports it
            loaded = ()
        free = free_memory() + sum(model.resident_bytes or 0 for model in loaded)
        limit = (self._config or Config()).daemon.memory_mb * MB
        return min(free, limit) if limit else free

    def _memory(self) -> Iterator[Finding]:
        total = psutil.virtual_memory().total
        if self._pair is None or self._is_on_device(self._pair.target):
            yield memory.machine(free_memory(), total)
            return
        target, draft = self._pair.target, self._pair.draft
        pair = target.name + (f" with {draft.name}" if draft is not None else "")
        engine = Sections(self._config or Config()).engine(str(target.path))
        needs = needs_of(target, draft, engine)
        n_ctx = context_size(target.description.context, engine)
        yield memory.machine(free_memory(), total, pair, needs, self._room(), n_ctx)

    def _ngrams(self) -> Iterator[Finding]:
        wanted = self._config is None or self._config.engine.memory
        yield from memory.ngrams(home.places()["data"] / "memory", wanted)

    def _disk_space(self) -> Iterator[Finding]:
        yield from places.disk({**home.places(), "models from the hub": hub_cache(User.here())})

    # The daemon.

    @cached_property
    def _asked(self) -> daemon.Asked:
        return daemon.ask()

    def _daemon(self) -> Iterator[Finding]:
        yield daemon.daemon(self._asked)

    def _sockets(self) -> Iterator[Finding]:
        yield from daemon.sockets(self._asked, home.places()["runtime"])

    def _http(self) -> Iterator[Finding]:
        config = self._config or Config()
        yield from http.server_findings(config.http, self._asked.status)
        trained = None if self._pair is None else self._pair.target.description.context
        yield from http.context(config, self._asked.status, trained)


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
        findings.append(Finding(name, "problem", sentence, "Report this sentence."))
    return findings


def _tell_part(tell: Tell, number: int, steps: int, what: str, fraction: float) -> None:
    """Report the share of all steps that is done, from the share of one."""
    tell(what, (number + fraction) / steps)
