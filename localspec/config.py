"""The one schema of the configuration: defaults, ``config.toml``, environment."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from localspec import home
from localspec.errors import InvalidOptions
from localspec.protocol.options import (
    Options,
    check_options,
    check_value,
    parse_options,
    readable,
    unknown_key,
)

Count = Annotated[int, Meta(ge=0, le=100_000_000)]


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
    max_frame: Annotated[int, Meta(ge=1024)] = 4 * 1024 * 1024
    """bytes per WebSocket message"""
    max_connections: Annotated[int, Meta(ge=1)] = 64
    """connections open at once"""
    max_in_flight: Annotated[int, Meta(ge=1)] = 32
    """requests running or queued per connection"""
    max_queued: Annotated[int, Meta(ge=1)] = 256
    """requests running or queued in all"""
    send_buffer: Annotated[int, Meta(ge=1024)] = 1024 * 1024
    """bytes a slow client may leave unread"""
    slow_client_s: Annotated[float, Meta(gt=0)] = 30.0
    """seconds a client's buffer may stay full"""
    grace_s: Annotated[float, Meta(ge=0, le=86400)] = 30.0
    """seconds an answer goes on, and is kept, for a client that was lost"""
    ping_interval_s: Annotated[float, Meta(gt=0)] = 20.0
    """seconds between heartbeats"""
    idle_unload_s: Annotated[float, Meta(ge=0)] = 600.0
    """seconds after which a model that nobody uses is unloaded; 0: never"""
    hang_s: Annotated[float, Meta(gt=0)] = 30.0
    """seconds without a step after which a model at work is given up"""
    memory_mb: Count = 0
    """megabytes that all loaded models may take together; 0: what is free"""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of ``config.toml``: tables ``[engine]``, ``[daemon]``, ``[options]``."""

    model_dirs: tuple[str, ...] = ()
    """directories searched for models"""
    engine: EngineConfig = EngineConfig()
    """how models are loaded"""
    daemon: DaemonConfig = DaemonConfig()
    """how the daemon listens"""
    options: Options = Options(model="bundled", draft="auto", proposer="auto", backend="auto")
    """what a request that does not say otherwise gets"""


def config_path() -> Path:
    """The file the configuration is read from."""
    return home.config_dir() / "config.toml"


def load_config(path: Path | None = None) -> Config:
    """Read the configuration; a missing file gives the defaults.

    Raises :class:`InvalidOptions` for a file that is not TOML, an unknown key (naming the
    nearest one) or a value out of range.
    """
    path = config_path() if path is None else path
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        values = {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidOptions(f"{path} is not valid TOML: {error}", f"Mend {path}.") from None
    except OSError as error:
        raise InvalidOptions(f"{path} cannot be read: {error.strerror}", f"Mend {path}.") from None
    return parse_config(values, where=str(path))


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
    try:
        config = msgspec.convert(values, Config)
    except msgspec.ValidationError as error:
        raise InvalidOptions(f"invalid configuration: {readable(error)}", remedy) from None
    options = config.options.over(Config().options)
    return _checked(msgspec.structs.replace(config, options=options), remedy)


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
    try:
        changed = msgspec.convert(values, Config, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidOptions(f"invalid option: {readable(error)}") from None
    return _checked(changed)


def _checked(config: Config, remedy: str | None = None) -> Config:
    """Checks over several fields; returns ``config``."""
    if config.engine.ngram_min > config.engine.ngram_max:
        raise InvalidOptions("engine.ngram_min is larger than engine.ngram_max", remedy)
    check_options(config.options)
    return config


def _check_keys(values: dict[str, Any], struct: type[msgspec.Struct], prefix: str, remedy: str) -> None:
    for key in values:
        if key not in struct.__struct_fields__:
            raise InvalidOptions(unknown_key("setting", prefix + key, _names(struct, prefix)), remedy)


def _names(struct: type[msgspec.Struct], prefix: str) -> list[str]:
    return [prefix + field for field in struct.__struct_fields__]
