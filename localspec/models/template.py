"""Chat templates: the model's own Jinja source, in a sandbox, with limits on time and output."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.errors import ModelInvalid
from localspec.protocol.requests import Message

MAX_SECONDS = 2.0
MAX_CHARS = 8_000_000

# What llama.cpp falls back to as well: ChatML, https://github.com/openai/openai-python/blob/v0.28.1/chatml.md
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class _Environment(ImmutableSandboxedEnvironment):
    """Every call a template makes checks the clock."""

    deadline = float("inf")

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        __self.check()
        return super().call(__context, __obj, *args, **kwargs)

    def check(self) -> None:
        if time.monotonic() > self.deadline:
            raise TemplateError(f"it ran longer than {MAX_SECONDS:g} s")


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


class ChatTemplate:
    """A compiled chat template.

    Raises :class:`ModelInvalid` where the source is no Jinja, or a rendering fails, runs longer
    than two seconds or prints more than eight million characters.
    """

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        self._environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        self._environment.globals["raise_exception"] = _raise_exception
        self._environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._variables = {"bos_token": bos, "eos_token": eos, "add_generation_prompt": True}
        try:
            self._template = self._environment.from_string(source or CHATML)
        except TemplateSyntaxError as error:
            raise ModelInvalid(f"the model's chat template is broken: {error}", _REMEDY) from None

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt text that asks for the next assistant message."""
        turns = [{"role": m.role, "content": m.content} for m in messages]
        pieces: list[str] = []
        length = 0
        self._environment.deadline = time.monotonic() + MAX_SECONDS
        try:
            for piece in self._template.generate(messages=turns, **self._variables):
                pieces.append(piece)
                length += len(piece)
                self._environment.check()
                if length > MAX_CHARS:
                    raise TemplateError(f"it printed more than {MAX_CHARS} characters")
        except Exception as error:
            # A template is a program of the model's author: whatever it raises is the model's fault.
            raise ModelInvalid(f"the model's chat template failed: {error}", _REMEDY) from None
        return "".join(pieces)


_REMEDY = "Use --raw to send the text without a template."
