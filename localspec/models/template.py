"""Chat templates: the model's own Jinja source, run in a sandbox with limits."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from localspec.errors import ModelInvalid
from localspec.models.directory import is_directory_model, read_directory
from localspec.models.gguf import read_header
from localspec.models.tokenizer_json import chat_template, read_settings, read_tokenizer, text_of_token
from localspec.protocol.requests import Message

NO_VARIABLES: Mapping[str, Any] = MappingProxyType({})

# The fallback of llama.cpp as well, there for all models: ChatML, https://github.com/openai/openai-python/blob/v0.28.1/chatml.md
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATMLS = "<|im_start|>"
"""the token that a model knows if ChatML means anything to it"""
PLAIN = "{{ messages | map(attribute='content') | join('\n\n') }}"
"""for a base model without a template, to which ChatML's markers would be text: the contents alone"""
_REMEDY = (
    "Send the text without a template: `run --raw`, over HTTP `/v1/completions`, or `raw` of `/api/generate`."
)
_Role = Literal["system", "user", "assistant"]
_SYSTEMS: tuple[_Role, ...] = ("system", "user")


class ChatTemplate:
    """A chat template, compiled at its first use. Threads may share it: they take turns."""

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        self._source = source or CHATML
        self._own = {"bos_token": bos, "eos_token": eos, "add_generation_prompt": True}
        self._turn = threading.Lock()
        self._program: Any = None

    def render(self, messages: Sequence[Message], variables: Mapping[str, Any] = NO_VARIABLES) -> str:
        """The prompt text that asks for the next assistant message; ``variables`` stand beside its own.

        A template that refuses the messages gets neighbours of one role as one message, and after that system
        messages as the user's.

        Raises :class:`ModelInvalid` where the source is not valid Jinja, or a rendering fails or exceeds a
        limit of :mod:`.sandbox`.
        """
        from localspec.models import sandbox  # not for those that only read the constants: it loads Jinja

        with self._turn:
            try:
                self._program = self._program or sandbox.Program(self._source)
            except sandbox.Failed as error:
                raise ModelInvalid(f"the model's chat template is broken: {error}", _REMEDY) from None
            refused: Exception | None = None
            for system in (None, *_SYSTEMS):
                attempt = messages if system is None else _joined(messages, system)
                turns = [{"role": m.role, "content": m.content} for m in attempt]
                try:
                    return str(self._program.run({**variables, **self._own, "messages": turns}))
                except sandbox.Refusal as error:
                    refused = refused or error
                except sandbox.Failed as error:
                    refused = refused or error
                    break
        raise ModelInvalid(f"the model's chat template failed: {refused}", _REMEDY)


def _joined(messages: Iterable[Message], system: _Role) -> list[Message]:
    """``messages`` with neighbours of one role as one message; ``system``: the role of system messages."""
    runs = groupby(messages, lambda message: system if message.role == "system" else message.role)
    return [Message(role, "\n\n".join(message.content for message in run)) for role, run in runs]


def texts_of(path: Path) -> dict[str, str]:
    """Return, by the server's names, the quantisation, the texts of the tokens that begin and end texts,
    empty without one, and the chat template in use; raises :class:`ModelError`."""
    tokens: Iterable[str]
    if is_directory_model(path):
        settings = read_settings(path)
        bos, eos = (text_of_token(settings.get(f"{name}_token")) or "" for name in ("bos", "eos"))
        template, quantisation = chat_template(path, settings), read_directory(path).quantisation
        tokens = () if template else read_tokenizer(path).added.values()
    else:
        header = read_header(path)
        quantisation, found = header.quantisation, header.metadata.get("tokenizer.chat_template")
        template = found if isinstance(found, str) else None
        tokens = texts = header.metadata.get("tokenizer.ggml.tokens") or ()
        ids = (header.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
        bos, eos = (texts[id] if type(id) is int and 0 <= id < len(texts) else "" for id in ids)
    template = template or (CHATML if CHATMLS in tokens else PLAIN)
    return {"model_ftype": quantisation, "bos_token": bos, "eos_token": eos, "chat_template": template}
