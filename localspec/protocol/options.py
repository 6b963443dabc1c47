"""The options struct: one definition for the wire, the config file, the CLI and the Python API. The
registry of proposers, one value for each, is read by the options' validation, the help and completion of
``--proposer``, the metrics' labels, the HTTP server's limits for unauthenticated clients, the chat's
colours and dialogs, and by the engine, which alone imports the factories."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, inspect

from localspec.errors import InvalidOptions
from localspec.protocol.jsonrpc import LONGEST_PATH, Name, TokenId, shorten

Need = Literal["nothing", "memory", "draft model", "target"]
"""a requirement: nothing, the n-gram memory, a draft model, or a target that has heads or the like"""

AUTO, NONE = "auto", "none"
"""values of ``--proposer`` that are no proposer: the controller's choice among all, and plain decoding"""


class ProposerKind(NamedTuple):
    """The description of a proposer, from which its names, texts and colours are derived."""

    name: str
    """its :attr:`Proposer.name`: the value of ``--proposer``, and the source of its tokens in statistics"""
    meaning: str
    """the source of its drafts, in a few words"""
    factory: str
    """``module:function``; called with the :class:`EngineParts`, it returns a proposer, or None where
    something is missing that it needs"""
    colour: str
    """of its tokens in the chat: a variable of the theme, or one turned by degrees of hue: ``primary+60``"""
    mark: str
    """of its tokens in a terminal without colours: a style of Rich, such as ``underline``"""
    label: str
    """its name in the chat's legend"""
    needs: Need = "nothing"
    unauthenticated: bool = False
    """True if unauthenticated HTTP clients may use it: it must not show the texts of other users"""


LOOKUP = ProposerKind(
    name="prompt-lookup",
    meaning="text that is already in the prompt or the answer",
    factory="localspec.engine.round:prompt_lookup",
    colour="success",
    mark="bold",
    label="lookup",
    unauthenticated=True,
)
MEMORY = ProposerKind(
    name="memory",
    meaning="text of earlier work, from the n-gram memory",
    factory="localspec.engine.round:memory_recall",
    colour="warning",
    mark="reverse",
    label="memory",
    needs="memory",
)
DRAFT = ProposerKind(
    name="draft",
    meaning="the draft model",
    factory="localspec.engine.round:draft_model",
    colour="primary",
    mark="underline",
    label="draft",
    needs="draft model",
    unauthenticated=True,
)

GRAMMAR = ProposerKind(
    name="grammar",
    meaning="tokens that the request's grammar forces: no proposer drafts them, nothing is verified",
    factory="",
    colour="warning+315",
    mark="italic",
    label="grammar",
)

KINDS: tuple[ProposerKind, ...] = (LOOKUP, MEMORY, DRAFT)
"""all proposers, the cheapest draft first"""


def meanings() -> dict[str, str]:
    """All values of ``--proposer``, each with its meaning."""
    return {
        AUTO: "the best of all each round, by measured costs",
        NONE: "plain decoding, without drafts",
        **{kind.name: kind.meaning for kind in KINDS},
    }


if TYPE_CHECKING:
    ProposerName = str
else:
    ProposerName = Literal[tuple(meanings())]
BackendName = Literal["auto", "llama_cpp", "mlx"]
MOST_LIKELY = 20
"""of :attr:`Options.top_logprobs`, as in OpenAI's API"""
LONGEST_SHOWN = 60
"""longest refused value, in characters, that an error repeats"""
LONGEST_GRAMMAR = 1 << 20
"""characters of a grammar, or of a JSON schema as text"""
CONSTRAINTS = ("schema", "grammar", "regex", "choice")
"""options of which a request has at most one: what the whole answer must match"""
_LONG_QUOTE = re.compile(rf"(['`])[^'`]{{{LONGEST_SHOWN},}}\1")

Stop = Annotated[str, Meta(min_length=1, max_length=256)]
Bias = tuple[TokenId, Annotated[float, Meta(ge=-10_000, le=10_000)]]
"""a token and what is added to its logit"""
Choice = Annotated[str, Meta(min_length=1, max_length=4096)]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The options of one request. ``None``: not set here, the next layer decides. A request's options
    override its session's, those the configuration's. The default is the model's own setting, else
    temperature 0.7 for chat and 0 for completion; that of ``max_tokens`` is what the context leaves (256 for
    completion); 0 reads the prompt and generates nothing."""

    model: Name | None = None
    """model that answers: a name of `localspec models list`, a path, `bundled`, or `auto`: the default"""
    draft: Name | None = None
    """its draft model: a name, a path, `none` or `auto`"""
    proposer: ProposerName | None = None
    """source of draft tokens"""
    backend: BackendName | None = None
    """library that runs the model"""
    k: Annotated[int, Meta(ge=1, le=20)] | None = None
    """most draft tokens a round; not set: as many as pay"""
    exactness: Literal["auto", "strict", "fast"] | None = None
    """with temperature 0 or a seed: `strict`, the text of plain decoding; not set: auto, where it is free"""
    temperature: Annotated[float, Meta(ge=0, le=5)] | None = None
    """0 is greedy; not set: the model's own, else 0.7 for chat and 0 to fill in"""
    top_k: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """sample among the k most probable tokens; 0: all; not set: the model's own, else 0"""
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    """sample among the fewest tokens that have this probability together; not set: the model's own, else 1"""
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    """drop tokens less probable than this share of the most probable one; not set: the model's own, else 0"""
    repeat_penalty: Annotated[float, Meta(gt=0, le=5)] | None = None
    """above 1: tokens that occurred become less probable; not set: the model's own, else 1"""
    repeat_last_n: Annotated[int, Meta(ge=-1, le=100_000_000)] | None = None
    """tokens that penalties look back at; 0: none; not set: all of the prompt and the answer, as -1"""
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    """taken from a token's logit for each time that it occurred; not set: 0"""
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    """taken from a token's logit once it occurred; not set: 0"""
    logit_bias: Annotated[tuple[Bias, ...], Meta(max_length=4096)] | None = None
    """pairs of a token's id and what is added to its logit; not set: none"""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """the same seed gives the same text with any proposer; not set: another one each time"""
    stop: Annotated[tuple[Stop, ...], Meta(max_length=64)] | None = None
    """texts before which an answer ends; not set: none"""
    max_tokens: Annotated[int, Meta(ge=0, le=10_000_000)] | None = None
    """longest answer; 0 only reads the prompt; not set: what the context leaves, 256 to fill in"""
    workspace: Annotated[str, Meta(max_length=LONGEST_PATH, pattern="^[^\x00]*$")] | None = None
    """directory whose n-gram memory is used and taught; not set: the git repository"""
    remember: bool | None = None
    """false: the n-gram memory learns nothing; not set: true"""
    logprobs: bool | None = None
    """report the probabilities of tokens; not set: false"""
    top_logprobs: Annotated[int, Meta(ge=0, le=MOST_LIKELY)] | None = None
    """with logprobs: how many of the most probable tokens are reported for each; not set: 0"""
    think: Annotated[int, Meta(ge=0, le=10_000_000)] | None = None
    """most tokens of a model's thoughts before its answer, 0: none; not set: no limit"""
    overflow: Literal["cut", "refuse"] | None = None
    """a chat longer than the context: `cut` drops its oldest turns; not set: cut, over HTTP `refuse`"""
    schema: Annotated[dict[str, Any], Meta(extra_json_schema={"title": "a JSON object"})] | None = None
    """JSON schema that the answer matches; not set: none"""
    grammar: Annotated[str, Meta(min_length=1, max_length=LONGEST_GRAMMAR)] | None = None
    """grammar that the answer matches; not set: none"""
    grammar_syntax: Literal["lark", "gbnf"] | None = None
    """syntax of the grammar; not set: lark"""
    regex: Annotated[str, Meta(min_length=1, max_length=1 << 16)] | None = None
    """regular expression that the whole answer matches; not set: none"""
    choice: Annotated[tuple[Choice, ...], Meta(min_length=1, max_length=1024)] | None = None
    """texts of which the answer is one; not set: any"""

    @property
    def has_form(self) -> bool:
        return any(getattr(self, name) is not None for name in CONSTRAINTS)

    def over(self, base: Options) -> Options:
        """These options where they are set, ``base`` elsewhere. A draft model belongs to the model it was
        named with: options that name another model do not take over the draft model of ``base``, and get
        ``auto`` if they name none. A constraint replaces another."""
        said = {f: v for f in self.__struct_fields__ if (v := getattr(self, f)) is not None}
        if names_draft(base) and self._names_another_model(base):
            said.setdefault("draft", None)
        if any(name in said for name in CONSTRAINTS):
            said = dict.fromkeys((*CONSTRAINTS, "grammar_syntax")) | said
        return msgspec.structs.replace(base, **said)

    def _names_another_model(self, base: Options) -> bool:
        """True if both name a model, and not the same: a file may be named with or without its path."""
        if self.model is None or base.model is None:
            return False
        if is_written_as_path(self.model) and is_written_as_path(base.model):
            return _file(self.model) != _file(base.model)
        one, two = (name.rpartition("/")[2].removesuffix(".gguf") for name in (self.model, base.model))
        return one != two


SETTABLE = tuple(name for name in Options.__struct_fields__ if name not in (*CONSTRAINTS, "grammar_syntax"))
"""options of the configuration and of a chat; the others are of one request"""


def names_draft(options: Options) -> bool:
    return options.draft not in (None, "auto", "none")


def is_written_as_path(name: str) -> bool:
    """True if a name is written like a path: with a separator, a ``~`` or a model file's suffix. Names of
    repositories are, too."""
    return "/" in name or name.startswith("~") or name.endswith(".gguf") or name in (".", "..")


def _file(path: str) -> str:
    """The file that a path leads to; an invalid path is returned as it is."""
    try:
        return os.path.realpath(os.path.expanduser(path))
    except (OSError, ValueError):
        return path


def parse_options(values: Mapping[str, Any]) -> Options:
    """Validate ``values``; raises :class:`InvalidOptions` naming the field, its range or the nearest name."""
    unknown = [name for name in values if name not in Options.__struct_fields__]
    if unknown:
        raise InvalidOptions(unknown_key("option", unknown[0], Options.__struct_fields__))
    try:
        options = msgspec.convert(dict(values), Options)
    except msgspec.ValidationError as error:
        raise InvalidOptions(f"invalid option: {readable(error)}") from None
    return check_options(options)


def check_value(
    struct: type[msgspec.Struct],
    field: str,
    value: object,
    *,
    said: str,
    remedy: str = "See `localspec run --help`.",
    strict: bool = False,
) -> None:
    """Check a value of ``field`` of ``struct``; raises :class:`InvalidOptions` with the values it takes.
    ``said`` is the user's name of the field. Unless ``strict``, texts are read as on the command line."""
    try:
        msgspec.convert({field: value}, struct, strict=strict)
    except msgspec.ValidationError:
        raise InvalidOptions(
            f"{said} takes {describe_allowed(struct, field)}{instead(value)}", remedy
        ) from None


def instead(value: object) -> str:
    """``, not 'many'``: a refused value as it was given; empty for one beyond :data:`LONGEST_SHOWN`."""
    if isinstance(value, bool | list | tuple | dict):
        said = msgspec.json.encode(value).decode()
    else:
        said = repr(value) if isinstance(value, str | int | float) else str(value)
    return f", not {said}" if len(said) <= LONGEST_SHOWN else ""


def describe_allowed(struct: type[msgspec.Struct], field: str) -> str:
    """The values that a field takes, in words: ``a whole number from 1 to 20``."""
    return _words(_kind(struct, field))


def choices(struct: type[msgspec.Struct], field: str) -> tuple[str, ...]:
    """All values of a field of a fixed set or a bool; empty for other fields."""
    match _kind(struct, field):
        case inspect.LiteralType(values=values):
            return tuple(map(str, values))
        case inspect.BoolType():
            return ("true", "false")
    return ()


def _kind(struct: type[msgspec.Struct], field: str) -> inspect.Type:
    types = {each.name: each.type for each in msgspec.structs.fields(struct)}
    kind = inspect.type_info(types[field])
    return kind.types[0] if isinstance(kind, inspect.UnionType) else kind  # the other is None: not said


def _words(kind: inspect.Type) -> str:
    match kind:
        case inspect.LiteralType(values=(*others, last)):
            return f"{', '.join(map(str, others))} or {last}"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"a whole number {_range(kind)}"
        case inspect.FloatType():
            return f"a number {_range(kind)}"
        case inspect.Metadata(extra_json_schema={"title": title}):
            return str(title)
        case inspect.StrType(max_length=None):
            return "text"
        case inspect.StrType():
            return f"text of {kind.min_length or 0} to {kind.max_length} characters"
        case inspect.VarTupleType(item_type=item, max_length=most):
            number = "" if most is None else f"at most {most} "
            return f"a list of {number}{_words(item).replace('text', 'strings')}"
        case inspect.TupleType(item_types=items):
            return f"lists of {' and '.join(map(_words, items))}"
    return "something else"


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f"from {kind.ge} to {kind.le}"
    limits = {"above": kind.gt, "of at least": kind.ge, "at most": kind.le, "below": kind.lt}
    return " and ".join(f"{word} {limit}" for word, limit in limits.items() if limit is not None)


def check_options(options: Options) -> Options:
    """Check the fields that depend on each other; returns ``options``."""
    given = [name for name in CONSTRAINTS if getattr(options, name) is not None]
    if len(given) > 1:
        raise InvalidOptions(f"{' and '.join(given)} exclude each other", f"Leave {given[1]} out.")
    return options


def unknown_key(what: str, name: str, known: tuple[str, ...] | list[str]) -> str:
    # A client may send megabytes as a name: searching one alike would block all other requests.
    name = shorten(name, LONGEST_SHOWN)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no {what} named {name!r}{hint}"


def readable(error: msgspec.ValidationError) -> str:
    """msgspec's message with the field first: ``k: expected int <= 20``; a long name in it is shortened."""
    said = _LONG_QUOTE.sub(lambda found: shorten(found[0], LONGEST_SHOWN), str(error))
    text, _, path = said.partition(" - at ")
    text = text.replace("`", "").replace(" | null", "")
    text = text[:1].lower() + text[1:]
    field = path.strip("`").removeprefix("$").removeprefix(".")
    return f"{field}: {text}" if field else text
