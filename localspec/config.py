"""The one schema of the configuration: defaults, ``config.toml``, environment.

What holds for a request, from the strongest to the weakest: the command's flags, its environment, the
session's options, ``[workspaces."directory"]``, ``[models."name"]``, ``[options]`` and ``[engine]``, the
defaults. ``models/sections.py`` finds which sections those are.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from localspec import home
from localspec.errors import InvalidOptions
from localspec.protocol.options import (
    LONGEST_SHOWN,
    Options,
    check_options,
    check_value,
    parse_options,
    readable,
    unknown_key,
)

T = TypeVar("T")

SECTION_EXAMPLES = {"models": "qwen2.5-coder:7b", "workspaces": "~/src/project"}

LARGEST_FILE = 1 << 20
"""bytes that a configuration may have"""

Count = Annotated[int, Meta(ge=0, le=100_000_000)]
Limit = Annotated[int, Meta(ge=1, le=1_000_000)]
Bytes = Annotated[int, Meta(ge=1024, le=1 << 30)]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model is loaded and speculated with. 0 means: chosen for this machine."""

    n_ctx: Count = 0
    """tokens of context per sequence; 0: the model's own, at most 8192"""
    parallel: Annotated[int, Meta(ge=0, le=64)] = 0
    """sequences at once, each with n_ctx tokens of cache; 0: up to 4, as memory allows"""
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    """CPU threads; 0: one per physical core"""
    gpu_layers: Annotated[int, Meta(ge=-1, le=10_000)] = -1
    """layers on the GPU; -1: all where there is one"""
    prefill_chunk: Annotated[int, Meta(ge=2, le=4096)] = 256
    """tokens of prompt per forward"""
    kv_bits: Literal[0, 4, 8] = 0
    """bits of a number in the cache; 0: as the model computes it"""
    ngram_min: Annotated[int, Meta(ge=1, le=5)] = 2
    """shortest match of prompt lookup, in tokens"""
    ngram_max: Annotated[int, Meta(ge=1, le=5)] = 5
    """longest match that prompt lookup searches for, in tokens"""
    lookup_output_only: bool = False
    """prompt lookup searches the answer alone, not the prompt"""
    controller: Literal["cost", "ema", "fixed"] = "cost"
    """how auto chooses: by measured cost, by a moving average of acceptance, or always k tokens"""
    ema_alpha: Annotated[float, Meta(gt=0, le=1)] = 0.1
    """of controller = "ema": how fast the average moves"""
    acceptance_threshold: Annotated[float, Meta(ge=0, le=1)] = 0.3
    """of controller = "ema": a proposer under it is left alone but for probes"""
    repetition_gate: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """auto is off for prompts whose share of repeated 3-grams is under it; 0: never"""
    disable_by_batch_size: Count = 0
    """no speculation while so many requests decode together; 0: as measured costs say"""
    chat_cache_mb: Count = 1024
    """megabytes on disk for the caches of chats, so that they go on after a restart; 0: none"""
    memory: bool = True
    """keep an n-gram memory on disk, per workspace"""


class DaemonConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the daemon listens, and its limits."""

    port: Annotated[int, Meta(ge=0, le=65535)] = 8737
    """loopback TCP port; another free one if taken"""
    allowed_origins: tuple[str, ...] = ()
    """Origin headers let in; browsers send one, editors do not"""
    max_frame: Bytes = 4 * 1024 * 1024
    """bytes per WebSocket message"""
    max_connections: Limit = 64
    """connections open at once"""
    max_in_flight: Limit = 32
    """requests running or queued per connection"""
    max_queued: Limit = 256
    """requests running or queued in all"""
    send_buffer: Bytes = 1024 * 1024
    """bytes a slow client may leave unread"""
    slow_client_s: Seconds = 30.0
    """seconds a client's buffer may stay full"""
    grace_s: Annotated[float, Meta(ge=0, le=86400)] = 30.0
    """seconds an answer goes on, and is kept, for a client that was lost"""
    ping_interval_s: Seconds = 20.0
    """seconds between heartbeats"""
    idle_unload_s: Annotated[float, Meta(ge=0, le=31_536_000)] = 600.0
    """seconds after which a model that nobody uses is unloaded; 0: never"""
    hang_s: Seconds = 30.0
    """seconds without a step after which a model at work is given up"""
    memory_mb: Count = 0
    """megabytes that all loaded models may take together; 0: what is free"""


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[models."name"]``: what holds where this model answers; in the file both stand side by side."""

    engine: dict[str, Any] = {}
    """knobs of ``[engine]``"""
    options: Options = Options()

    def over(self, base: EngineConfig) -> EngineConfig:
        """How this model is loaded."""
        return msgspec.structs.replace(base, **self.engine)


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of ``config.toml``."""

    model_dirs: tuple[str, ...] = ()
    """directories searched for models"""
    engine: EngineConfig = EngineConfig()
    """how models are loaded"""
    daemon: DaemonConfig = DaemonConfig()
    """how the daemon listens"""
    options: Options = Options(model="bundled", draft="auto", proposer="auto", backend="auto")
    """what a request that does not say otherwise gets"""
    models: dict[str, ModelConfig] = {}
    """by a model's name or path: what holds for it instead"""
    workspaces: dict[str, Options] = {}
    """by a directory: what holds for requests from there instead"""


SECTION_KEYS = {
    "models": tuple(
        name
        for name in (*EngineConfig.__struct_fields__, *Options.__struct_fields__)
        if name not in ("model", "workspace")
    ),
    "workspaces": tuple(name for name in Options.__struct_fields__ if name != "workspace"),
}
"""what may stand in a section of either kind"""


def config_path() -> Path:
    """The file the configuration is read from."""
    return home.config_dir() / "config.toml"


def load_config(path: Path | None = None) -> Config:
    """Read the configuration; a missing file gives the defaults.

    Raises :class:`InvalidOptions` for a file that is not TOML, an unknown key (naming the
    nearest one) or a value out of range.
    """
    path = config_path() if path is None else path
    return parse_config(parse_toml(read_toml(path), where=str(path)), where=str(path))


def read_toml(path: Path) -> str:
    """The file's text, line ends as they are; empty without a file. Raises :class:`InvalidOptions`."""
    try:
        found = path.stat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise InvalidOptions(f"{path} is no regular file", f"Put one in the place of {path}.")
        if found.st_size > LARGEST_FILE:
            raise InvalidOptions(f"{path} is larger than {LARGEST_FILE >> 20} MiB", f"Mend {path}.")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise InvalidOptions(f"{path} is not valid TOML: {error}", f"Mend {path}.") from None
    except OSError as error:
        raise InvalidOptions(f"{path} cannot be read: {error.strerror}", f"Mend {path}.") from None


def parse_toml(text: str, *, where: str) -> dict[str, Any]:
    """The tables of a text, not validated yet; raises :class:`InvalidOptions`."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError, too
        raise InvalidOptions(f"{where} is not valid TOML: {error}", f"Mend {where}.") from None


def fingerprint(config: Config) -> str:
    """Alike for two processes that were told the same."""
    return hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:16]


def environment_options() -> Options:
    """What ``LOCALSPEC_MODEL``, ``_DRAFT``, ``_PROPOSER`` and ``_BACKEND`` say.

    They belong to the command that is run with them, never to the daemon. Raises :class:`InvalidOptions`.
    """
    values = {}
    for name in ("model", "draft", "proposer", "backend"):
        variable = f"LOCALSPEC_{name.upper()}"
        if value := os.environ.get(variable):
            try:
                check_value(Options, name, value, said=variable)
            except InvalidOptions as error:
                raise InvalidOptions(error.message, f"Mend {variable}.") from None
            values[name] = value
    return parse_options(values)


def parse_config(values: dict[str, Any], *, where: str) -> Config:
    """Validate the tables of a configuration; ``where`` names their origin in errors."""
    remedy = f"Mend {where}."
    _check_keys(values, Config, "", remedy)
    for name, table in (("engine", EngineConfig), ("daemon", DaemonConfig), ("options", Options)):
        if isinstance(values.get(name), dict):
            _check_keys(values[name], table, f"{name}.", remedy)
    models, workspaces = (_sections(values, kind, remedy) for kind in SECTION_KEYS)
    try:
        config = msgspec.convert({k: v for k, v in values.items() if k not in SECTION_KEYS}, Config)
    except msgspec.ValidationError as error:
        raise InvalidOptions(f"invalid configuration: {readable(error)}", remedy) from None
    config = msgspec.structs.replace(
        config,
        options=config.options.over(Config().options),
        models={name: _model_section(name, table, remedy) for name, table in models.items()},
        workspaces={name: _workspace_section(name, table, remedy) for name, table in workspaces.items()},
    )
    return _checked(config, remedy)


def _sections(values: dict[str, Any], kind: str, remedy: str) -> dict[str, dict[str, Any]]:
    """The tables of ``[models]`` or ``[workspaces]``, with their keys checked."""
    sections = values.get(kind, {})
    if not isinstance(sections, dict):
        raise InvalidOptions(f"{kind} is no table", remedy)
    for name, table in sections.items():
        if not isinstance(table, dict) or any(isinstance(value, dict) for value in table.values()):
            raise InvalidOptions(
                f"[{kind}.{name[:LONGEST_SHOWN]}] is no table of settings",
                f'Write names in quotes, as in [{kind}."{SECTION_EXAMPLES[kind]}"]. {remedy}',
            )
        for key in table:
            if key not in SECTION_KEYS[kind]:
                unknown = unknown_key("setting", key, SECTION_KEYS[kind])
                raise InvalidOptions(f"in {section_name(kind, name)}: {unknown}", remedy)
    return sections


def _model_section(name: str, table: dict[str, Any], remedy: str) -> ModelConfig:
    knobs = {key: value for key, value in table.items() if key in EngineConfig.__struct_fields__}
    others = {key: value for key, value in table.items() if key not in knobs}
    where = section_name("models", name)
    engine = _converted(knobs, EngineConfig, where, remedy)
    options = _converted(others, Options, where, remedy)
    return ModelConfig(engine={key: getattr(engine, key) for key in knobs}, options=options)


def _workspace_section(name: str, table: dict[str, Any], remedy: str) -> Options:
    where = section_name("workspaces", name)
    if not os.path.isabs(os.path.expanduser(name)) or "\0" in name:
        raise InvalidOptions(f"{where} names no absolute path", remedy)
    return _converted(table, Options, where, remedy)


def _converted(table: dict[str, Any], struct: type[T], where: str, remedy: str) -> T:
    try:
        return msgspec.convert(table, struct)
    except msgspec.ValidationError as error:
        raise InvalidOptions(f"invalid configuration: in {where}: {readable(error)}", remedy) from None


def section_name(kind: str, name: str) -> str:
    """How a section is headed in the file."""
    return f'[{kind}."{name}"]'


def override(config: Config, pairs: dict[str, str]) -> Config:
    """``--opt key=value``: any field of the options, any knob of ``engine`` or ``daemon``."""
    values: dict[str, Any] = msgspec.to_builtins(config)
    tables = {"options": Options, "engine": EngineConfig, "daemon": DaemonConfig}
    known = [f for struct in tables.values() for f in struct.__struct_fields__]
    for key, text in pairs.items():
        prefix, _, name = key.rpartition(".")
        table = next(
            (t for t, s in tables.items() if name in s.__struct_fields__ and prefix in ("", t)), None
        )
        if table is None:
            raise InvalidOptions(unknown_key("option", key, known))
        values.setdefault(table, {})[name] = [text] if name == "stop" else text
        for section in values.get("models", {}).values():
            section.get("engine", {}).pop(name, None)
    try:
        changed = msgspec.convert(values, Config, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidOptions(f"invalid option: {readable(error)}") from None
    return _checked(changed)


def _checked(config: Config, remedy: str | None = None) -> Config:
    """Checks over several fields; returns ``config``."""
    _check_together("", config.engine, config.options, remedy)
    for name, section in config.models.items():
        where = f" in {section_name('models', name)}"
        _check_together(where, section.over(config.engine), section.options.over(config.options), remedy)
    for name, options in config.workspaces.items():
        where = f" in {section_name('workspaces', name)}"
        _check_together(where, config.engine, options.over(config.options), remedy)
    return config


def _check_together(where: str, engine: EngineConfig, options: Options, remedy: str | None) -> None:
    if engine.ngram_min > engine.ngram_max:
        raise InvalidOptions(f"engine.ngram_min is larger than engine.ngram_max{where}", remedy)
    try:
        check_options(options)
    except InvalidOptions as error:
        raise InvalidOptions(error.message + where, error.remedy) from None


def _check_keys(values: dict[str, Any], struct: type[msgspec.Struct], prefix: str, remedy: str) -> None:
    for key in values:
        if key not in struct.__struct_fields__:
            raise InvalidOptions(unknown_key("setting", prefix + key, _names(struct, prefix)), remedy)


def _names(struct: type[msgspec.Struct], prefix: str) -> list[str]:
    return [prefix + field for field in struct.__struct_fields__]
