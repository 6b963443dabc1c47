"""Requests to an engine, in process or through its worker."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from localspec.protocol.bounds import FilePath, Language
from localspec.protocol.options import Options

Priority = Literal["completion", "chat", "background"]
"""the class of a request, the highest priority first"""
CLASSES: tuple[Priority, ...] = get_args(Priority)
PATIENCE_S: dict[Priority, float] = {"completion": 0.0, "chat": 0.25, "background": 2.0}
"""seconds without a step, or a turn on the CPU, after which one goes before those of a higher class"""


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a tool by the model; ``arguments`` is a JSON object as text."""

    id: str
    name: str
    arguments: str


class Tool(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A function that the model may call; ``parameters`` is the JSON schema of its arguments."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    description: str = ""
    parameters: dict[str, Any] = {}


class Message(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One turn of a conversation. ``tool_calls`` are those of an assistant's turn; a turn of the role
    ``tool`` has the result of the call ``tool_call_id``."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


ToolChoice = Literal["auto", "none", "required"]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another file's text, as context for a completion."""

    path: FilePath
    text: str


class TextPrompt(msgspec.Struct, frozen=True, tag="text"):
    """Continue a text as it is."""

    text: str


class TokenPrompt(msgspec.Struct, frozen=True, tag="tokens"):
    """Continue tokens as they are; nothing is put before them."""

    tokens: tuple[int, ...]


class ChatPrompt(msgspec.Struct, frozen=True, omit_defaults=True, tag="chat"):
    """Answer the last message, through the model's chat template.

    ``prefilled``: the last message is the beginning of the answer, which goes on after it. ``variables`` are
    given to the template besides its own. The answer may call ``tools``, must call one if ``tool_choice`` is
    ``required``, and then only ``tool`` if one is named; ``parallel_tool_calls``: also several.
    """

    messages: tuple[Message, ...]
    prefilled: bool = False
    variables: dict[str, Any] = {}
    tools: Annotated[tuple[Tool, ...], Meta(max_length=1024)] = ()
    tool_choice: ToolChoice = "auto"
    tool: str | None = None
    parallel_tool_calls: bool = True


class FimPrompt(msgspec.Struct, frozen=True, tag="fim"):
    """Fill in the text between ``prefix`` and ``suffix``.

    ``extra`` are pieces of other files, the most important first. ``tidy`` ends the text where an editor's
    completion ends (:class:`localspec.completion.stopping.StopRule`), with its line unless ``multiline``, and
    at temperature 0 where the model is unsure, unless the user ``invoked`` it; the text is then sent at the
    end only.
    """

    prefix: str
    suffix: str
    path: FilePath | None = None
    language: Language | None = None
    extra: tuple[File, ...] = ()
    multiline: bool = True
    tidy: bool = False
    invoked: bool = False


Prompt = TextPrompt | TokenPrompt | ChatPrompt | FimPrompt


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One generation.

    ``max_ms`` is a deadline over queue, prefill and decode, in milliseconds; ``max_prompt_ms`` one for the
    time before the first token, ``max_predict_ms`` one from then on. ``source`` is the request's origin, such
    as ``chat:<session>``: what the memory learns of it, and its saved KV cache, can be forgotten by that
    name. ``priority``: None for that of its prompt, ``completion`` for FIM and ``chat`` for all others.
    """

    prompt: Prompt
    options: Options = Options()
    max_ms: int | None = None
    max_prompt_ms: int | None = None
    max_predict_ms: int | None = None
    source: str = "run"
    priority: Priority | None = None
    progress: bool = False
    """report progress of every prompt, from before its first forward; else of those of several pieces"""

    @property
    def goes_as(self) -> Priority:
        """The request's priority: as given, else that of its prompt."""
        return self.priority or ("completion" if isinstance(self.prompt, FimPrompt) else "chat")
