"""The flags of every command with a model, declared once, with their completers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from cyclopts import Group, Parameter
from msgspec.structs import replace

from localspec.cli.answer import from_here
from localspec.cli.completers import drafts, models
from localspec.config import (
    Config,
    DaemonConfig,
    HttpConfig,
    environment_options,
    load_config,
    override,
    plain_key,
)
from localspec.errors import InvalidOptions
from localspec.protocol.options import (
    BackendName,
    Options,
    ProposerName,
    check_value,
    meanings,
    parse_options,
)
from localspec.protocol.requests import EngineConfig

ModelName = Annotated[str | None, Parameter(name=["--model", "-m"], completer=models)]
DraftName = Annotated[str | None, Parameter(completer=drafts)]
AsJson = Annotated[bool, Parameter(name="--json", help="Print one JSON object.")]
MODEL = Group("Model", sort_key=1)
SAMPLING = Group("Sampling", sort_key=2)
SPECULATION = Group("Speculation", sort_key=3)
PROPOSERS = f"Source of draft tokens. {'; '.join(f'{name}: {what}' for name, what in meanings().items())}."


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelFlags:
    """See :class:`localspec.protocol.options.Options` for the ranges."""

    model: Annotated[str | None, Parameter(name=["--model", "-m"], group=MODEL, completer=models)] = None
    "Model to answer with: a name of `localspec models list`, or a path."
    draft: Annotated[str | None, Parameter(group=MODEL, completer=drafts)] = None
    "Draft model: a name, a path, `none` or `auto`; otherwise the configured one, or `auto` with -m."
    backend: Annotated[BackendName | None, Parameter(group=MODEL)] = None
    "Backend that runs the model: llama_cpp for GGUF files, mlx for MLX directories."
    max_tokens: Annotated[int | None, Parameter(group=SAMPLING)] = None
    "Maximum tokens of the answer; 0 only reads the prompt. Default: the rest of the context, 256 to fill in."
    temperature: Annotated[float | None, Parameter(group=SAMPLING)] = None
    "0 is greedy; otherwise the configured value, the model's own, or 0.7."
    top_k: Annotated[int | None, Parameter(group=SAMPLING)] = None
    "Sample among the k most probable tokens; 0: all."
    top_p: Annotated[float | None, Parameter(group=SAMPLING)] = None
    "Sample among the fewest tokens with this total probability."
    min_p: Annotated[float | None, Parameter(group=SAMPLING)] = None
    "Drop tokens less probable than this share of the most probable one."
    repeat_penalty: Annotated[float | None, Parameter(group=SAMPLING)] = None
    "Above 1: make tokens that occurred before less probable."
    seed: Annotated[int | None, Parameter(group=SAMPLING)] = None
    "A seed gives the same text, with any proposer."
    stop: Annotated[tuple[str, ...], Parameter(group=SAMPLING)] = ()
    "End the answer before this text; may be repeated."
    proposer: Annotated[ProposerName | None, Parameter(group=SPECULATION, help=PROPOSERS)] = None
    k: Annotated[int | None, Parameter(name="-k", group=SPECULATION)] = None
    "Maximum draft tokens per round, 1 to 20."
    exactness: Annotated[Literal["auto", "strict", "fast"] | None, Parameter(group=SPECULATION)] = None
    "At temperature 0 or with a seed. strict: plain decoding's text to the byte; auto: where that is free."
    opt: Annotated[tuple[str, ...], Parameter(name="--opt")] = ()
    "Any other setting of `localspec config show`, such as remember=false."

    def options(self) -> Options:
        """The options of the flags, validated; raises :class:`InvalidOptions`."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "opt"}
        values = {name: value for name, value in given.items() if value not in (None, ())}
        for name, value in values.items():
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            check_value(Options, name, value, said=flag)
        options = parse_options(values).over(environment_options())
        changed = override(Config(options=options), self._pairs()).options
        return from_here(changed)

    def config(self) -> Config:
        """The configuration with the settings of ``--opt``; its options are those of :meth:`options`."""
        config = load_config()
        # Here they would count as the file's, and the file's draft as the one beside --opt model=….
        return replace(override(config, self._pairs()), options=config.options)

    def check_daemon(self) -> None:
        """Raise :class:`InvalidOptions` for settings that a request to the daemon cannot change."""
        for key in map(plain_key, self._pairs()):
            name, change = key.rpartition(".")[2], f"Run `localspec config set {key} VALUE`"
            if name in (*DaemonConfig.__struct_fields__, *HttpConfig.__struct_fields__):
                raise InvalidOptions(f"{key} is a setting of the daemon, not of a request", f"{change}.")
            if name in EngineConfig.__struct_fields__:
                remedy = f"{change}, or add --no-daemon."
                raise InvalidOptions(f"{key} cannot be changed for one request", remedy)

    def _pairs(self) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for item in self.opt:
            key, equals, text = item.partition("=")
            if not equals:
                raise InvalidOptions(f"--opt {item!r} has no value", "Write --opt key=value.")
            pairs[key] = text
        return pairs


NO_FLAGS = ModelFlags()
