"""The one schema of the configuration: defaults, ``config.toml``, environment.

What holds for a request, from the strongest to the weakest: the command's flags, its environment, the
session's options, ``[models."name"]``, ``[options]`` and ``[engine]``, the defaults. ``models/sections.py``
finds the sections of a model.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from localspec import home
from localspec.errors import InvalidOptions
from localspec.protocol.bounds import shortened
from localspec.protocol.engine_config import Count, EngineConfig
from localspec.protocol.options import (
    LONGEST_SHOWN,
    Options,
    check_options,
    check_value,
    instead,
    parse_options,
    unknown_key,
)
from localspec.renamed import by_present_names
from localspec.units import size

T = TypeVar("T", bound=msgspec.Struct)

SEE_SETTINGS = "See `localspec config show --describe`."
CORRECT = "Correct it: `localspec config edit`."
"""the remedy of :func:`renamed_settings`"""
EDIT = "your edit"
"""the name of a text that `config edit` has not yet written"""
EXAMPLE = 'Write names in quotes, as in [models."qwen2.5-coder:7b"].'

LARGEST_FILE = 256 << 10
"""bytes that a configuration may have"""

Limit = Annotated[int, Meta(ge=1, le=1_000_000)]
Bytes = Annotated[int, Meta(ge=1024, le=1 << 30)]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]


class DaemonConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The daemon's addresses and limits."""

    port: Annotated[int, Meta(ge=0, le=65535)] = 8737
    """loopback TCP port; another free one if taken"""
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
    """seconds an answer continues, and is kept, after its client has disconnected"""
    ping_interval_s: Seconds = 20.0
    """seconds between heartbeats"""
    idle_unload_s: Annotated[float, Meta(ge=0, le=31_536_000)] = 600.0
    """seconds without a request after which a model is unloaded; 0: never"""
    hang_s: Seconds = 30.0
    """seconds without a step after which the worker of a running request is killed"""
    memory_mb: Count = 0
    """megabytes that all loaded models may take together; 0: what is free"""


ANY_HOST = "vscode-webview://*"
"""an example of a wildcard in ``http.origins``"""
WILDCARD = re.compile(r"(?!https?:|wss?:)[a-z][a-z0-9+.-]*://\*")
"""an entry of ``http.origins`` for all hosts of a scheme, which no web page can have"""

Dialect = Literal["openai", "llama.cpp", "ollama"]


WITHOUT_TOKEN = "Every program and every user of this machine can send requests in these dialects"
"""the risk of ``http.without_token``"""


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP server, for programs that use other interfaces."""

    enabled: bool = False
    """start the HTTP server with the daemon, for clients of OpenAI's, llama.cpp's and Ollama's"""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8012
    """the HTTP server's loopback port; the default is the one that llama.vim uses"""
    without_token: tuple[Dialect, ...] = ()
    """dialects that need no token: every program and user of this machine can then use them"""
    origins: tuple[str, ...] = ()
    """Origins accepted with the token, here and on the daemon's wire; `scheme://*`: every host"""
    any_model: bool = False
    """answer requests for a model that does not exist with the configured one"""


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[models."name"]``: settings of one model; in the file both kinds are in one table."""

    engine: dict[str, Any] = {}
    """knobs of ``[engine]``"""
    options: Options = Options()

    def over(self, base: EngineConfig) -> EngineConfig:
        """Return ``base`` with this model's own settings."""
        return msgspec.structs.replace(base, **self.engine)


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of ``config.toml``."""

    model_dirs: tuple[str, ...] = ()
    """directories searched for models"""
    engine: EngineConfig = EngineConfig()
    """settings for loading models"""
    daemon: DaemonConfig = DaemonConfig()
    """the daemon's addresses and limits"""
    http: HttpConfig = HttpConfig()
    """the HTTP server"""
    options: Options = Options(model="bundled", draft="auto", proposer="auto", backend="auto")
    """defaults of a request's options"""
    models: dict[str, ModelConfig] = {}
    """settings of one model, by its name or path"""


TABLES: dict[str, type[msgspec.Struct]] = {
    "engine": EngineConfig,
    "daemon": DaemonConfig,
    "http": HttpConfig,
    "options": Options,
}

SECTION_KEYS = tuple(
    name
    for name in (*EngineConfig.__struct_fields__, *Options.__struct_fields__)
    if name not in ("model", "workspace")
)
"""settings allowed in a section of a model"""


def config_path() -> Path:
    """The file the configuration is read from."""
    return home.config_dir() / "config.toml"


def load_config(path: Path | None = None) -> Config:
    """Read the configuration; a missing file gives the defaults.

    Raises :class:`InvalidOptions` for a file that is not TOML, an unknown key (naming the nearest one) or a
    value out of range.
    """
    path = config_path() if path is None else path
    config = parse_text(read_toml(path), where=str(path))
    if not measures_when_idle():
        config = msgspec.structs.replace(
            config, engine=msgspec.structs.replace(config.engine, idle_measuring=False)
        )
    return config


def measures_when_idle() -> bool:
    """False with ``LOCALSPEC_IDLE=off``; raises :class:`InvalidOptions` for another value than on and off."""
    value = os.environ.get("LOCALSPEC_IDLE", "on")
    if value not in ("on", "off"):
        raise InvalidOptions(
            f"LOCALSPEC_IDLE must be on or off{instead(value)}", "Correct it, or run `unset LOCALSPEC_IDLE`."
        )
    return value == "on"


def renamed_settings(path: Path | None = None) -> list[str]:
    """A notice, without a full stop, for each setting of an earlier version in the file.

    Raises :class:`InvalidOptions` for a file that is not TOML.
    """
    path = config_path() if path is None else path
    _, notices = by_present_names(parse_toml(read_toml(path), where=str(path)))
    return [f"{path}: {notice}" for notice in notices]


def parse_text(text: str, *, where: str) -> Config:
    """Parse the text of a configuration file; raises as :func:`load_config`."""
    return parse_config(parse_toml(text, where=where), where=where)


def read_toml(path: Path) -> str:
    """The file's text, line ends as they are; empty without a file. Raises :class:`InvalidOptions`."""
    try:
        found = path.stat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise InvalidOptions(f"{path} is not a regular file", f"Replace {path} by a regular file.")
        if found.st_size > LARGEST_FILE:
            raise InvalidOptions(f"{path} is larger than {size(LARGEST_FILE)}", f"Shorten {path}.")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise InvalidOptions(f"{path} is not valid TOML: {error}", f"Correct {path}.") from None
    except OSError as error:
        raise InvalidOptions(
            f"{path} cannot be read: {error.strerror}", f"Make {path} a file that you can read."
        ) from None


def parse_toml(text: str, *, where: str) -> dict[str, Any]:
    """The tables of a text, not validated yet; raises :class:`InvalidOptions`."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError, too
        raise InvalidOptions(f"{where} is not valid TOML: {error}", _correct(where)) from None


def _correct(where: str) -> str:
    return f"Correct {where}." if where == EDIT else f"Correct {where}: `localspec config edit`."


def environment_options() -> Options:
    """The options in ``LOCALSPEC_MODEL``, ``_DRAFT``, ``_PROPOSER`` and ``_BACKEND``.

    They apply to the command that is run with them, never to the daemon. Raises :class:`InvalidOptions`.
    """
    values = {}
    for name in ("model", "draft", "proposer", "backend"):
        variable = f"LOCALSPEC_{name.upper()}"
        if value := os.environ.get(variable):
            remedy = f"Correct it, or run `unset {variable}`."
            check_value(Options, name, value, said=variable, remedy=remedy)
            values[name] = value
    return parse_options(values)


def parse_config(values: Mapping[str, Any], *, where: str) -> Config:
    """Validate the tables of a configuration; the remedies of errors name ``where`` it is from."""
    try:
        return check_together(_parsed(by_present_names(values)[0]))
    except InvalidOptions as error:
        raise InvalidOptions(error.message, f"{error.remedy} {_correct(where)}".lstrip()) from None


def _parsed(values: Mapping[str, Any]) -> Config:
    top = {key: value for key, value in values.items() if key not in (*TABLES, "models")}
    config = _read(top, Config, known=Config.__struct_fields__)
    tables: dict[str, Any] = {
        name: _read(_table(values, name), struct, f"{name}.") for name, struct in TABLES.items()
    }
    tables["options"] = tables["options"].over(Config().options)
    models = {name: _model_section(name, table) for name, table in _table(values, "models").items()}
    config = msgspec.structs.replace(config, **tables, models=models)
    for directory in config.model_dirs:
        # The daemon, in another directory, would misread a relative one.
        if not os.path.isabs(os.path.expanduser(directory)) or "\0" in directory:
            message = f"model_dirs takes a list of strings, each an absolute path{instead(directory)}"
            raise InvalidOptions(message, "")
    check_origins(config.http.origins)
    return config


def check_origins(origins: Iterable[str]) -> None:
    """Raise :class:`InvalidOptions` for a ``*`` that does not stand for all hosts of a scheme."""
    for page in origins:
        if "*" in page and WILDCARD.fullmatch(page) is None:
            raise InvalidOptions(
                f"http.origins has the entry {shortened(page, LONGEST_SHOWN)!r}: a * may only follow a "
                "scheme in lower case other than http, https, ws and wss",
                f"Write web origins in full, such as https://example.org, or a scheme such as {ANY_HOST}.",
            )


def _table(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A table of settings or of sections in the file; raises :class:`InvalidOptions` for another value."""
    found = values.get(name, {})
    if not isinstance(found, dict):
        raise InvalidOptions(f"{name} must be a table of settings, [{name}]{instead(found)}", "")
    return found


def _model_section(name: str, table: Any) -> ModelConfig:
    is_table = isinstance(table, dict)
    if not is_table or any(isinstance(table[key], dict) for key in table if key not in SECTION_KEYS):
        raise InvalidOptions(f"[models.{name[:LONGEST_SHOWN]}] is not a table of settings", EXAMPLE)
    knobs = {key: value for key, value in table.items() if key in EngineConfig.__struct_fields__}
    others = {key: value for key, value in table.items() if key not in knobs}
    try:
        engine = _read(knobs, EngineConfig)
        options = _read(others, Options, known=SECTION_KEYS)
    except InvalidOptions as error:
        raise InvalidOptions(f"in {section_name(name)}: {error.message}", error.remedy) from None
    return ModelConfig(engine={key: getattr(engine, key) for key in knobs}, options=options)


def _read(
    table: Mapping[str, Any], struct: type[T], prefix: str = "", known: Collection[str] | None = None
) -> T:
    """Convert a table; raises :class:`InvalidOptions` for an unknown key or a wrong value."""
    known = struct.__struct_fields__ if known is None else known
    for key, value in table.items():
        if key not in known:
            names = [prefix + each for each in known]
            raise InvalidOptions(unknown_key("setting", prefix + key, names), "")
        check_value(struct, key, value, said=prefix + key, remedy="", strict=True)
    return msgspec.convert(table, struct)


def section_name(model: str) -> str:
    """The header of a model's section in the file."""
    return f'[models."{model}"]'


def check_together(config: Config) -> Config:
    """Checks over several fields; returns ``config``."""
    _check_pair("", config.engine, config.options)
    for name, section in config.models.items():
        options = section.options.over(config.options)
        _check_pair(f" in {section_name(name)}", section.over(config.engine), options)
    return config


def _check_pair(where: str, engine: EngineConfig, options: Options) -> None:
    if engine.ngram_min > engine.ngram_max:
        raise InvalidOptions(f"engine.ngram_min is larger than engine.ngram_max{where}", SEE_SETTINGS)
    try:
        check_options(options)
    except InvalidOptions as error:
        raise InvalidOptions(error.message + where, error.remedy) from None
