"""What can be asked of an engine, in process or through its worker."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from localspec.protocol.bounds import FilePath, Language
from localspec.protocol.options import Options

Priority = Literal["completion", "chat", "background"]
"""who goes first where requests compete, in this order"""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another file's text, as context for a completion."""

    path: FilePath
    text: str


class TextPrompt(msgspec.Struct, frozen=True, tag="text"):
    """Continue this text as it is."""

    text: str


class TokenPrompt(msgspec.Struct, frozen=True, tag="tokens"):
    """Continue these tokens as they are; nothing is put before them."""

    tokens: tuple[int, ...]


class ChatPrompt(msgspec.Struct, frozen=True, omit_defaults=True, tag="chat"):
    """Answer the last message, through the model's chat template.

    ``prefilled``: the last message is the beginning of the answer, which goes on after it. ``variables`` are
    given to the template besides its own.
    """

    messages: tuple[Message, ...]
    prefilled: bool = False
    variables: dict[str, Any] = {}


class FimPrompt(msgspec.Struct, frozen=True, tag="fim"):
    """Fill in what stands between ``prefix`` and ``suffix``.

    ``extra`` are pieces of other files, the most important first. ``tidy`` ends the text where an editor's
    completion ends (:class:`localspec.completion.stopping.StopRule`), with its line unless ``multiline``, and
    at temperature 0 where the model is unsure, unless somebody ``invoked`` it; what has come is then told at
    the end.
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

    ``max_ms`` is a deadline over queue, prefill and decode, in milliseconds; ``max_prompt_ms`` one over what
    comes before the first token, ``max_predict_ms`` one from then on. ``source`` is who asked, such as
    ``chat:<session>``: what the memory learns of it, and what is kept of its cache, can be forgotten by that
    name. ``priority``: if nothing is said, what fills a gap is a completion, all else a chat.
    """

    prompt: Prompt
    options: Options = Options()
    max_ms: int | None = None
    max_prompt_ms: int | None = None
    max_predict_ms: int | None = None
    source: str = "run"
    priority: Priority | None = None

    @property
    def goes_as(self) -> Priority:
        """Its priority, said or not."""
        return self.priority or ("completion" if isinstance(self.prompt, FimPrompt) else "chat")
