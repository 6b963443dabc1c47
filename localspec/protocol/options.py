"""The options struct: one definition for the wire, the config file, the CLI and the Python API."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from localspec.errors import InvalidOptions

ProposerName = Literal["auto", "none", "prompt-lookup", "memory", "draft"]
BackendName = Literal["auto", "llama_cpp", "mlx", "toy"]

Stop = Annotated[str, Meta(min_length=1, max_length=256)]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How to answer one request. ``None`` means: not said here, ask the next layer.

    A request's options override its session's, those the config's. What nobody says is the
    model's own setting, else temperature 0.7 for chat and 0 for completion, and ``max_tokens``
    is what the context leaves (256 for completion).
    """

    model: str | None = None
    draft: str | None = None
    proposer: ProposerName | None = None
    backend: BackendName | None = None
    k: Annotated[int, Meta(ge=1, le=20)] | None = None
    verify: Literal["exact", "threshold"] | None = None
    threshold: Annotated[float, Meta(gt=0, lt=1)] | None = None
    exactness: Literal["strict", "fast"] | None = None
    temperature: Annotated[float, Meta(ge=0, le=5)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, Meta(gt=0, le=5)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    stop: Annotated[tuple[Stop, ...], Meta(max_length=16)] | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=10_000_000)] | None = None
    workspace: Annotated[str, Meta(max_length=4096, pattern="^[^\x00]*$")] | None = None
    remember: bool | None = None
    logprobs: bool | None = None

    def over(self, base: Options) -> Options:
        """These options where they say something, ``base`` elsewhere."""
        said = {f: v for f in self.__struct_fields__ if (v := getattr(self, f)) is not None}
        return msgspec.structs.replace(base, **said)


def parse_options(values: Mapping[str, Any], *, strict: bool = True) -> Options:
    """Validate ``values``; raises :class:`InvalidOptions` naming the field, its range or the nearest name.

    ``strict=False`` also takes the text forms of the command line (``"0.5"``, ``"true"``).
    """
    unknown = [name for name in values if name not in Options.__struct_fields__]
    if unknown:
        raise InvalidOptions(unknown_key("option", unknown[0], Options.__struct_fields__))
    try:
        options = msgspec.convert(dict(values), Options, strict=strict)
    except msgspec.ValidationError as error:
        raise InvalidOptions(f"invalid option: {readable(error)}") from None
    return check_options(options)


def check_options(options: Options) -> Options:
    """Checks over several fields; returns ``options``."""
    if options.threshold is not None and options.verify != "threshold":
        raise InvalidOptions(
            "a threshold was given, but drafts are verified exactly",
            'Add verify = "threshold" (lossy), or drop the threshold.',
        )
    return options


def unknown_key(what: str, name: str, known: tuple[str, ...] | list[str]) -> str:
    """The sentence for a key nobody knows, with the nearest one that exists."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no {what} named {name!r}{hint}"


def readable(error: msgspec.ValidationError) -> str:
    """msgspec's message with the field first: ``k: expected int <= 20``."""
    text, _, path = str(error).partition(" - at ")
    text = text.replace("`", "").replace(" | null", "")
    text = text[:1].lower() + text[1:]
    field = path.strip("`").removeprefix("$").removeprefix(".")
    return f"{field}: {text}" if field else text
