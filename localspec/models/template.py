"""Chat templates: the model's own Jinja source, in a sandbox, with limits on time and output."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from datetime import datetime
from types import MappingProxyType
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.errors import ModelInvalid
from localspec.protocol.requests import Message

MAX_SECONDS = 2.0
MAX_CHARS = 8_000_000
NO_VARIABLES: Mapping[str, Any] = MappingProxyType({})

# What llama.cpp falls back to as well: ChatML, https://github.com/openai/openai-python/blob/v0.28.1/chatml.md
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class _CodeGenerator(CodeGenerator):
    """Compiles loops and ``~`` to calls of the environment's methods, which know the limits."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802
        node.iter = _method("each", node.iter)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.visit(_method("concat", nodes.Tuple(node.nodes, "load")), frame)


def _method(name: str, argument: nodes.Node) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), [argument], [], None, None)


class _Environment(ImmutableSandboxedEnvironment):
    """Checks the limits at every call, step of a loop, joining of texts and operator that makes
    much of little."""

    code_generator_class = _CodeGenerator
    intercepted_binops = frozenset({"+", "*", "**"})
    deadline = float("inf")

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        __self.check_time()
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.check_time()
        self.check_size(_size(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.check_time()
            yield item

    def concat(self, parts: Iterable[Any]) -> str:
        texts = [str(part) for part in parts]
        self.check_size(sum(map(len, texts)))
        return "".join(texts)

    def check_time(self) -> None:
        if time.thread_time() > self.deadline:
            raise TemplateError(f"it computed for longer than {MAX_SECONDS:g} s")

    def check_size(self, size: int) -> None:
        if size > MAX_CHARS:
            raise TemplateError(f"it makes more than {MAX_CHARS} characters")


def _size(operator: str, left: Any, right: Any) -> int:
    """How many characters, items or bits the result will have, or a little less."""
    if isinstance(left, int) and isinstance(right, int):
        return left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
    numbers = [value for value in (left, right) if isinstance(value, int)]
    lengths = [len(value) for value in (left, right) if isinstance(value, Sized)]
    return math.prod(numbers + lengths) if operator == "*" else sum(lengths)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


class ChatTemplate:
    """A compiled chat template.

    Raises :class:`ModelInvalid` where the source is no Jinja, or a rendering fails, computes for
    longer than two seconds or makes a text of more than eight million characters.
    """

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        self._environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        for name in ("center", "slice", "batch"):
            del self._environment.filters[name]  # they run and grow as their argument says
        del self._environment.globals["lipsum"]
        self._environment.globals["raise_exception"] = _raise_exception
        self._environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._variables = {"bos_token": bos, "eos_token": eos, "add_generation_prompt": True}
        try:
            self._template = self._environment.from_string(source or CHATML)
        except Exception as error:
            # Not only TemplateSyntaxError: nesting too deep and numbers too long end in errors of Python.
            raise ModelInvalid(f"the model's chat template is broken: {error}", _REMEDY) from None

    def render(self, messages: Sequence[Message], variables: Mapping[str, Any] = NO_VARIABLES) -> str:
        """The prompt text that asks for the next assistant message; ``variables`` stand beside its own."""
        turns = [{"role": m.role, "content": m.content} for m in messages]
        pieces: list[str] = []
        length = 0
        self._environment.deadline = time.thread_time() + MAX_SECONDS
        try:
            for piece in self._template.generate({**variables, **self._variables, "messages": turns}):
                pieces.append(piece)
                length += len(piece)
                self._environment.check_size(length)
        except Exception as error:
            # A template is a program of the model's author: whatever it raises is the model's fault.
            raise ModelInvalid(f"the model's chat template failed: {error}", _REMEDY) from None
        return "".join(pieces)


_REMEDY = "Use --raw to send the text without a template."
