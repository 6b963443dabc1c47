"""Chat templates: the model's own Jinja source, run in a process of its own with limits."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, Literal

from localspec.errors import ModelInvalid
from localspec.models.rendering import Begin, Rendered
from localspec.models.rendering_process import RenderingProcess
from localspec.protocol.requests import Message

MAX_SECONDS = 2.0
MAX_CHARS = 8_000_000
MAX_MEMORY = 512 << 20
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
_Roles = Mapping[_Role, _Role]
_AS_GIVEN: _Roles = MappingProxyType({})
_OF_THE_USER: _Roles = MappingProxyType({"system": "user"})


class ChatTemplate:
    """A chat template, compiled in the background from now on.

    ``process``: one that was started earlier, which the template takes over. Raises :class:`EngineError`
    where no process can be started.
    """

    def __init__(
        self, source: str | None, *, bos: str = "", eos: str = "", process: RenderingProcess | None = None
    ) -> None:
        self._begin = Begin(source or CHATML, MAX_SECONDS, MAX_CHARS, MAX_MEMORY)
        self._own = {"bos_token": bos, "eos_token": eos, "add_generation_prompt": True}
        self._turn = threading.Lock()
        self._broken = ""
        """the compiler's error, which another process would repeat"""
        self._is_compiled = False
        self._process = self._begun(process)

    def render(self, messages: Sequence[Message], variables: Mapping[str, Any] = NO_VARIABLES) -> str:
        """The prompt text that asks for the next assistant message; ``variables`` stand beside its own.

        A template that refuses the messages gets neighbours of one role as one message, and after that system
        messages as the user's.

        Raises :class:`ModelInvalid` where the source is not valid Jinja, or a rendering fails, takes more
        than two seconds of processor time or 512 MB, or makes more than eight million characters.
        """
        first = rendered = self._rendered(messages, variables)
        for roles in (_AS_GIVEN, _OF_THE_USER):
            if rendered.is_refused and (simpler := _joined(messages, roles)) != messages:
                rendered, messages = self._rendered(simpler, variables), simpler
        if rendered.error is not None:
            raise ModelInvalid(f"the model's chat template failed: {first.error}", _REMEDY)
        return rendered.text

    def close(self) -> None:
        """End the process; a later rendering would start another one."""
        self._process.end()

    def _rendered(self, messages: Sequence[Message], variables: Mapping[str, Any]) -> Rendered:
        turns = [{"role": m.role, "content": m.content} for m in messages]
        with self._turn:
            try:
                self._compile()
                return self._answer({**variables, **self._own, "messages": turns})
            except BaseException:  # after an interrupt its answer would be taken for the next message's
                self._process.end()
                raise

    def _begun(self, process: RenderingProcess | None) -> RenderingProcess:
        """A process that compiles the template: this one if it is alive, else a new one."""
        if process is None or not process.is_alive():
            process = RenderingProcess()
        try:
            process.send(self._begin)
        except ValueError as error:
            self._broken = str(error)
        self._is_compiled = False
        return process

    def _compile(self) -> None:
        """Have a process with the compiled template. Raises :class:`ModelInvalid`."""
        if not self._broken and not self._process.is_alive():
            self._process = self._begun(None)
        if not self._broken and not self._is_compiled:
            compiled = self._process.answer(self._begin)
            self._is_compiled = compiled.error is None
            if compiled.error is not None and not compiled.is_final:
                raise ModelInvalid(f"the model's chat template failed: {compiled.error}", _REMEDY)
            self._broken = compiled.error or ""
        if self._broken:
            raise ModelInvalid(f"the model's chat template is broken: {self._broken}", _REMEDY)

    def _answer(self, variables: Mapping[str, Any]) -> Rendered:
        try:
            self._process.send(variables)
        except ValueError as error:
            return Rendered(error=str(error))
        return self._process.answer(self._begin)


def _joined(messages: Iterable[Message], roles: _Roles) -> list[Message]:
    """``messages`` in other roles, with neighbours of one role as one message."""
    runs = groupby(messages, lambda message: roles.get(message.role, message.role))
    return [Message(role, "\n\n".join(message.content for message in run)) for role, run in runs]
