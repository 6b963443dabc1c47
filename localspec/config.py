"""The one schema of the configuration: defaults, ``config.toml``, environment.

What holds for a request, from the strongest to the weakest: the command's flags, its environment, the
session's options, ``[models."name"]``, ``[options]`` and ``[engine]``, the defaults. ``models/library.py``
finds the sections of a model.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import tomllib
from collections.abc import Collection, Mapping, MutableMapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from localspec import home
from localspec.errors import InvalidOptions, StorageError, of_system
from localspec.protocol.options import (
    SETTABLE,
    Options,
    check_value,
    describe_allowed,
    instead,
    parse_options,
    unknown_key,
)
from localspec.protocol.requests import Count, EngineConfig
from localspec.wording import size

log = logging.getLogger(__name__)
_log_once = cache(log.warning)

T = TypeVar("T", bound=msgspec.Struct)
Place = tuple[str, ...]
"""the tables that lead to a key of the file, and the key"""

SEE_SETTINGS = "See `localspec config show --describe`."
LARGEST_FILE = 256 << 10
"""bytes that a configuration may have"""

Limit = Annotated[int, Meta(ge=1, le=1_000_000)]
Bytes = Annotated[int, Meta(ge=1024, le=1 << 30)]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]
# The daemon, in another directory, would misread a relative one.
Directory = Annotated[str, Meta(pattern="^[/~][^\x00]*$", title="absolute paths")]
ORIGINS = "origins such as https://example.org, or app://* (any scheme but http, https, ws and wss)"
# No web page can have an origin of another scheme.
ORIGIN = r"^([^*]*|(?!https?:|wss?:)[a-z][a-z0-9+.-]*://\*)$"
Origin = Annotated[str, Meta(pattern=ORIGIN, title=ORIGINS)]
Host = Annotated[str, Meta(pattern=r"^[\w-]+(\.[\w-]+)*$", title="names such as host.docker.internal")]


class DaemonConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The daemon's limits."""

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
    """megabytes of RAM that all loaded models may take together; 0: what is free"""


Dialect = Literal["openai", "anthropic", "llama.cpp", "ollama"]
WITHOUT_TOKEN = "Every program and every user of this machine can send requests in these dialects"


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP server, for programs that use other interfaces."""

    enabled: bool = False
    """start the HTTP server with the daemon, for clients of OpenAI, Anthropic, llama.cpp and Ollama"""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8012
    """the HTTP server's loopback port; the default is the one that llama.vim uses"""
    without_token: tuple[Dialect, ...] = ()
    """dialects that need no token: every program and user of this machine can then use them"""
    origins: tuple[Origin, ...] = ()
    """Origins accepted with the token; `scheme://*`: every host"""
    hosts: tuple[Host, ...] = ()
    """names in `Host` headers that are accepted besides localhost, for requests of containers"""
    any_model: bool = False
    """answer requests for a model that does not exist with the configured one"""


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[models."name"]``: settings of one model; in the file both kinds are in one table."""

    engine: dict[str, Any] = {}
    """knobs of ``[engine]``"""
    options: Options = Options()

    def over(self, base: EngineConfig) -> EngineConfig:
        return replace(base, **self.engine)


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of ``config.toml``."""

    model_dirs: tuple[Directory, ...] = ()
    """directories searched for models"""
    auto_pull: Literal["ask", "yes", "off"] = "ask"
    """download the default model at its first use; ask: on a terminal, after a question"""
    engine: EngineConfig = EngineConfig()
    """settings for loading models"""
    daemon: DaemonConfig = DaemonConfig()
    """the daemon's addresses and limits"""
    http: HttpConfig = HttpConfig()
    """the HTTP server"""
    options: Options = Options(model="auto", draft="auto", proposer="auto", backend="auto")
    """defaults of a request's options"""
    models: dict[str, ModelConfig] = {}
    """settings of one model, by its name or path"""


TABLES: dict[str, type[msgspec.Struct]] = {
    name: type(getattr(Config(), name)) for name in ("engine", "daemon", "http", "options")
}

SECTION_KEYS = {*EngineConfig.__struct_fields__, *SETTABLE} - {"model", "workspace"}
"""settings allowed in a section of a model"""


def config_path() -> Path:
    return home.config_dir() / "config.toml"


def load_config(path: Path | None = None) -> Config:
    """Read the configuration; a missing file gives the defaults. Raises :class:`InvalidOptions`."""
    path = config_path() if path is None else path
    config = parse_config(read_toml(path), where=str(path))
    if _is_off("LOCALSPEC_IDLE"):
        config = replace(config, engine=replace(config.engine, idle_measuring=False))
    return replace(config, auto_pull="off") if _is_off("LOCALSPEC_AUTO_PULL") else config


def _is_off(variable: str) -> bool:
    """True if the environment switches off what is on without it; raises :class:`InvalidOptions`."""
    if (value := os.environ.get(variable, "on")) not in ("on", "off"):
        message = f"{variable} must be on or off{instead(value)}"
        raise InvalidOptions(message, f"Correct it, or run `unset {variable}`.")
    return value == "off"


def read_toml(path: Path) -> str:
    """The file's text, line ends as they are; empty without a file. Raises :class:`InvalidOptions`."""
    try:
        content = home.read_regular(path, LARGEST_FILE)
        if content is None or len(content) > LARGEST_FILE:
            message = f"{path} is not a regular file of at most {size(LARGEST_FILE)}"
            raise InvalidOptions(message, f"Replace {path}.")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} cannot be read: {error.strerror if isinstance(error, OSError) else error}"
        raise InvalidOptions(message, f"Make {path} a file that you can read.") from None


def parse_toml(text: str, *, where: str) -> dict[str, Any]:
    """The tables of a text, not validated yet; raises :class:`InvalidOptions`."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError, too
        raise InvalidOptions(f"{where} is not valid TOML: {error}", f"Correct {where}.") from None


def environment_options() -> Options:
    """The options in ``LOCALSPEC_MODEL``, ``_DRAFT``, ``_PROPOSER`` and ``_BACKEND``. They apply to the
    command that is run with them, never to the daemon. Raises :class:`InvalidOptions`."""
    names = {name: f"LOCALSPEC_{name.upper()}" for name in ("model", "draft", "proposer", "backend")}
    values = {name: value for name, variable in names.items() if (value := os.environ.get(variable))}
    for name, value in values.items():
        remedy = f"Correct it, or run `unset {names[name]}`."
        check_value(Options, name, value, said=names[name], remedy=remedy)
    return parse_options(values)


def parse_config(text: str, *, where: str) -> Config:
    """Parse a configuration; raises as :func:`load_config`, with remedies that name ``where`` it is. One
    warning names all keys that are no settings."""
    config, unknown = parse_known(text, where=where)
    if unknown:
        end = "" if unknown[-1].endswith("?") else "."
        _log_once(f"{where}: left out, as {', and '.join(unknown)}{end} Correct {where}.")
    return config


def parse_known(text: str, *, where: str) -> tuple[Config, list[str]]:
    """A configuration, and a clause about each key that is no setting; raises as :func:`parse_config`."""
    values = parse_toml(text, where=where)
    unknown: list[str] = []
    try:
        config = _read(values, Config, unknown)
        return check_together(replace(config, options=config.options.over(Config().options))), unknown
    except InvalidOptions as error:
        raise InvalidOptions(error.message, f"{error.remedy} Correct {where}.".lstrip()) from None


def _read(
    table: Any, struct: type[T], unknown: list[str], name: str = "", known: Collection[str] | None = None
) -> T:
    """Convert the table of a ``name`` with those in it; raises :class:`InvalidOptions` for a wrong value.
    Keys of no setting are left out: a clause about each is added to ``unknown``."""
    known = known or (SETTABLE if struct is Options else struct.__struct_fields__)
    prefix = f"{name}." if name in TABLES else ""
    values: dict[str, Any] = {}
    for key, value in _table(table, name).items():
        if key not in known:
            elsewhere = [each.key for each in settings() if each.name == key and (prefix or struct is Config)]
            names = elsewhere or [prefix + each for each in known]
            unknown.append(unknown_key("setting", prefix + key, names))
        elif struct is Config and key in TABLES:
            values[key] = _read(value, TABLES[key], unknown, key)
        elif struct is Config and key == "models":
            sections = _table(value, key).items()
            values[key] = {model: _model_section(model, each, unknown) for model, each in sections}
        else:
            check_value(struct, key, value, said=prefix + key, remedy="", strict=True)
            values[key] = value
    return msgspec.convert(values, struct)


def _table(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidOptions(f"{name} must be a table of settings, [{name}]{instead(value)}", "")
    return value


def _model_section(name: str, value: Any, unknown: list[str]) -> ModelConfig:
    inside: list[str] = []
    try:
        table = _table(value, name)
        knobs = {key: table[key] for key in table if key in EngineConfig.__struct_fields__}
        others = {key: table[key] for key in table if key not in knobs}
        engine = _read(knobs, EngineConfig, inside)
        options = _read(others, Options, inside, known=SECTION_KEYS)
    except InvalidOptions as error:
        raise InvalidOptions(f"in {section_name(name)}: {error.message}", error.remedy) from None
    unknown += [f"in {section_name(name)} {each}" for each in inside]
    return ModelConfig(engine={key: getattr(engine, key) for key in knobs}, options=options)


def section_name(model: str) -> str:
    return f'[models."{model}"]'


def check_together(config: Config) -> Config:
    """Checks over several fields; returns ``config``."""
    sections = {f" in {section_name(name)}": section for name, section in config.models.items()}
    for where, own in {"": ModelConfig(), **sections}.items():
        engine = own.over(config.engine)
        if engine.ngram_min > engine.ngram_max:
            raise InvalidOptions(f"engine.ngram_min is larger than engine.ngram_max{where}", SEE_SETTINGS)
    return config


def change(place: Place, value: Any) -> None:
    """Write a value, or remove the key with None. After :class:`InvalidOptions` and :class:`StorageError`
    the file is as it was."""
    import tomlkit  # slow to load, and needed only here

    path, value = config_path(), msgspec.json.decode(msgspec.json.encode(value))  # lists, no tuples
    before = read_toml(path)
    wanted = parse_toml(before, where=str(path))
    try:
        document = tomlkit.parse(before if before.endswith("\n") or not before else before + "\n")
        for tables in (wanted, document):
            _change(tables, place, value)
        text = tomlkit.dumps(document)
        is_sound = _full(tomllib.loads(text)) == _full(wanted)
    except (AttributeError, TypeError, ValueError, tomlkit.exceptions.TOMLKitError, RecursionError):
        is_sound = False
    if not is_sound:
        parse_config(before, where=str(path))
        message = f"{path} has a form that `localspec config set` cannot change"
        raise InvalidOptions(message, f"Change it in {path} by hand.")
    parse_config(text, where=str(path))
    target = Path(os.path.realpath(path))  # a link stays
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        home.write_private(target, text)
    except OSError as error:
        message, remedy = f"{target} cannot be written", f"Make {target.parent} a directory you can write to."
        raise of_system(error, message) or StorageError(f"{message}: {error.strerror}", remedy) from None


def _full(value: Any) -> Any:
    """A table without its empty tables, or another value."""
    is_table = isinstance(value, dict)
    return {k: full for k, v in value.items() if (full := _full(v)) != {}} if is_table else value


def _change(tables: MutableMapping[str, Any], place: Place, value: Any) -> None:
    name, *below = place
    if below and (value is None or name in tables):
        table = tables.get(name, {})
        _change(table, tuple(below), value)
        if hasattr(table, "as_string") and table.as_string().strip() in ("", "{}"):  # no comments
            del tables[name]
    elif value is None:
        tables.pop(name, None)
    else:
        for each in reversed(below):
            value = {each: value}
        # Comments at the end of a table are about the next one: the key goes before them.
        body: list[Any] = getattr(getattr(tables, "value", None), "body", [])
        end = max((n for n, (key, _) in enumerate(body, 1) if key is not None), default=0)
        tail, body[end:] = body[end:], []
        tables[name] = value
        body += tail


FIELD = r'^ {4}(\w+): .*\n {4}"""(.+)"""$'
"""in the source of a struct: a field and its docstring"""


class Setting(NamedTuple):
    """One key of ``config.toml``; ``table`` is empty for those at its top. A default of None: not set."""

    table: str
    name: str
    takes: str
    default: Any
    meaning: str

    @property
    def key(self) -> str:
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def unset(self) -> str:
        """``not set``, with the value that holds then."""
        return f"not set{self.meaning.partition('not set')[2]}"

    @property
    def struct(self) -> type[msgspec.Struct]:
        return TABLES.get(self.table, Config)

    def parse(self, text: str, said: str = "") -> Any:
        """Convert a typed value: lists in TOML's notation, one stop string, other values as they are.
        Raises :class:`InvalidOptions` with the allowed values; ``said``: the setting's name there."""
        value: Any = text
        if self.takes.startswith("a list"):
            with suppress(ValueError, RecursionError):
                value = tomllib.loads(f"list = {text}")["list"]
        value = [value] if self.name == "stop" and isinstance(value, str) else value
        check_value(self.struct, self.name, value, said=said or self.key, remedy=SEE_SETTINGS)
        return getattr(msgspec.convert({self.name: value}, self.struct, strict=False), self.name)


@cache
def settings() -> tuple[Setting, ...]:
    defaults = Config()
    structs: dict[str, type[msgspec.Struct]] = {"": Config, **TABLES}
    return tuple(
        Setting(
            table,
            name,
            describe_allowed(of, name),
            getattr(getattr(defaults, table, defaults), name),
            meaning,
        )
        for table, of in structs.items()
        for name, meaning in re.findall(FIELD, inspect.getsource(of), re.MULTILINE)
        if (name in SETTABLE if table == "options" else table or name in ("model_dirs", "auto_pull"))
    )


def find(key: str) -> Setting:
    """The setting of a name, with or without its table; raises :class:`InvalidOptions` naming the nearest."""
    for setting in settings():
        if key in (setting.key, setting.name):
            return setting
    near = [name for setting in settings() for name in (setting.key, setting.name)]
    raise InvalidOptions(unknown_key("setting", key, near), SEE_SETTINGS)


def override(config: Config, pairs: Mapping[str, str]) -> Config:
    """``--opt key=value``: any setting in a table of the file."""
    for key, text in pairs.items():
        setting = find(plain_key(key))
        if not setting.table:
            raise InvalidOptions(f"{key} cannot be set for one command", SEE_SETTINGS)
        value = setting.parse(text, f"--opt {key}")
        table = replace(getattr(config, setting.table), **{setting.name: value})
        models = {
            model: replace(own, engine={knob: v for knob, v in own.engine.items() if knob != setting.name})
            for model, own in config.models.items()
        }
        config = replace(config, **{setting.table: table}, models=models)
    return check_together(config)


def plain_key(key: str) -> str:
    """A key without blanks and with underscores; it may be written as a flag, as in ``top-k``."""
    return key.strip().replace("-", "_")
