"""The flags that every command with a model takes, declared once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from cyclopts import Group, Parameter
from msgspec.structs import replace

from localspec.cli.completers import drafts, models
from localspec.cli.here import from_here
from localspec.config import (
    Config,
    DaemonConfig,
    EngineConfig,
    HttpConfig,
    environment_options,
    load_config,
    override,
    plain_key,
)
from localspec.errors import InvalidOptions
from localspec.protocol.options import Options, check_value, parse_options

ModelName = Annotated[str | None, Parameter(name=["--model", "-m"], completer=models)]

MODEL = Group("Model", sort_key=1)
SAMPLING = Group("Sampling", sort_key=2)
SPECULATION = Group("Speculation", sort_key=3)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelFlags:
    """See :class:`localspec.protocol.options.Options` for the ranges."""

    model: Annotated[str | None, Parameter(name=["--model", "-m"], group=MODEL, completer=models)] = None
    "Model to answer with: a name of `localspec models list`, or a path."
    draft: Annotated[str | None, Parameter(group=MODEL, completer=drafts)] = None
    "Model that drafts for it: a name, a path, `none` or `auto`; otherwise the config's, or `auto` beside -m."
    backend: Annotated[Literal["auto", "llama_cpp", "mlx"] | None, Parameter(group=MODEL)] = None
    "What runs the model: llama_cpp GGUF files, mlx MLX directories."
    max_tokens: Annotated[int | None, Parameter(group=SAMPLING)] = None
    "Longest answer, in tokens; 0 only reads the prompt. Otherwise what the context leaves, 256 to fill in."
    temperature: Annotated[float | None, Parameter(group=SAMPLING)] = None
    "0 is greedy; 0.7 where neither you nor the model say otherwise."
    top_k: Annotated[int | None, Parameter(group=SAMPLING)] = None
    "Sample among the k most probable tokens; 0: all."
    top_p: Annotated[float | None, Parameter(group=SAMPLING)] = None
    "Sample among the fewest tokens that have this probability together."
    min_p: Annotated[float | None, Parameter(group=SAMPLING)] = None
    "Drop tokens less probable than this share of the most probable one."
    repeat_penalty: Annotated[float | None, Parameter(group=SAMPLING)] = None
    "Above 1: tokens that occurred become less probable."
    seed: Annotated[int | None, Parameter(group=SAMPLING)] = None
    "The same seed gives the same text, whoever drafts."
    stop: Annotated[tuple[str, ...], Parameter(group=SAMPLING)] = ()
    "End the answer before this text; may be repeated."
    proposer: Annotated[
        Literal["auto", "none", "prompt-lookup", "memory", "draft"] | None, Parameter(group=SPECULATION)
    ] = None
    "Who drafts tokens: the draft model, the prompt itself, the n-gram memory, or nobody; auto: whoever pays."
    k: Annotated[int | None, Parameter(name="-k", group=SPECULATION)] = None
    "Most draft tokens a round, 1 to 20."
    exactness: Annotated[Literal["strict", "fast"] | None, Parameter(group=SPECULATION)] = None
    "At temperature 0 or with a seed: strict computes near-ties again, fast does not."
    opt: Annotated[tuple[str, ...], Parameter(name="--opt")] = ()
    "Any other key of `localspec config show`, as in remember=false; of [engine] with --no-daemon only."

    def options(self) -> Options:
        """What the flags say, validated; raises :class:`InvalidOptions`."""
        said = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "opt"}
        values = {name: value for name, value in said.items() if value not in (None, ())}
        for name, value in values.items():
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            check_value(Options, name, value, said=flag)
        options = parse_options(values).over(environment_options())
        changed = override(Config(options=options), self._pairs()).options
        return from_here(changed)

    def config(self) -> Config:
        """The configuration with the settings of ``--opt``; its options are those of :meth:`options`."""
        config = load_config()
        # Here they would pass for the file's, and the file's draft for one that goes with --opt model=….
        return replace(override(config, self._pairs()), options=config.options)

    def check_daemon(self) -> None:
        """Raises :class:`InvalidOptions` for settings that a running daemon cannot take."""
        for key in map(plain_key, self._pairs()):
            if key.rpartition(".")[2] in (*DaemonConfig.__struct_fields__, *HttpConfig.__struct_fields__):
                raise InvalidOptions(f"{key} is the daemon's own", f"Run `localspec config set {key} VALUE`.")
            if key.rpartition(".")[2] in EngineConfig.__struct_fields__:
                raise InvalidOptions(
                    f"{key} is settled when the daemon loads the model",
                    f"Run `localspec config set {key} VALUE`, or add --no-daemon.",
                )

    def _pairs(self) -> dict[str, str]:
        """Keys as they were typed, and their values."""
        pairs: dict[str, str] = {}
        for item in self.opt:
            key, equals, text = item.partition("=")
            if not equals:
                raise InvalidOptions(f"--opt {item!r} has no value", "Write --opt key=value.")
            pairs[key] = text
        return pairs
