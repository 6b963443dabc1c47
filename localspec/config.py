"""The one schema of the configuration: defaults, ``config.toml``, environment.

What holds for a request, from the strongest to the weakest: the command's flags, its environment, the
session's options, ``[workspaces."directory"]``, ``[models."name"]``, ``[options]`` and ``[engine]``, the
defaults. ``models/sections.py`` finds which sections those are.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from localspec import home
from localspec.errors import InvalidOptions
from localspec.origin import DEEPEST, Origin, Place, dotted, is_deep
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
from localspec.renamed import by_present_names, old_keys
from localspec.units import size

T = TypeVar("T", bound=msgspec.Struct)

SECTION_EXAMPLES = {"models": "qwen2.5-coder:7b", "workspaces": "~/src/project"}

LISTS = ("stop", "logit_bias")
"""options that take several values"""
SEE_SETTINGS = "See `localspec config show --describe`."
RENAME = "Change that: `localspec config edit`."
"""the remedy of :func:`renamed_settings`"""

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
    workspaces: dict[str, Options] = {}
    """options of requests from one directory, by its path"""


TABLES: dict[str, type[msgspec.Struct]] = {
    "engine": EngineConfig,
    "daemon": DaemonConfig,
    "http": HttpConfig,
    "options": Options,
}

SECTION_KEYS = {
    "models": tuple(
        name
        for name in (*EngineConfig.__struct_fields__, *Options.__struct_fields__)
        if name not in ("model", "workspace")
    ),
    "workspaces": tuple(name for name in Options.__struct_fields__ if name != "workspace"),
}
"""settings allowed in a section of either kind"""


def config_path() -> Path:
    """The file the configuration is read from."""
    return home.config_dir() / "config.toml"


def load_config(path: Path | None = None) -> Config:
    """Read the configuration; a missing file gives the defaults.

    Raises :class:`InvalidOptions` for a file that is not TOML, an unknown key (naming the
    nearest one) or a value out of range.
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
    """A notice, without a full stop, for each setting that the file has by an earlier name.

    Raises :class:`InvalidOptions` for a file that is not TOML.
    """
    path = config_path() if path is None else path
    text = read_toml(path)
    return [key.notice(text, str(path)) for key in old_keys(parse_toml(text, where=str(path)))]


def parse_text(text: str, *, where: str) -> Config:
    """Parse the text of a configuration file; raises as :func:`load_config`."""
    return parse_config(parse_toml(text, where=where), where=where, text=text)


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
    remedy = _origin(where).remedy(())
    if is_deep(text):
        raise InvalidOptions(f"{where} has a key of more than {DEEPEST} parts", remedy)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError, too
        raise InvalidOptions(f"{where} is not valid TOML: {error}", remedy) from None


def _origin(where: str, text: str = "") -> Origin:
    return Origin(where, text, is_file=where == str(config_path()))


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


def parse_config(values: dict[str, Any], *, where: str, text: str = "") -> Config:
    """Validate the tables of a configuration; errors name ``where`` it is from, and the line of its text."""
    origin = _origin(where, text)
    for old in old_keys(values):
        if old.setting is None:
            continue
        (table, name), remedy = old.setting, origin.remedy(old.old, is_value=True)
        check_value(TABLES[table], name, old.value, said=dotted(old.old), remedy=remedy, strict=True)
    values = by_present_names(values)
    tables = {name: _table(values, name, origin) for name in (*TABLES, *SECTION_KEYS)}
    config = _read({key: value for key, value in values.items() if key not in tables}, Config, (), origin)
    config = msgspec.structs.replace(
        config,
        engine=_read(tables["engine"], EngineConfig, ("engine",), origin),
        daemon=_read(tables["daemon"], DaemonConfig, ("daemon",), origin),
        http=_read(tables["http"], HttpConfig, ("http",), origin),
        options=_read(tables["options"], Options, ("options",), origin).over(Config().options),
        models={name: _model_section(name, table, origin) for name, table in tables["models"].items()},
        workspaces={name: _workspace(name, table, origin) for name, table in tables["workspaces"].items()},
    )
    for directory in config.model_dirs:
        if not _is_absolute(directory):
            message = f"model_dirs takes a list of strings, each an absolute path{instead(directory)}"
            raise InvalidOptions(message, origin.remedy(("model_dirs",), is_value=True))
    check_origins(config.http.origins, origin.remedy(("http", "origins"), is_value=True))
    return _checked(config, origin)


def check_origins(origins: Iterable[str], remedy: str) -> None:
    """Raise :class:`InvalidOptions` for a ``*`` that does not stand for all hosts of a scheme."""
    for page in origins:
        if "*" in page and WILDCARD.fullmatch(page) is None:
            raise InvalidOptions(
                f"http.origins has the entry {shortened(page, LONGEST_SHOWN)!r}: a * may only follow a "
                "scheme in lower case other than http, https, ws and wss",
                "Write each web origin in full, such as https://example.org, or a scheme such as "
                f"{ANY_HOST}. {remedy}",
            )


def _is_absolute(directory: str) -> bool:
    """True if a path is absolute: the daemon, in another directory, would misread a relative one."""
    return os.path.isabs(os.path.expanduser(directory)) and "\0" not in directory


def _table(values: dict[str, Any], name: str, origin: Origin) -> dict[str, Any]:
    """A table of settings or of sections in the file; raises :class:`InvalidOptions` for another value."""
    found = values.get(name, {})
    if not isinstance(found, dict):
        raise InvalidOptions(
            f"{name} must be a table of settings, [{name}]{instead(found)}", origin.remedy((name,))
        )
    for section, table in found.items() if name in SECTION_KEYS else ():
        settings = table.items() if isinstance(table, dict) else (("", {}),)
        if any(isinstance(value, dict) and key not in SECTION_KEYS[name] for key, value in settings):
            raise InvalidOptions(
                f"[{name}.{section[:LONGEST_SHOWN]}] is not a table of settings",
                f'Write names in quotes, as in [{name}."{SECTION_EXAMPLES[name]}"]. '
                f"{origin.remedy((name, section))}",
            )
    return found


def _model_section(name: str, table: dict[str, Any], origin: Origin) -> ModelConfig:
    knobs = {key: value for key, value in table.items() if key in EngineConfig.__struct_fields__}
    others = {key: value for key, value in table.items() if key not in knobs}
    engine = _read(knobs, EngineConfig, ("models", name), origin)
    options = _read(others, Options, ("models", name), origin)
    return ModelConfig(engine={key: getattr(engine, key) for key in knobs}, options=options)


def _workspace(name: str, table: dict[str, Any], origin: Origin) -> Options:
    place = ("workspaces", name)
    if not _is_absolute(name):
        raise InvalidOptions(f"{section_name(*place)} does not name an absolute path", origin.remedy(place))
    return _read(table, Options, place, origin)


def _read(table: dict[str, Any], struct: type[T], place: Place, origin: Origin) -> T:
    """Convert the table at a place of the file; raises :class:`InvalidOptions` for an unknown key or a wrong
    value."""
    is_section = len(place) > 1
    within = f"in {section_name(*place)}: " if is_section else ""
    prefix = "" if is_section else "".join(f"{name}." for name in place)
    known = SECTION_KEYS[place[0]] if is_section else struct.__struct_fields__
    for key, value in table.items():
        try:
            if key not in known:
                raise InvalidOptions(unknown_key("setting", prefix + key, [prefix + each for each in known]))
            check_value(struct, key, value, said=prefix + key, strict=True)
        except InvalidOptions as error:
            remedy = origin.remedy((*place, key), is_value=key in known or not isinstance(value, dict))
            raise InvalidOptions(within + error.message, remedy) from None
    return msgspec.convert(table, struct)


def section_name(kind: str, name: str) -> str:
    """The header of a section in the file."""
    return f'[{kind}."{name}"]'


def override(config: Config, pairs: Mapping[str, str]) -> Config:
    """``--opt key=value``: any field of the options, any knob of ``engine`` or ``daemon``."""
    values: dict[str, Any] = msgspec.to_builtins(config)
    for key, text in pairs.items():
        table, name = _settable(key)
        value = _typed(name, text)
        check_value(TABLES[table], name, value, said=f"--opt {key}", remedy=SEE_SETTINGS)
        values.setdefault(table, {})[name] = value
        for section in values.get("models", {}).values():
            section.get("engine", {}).pop(name, None)
    return _checked(msgspec.convert(values, Config, strict=False))


def _typed(name: str, text: str) -> Any:
    """A typed value: a list in TOML's notation, one stop string, or any other value as it is."""
    if name in LISTS and text.startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            return tomllib.loads(f"list = {text}")["list"]
    return [text] if name == "stop" else text


def _settable(key: str) -> Place:
    """The table and the name of an ``--opt`` key; raises :class:`InvalidOptions` with the nearest."""
    prefix, _, name = plain_key(key).rpartition(".")
    for table, struct in TABLES.items():
        if name in struct.__struct_fields__ and prefix in ("", table):
            return table, name
    known = [name for struct in TABLES.values() for name in struct.__struct_fields__]
    raise InvalidOptions(unknown_key("option", key, known), SEE_SETTINGS)


def plain_key(key: str) -> str:
    """A key without blanks and with underscores; it may be written as a flag, as in ``top-k``."""
    return key.strip().replace("-", "_")


def _checked(config: Config, origin: Origin | None = None) -> Config:
    """Checks over several fields; returns ``config``."""
    _check_together((), config.engine, config.options, origin)
    for name, section in config.models.items():
        engine, options = section.over(config.engine), section.options.over(config.options)
        _check_together(("models", name), engine, options, origin)
    for name, options in config.workspaces.items():
        _check_together(("workspaces", name), config.engine, options.over(config.options), origin)
    return config


def _check_together(place: Place, engine: EngineConfig, options: Options, origin: Origin | None) -> None:
    where = f" in {section_name(*place)}" if place else ""
    if engine.ngram_min > engine.ngram_max:
        remedy = SEE_SETTINGS if origin is None else origin.remedy(place or ("engine",))
        raise InvalidOptions(f"engine.ngram_min is larger than engine.ngram_max{where}", remedy)
    try:
        check_options(options)
    except InvalidOptions as error:
        stands = "" if origin is None else f" {origin.remedy(place or ('options', 'threshold'))}"
        raise InvalidOptions(error.message + where, error.remedy + stands) from None
