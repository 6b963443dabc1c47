"""Chat templates: a model's own Jinja source, run in a sandbox with limits of steps, time and memory.

A template is a program of the model's author, run in that model's worker. Jinja, with what chat templates use
of it, limits it to texts, lists and numbers. Time: blocks, calls, filters and tests are steps, whose number
and processor time are limited. Memory: what an operation can make much larger than its operands is measured
before it is made, and all that is made is added up. A single native operation, such as a comparison, has no
limit of time; the daemon ends a worker that hangs in one.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, groupby, islice, repeat
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Any, Literal, NoReturn

from jinja2 import Template, TemplateError, TemplateRuntimeError, Undefined, nodes
from jinja2.compiler import CodeGenerator
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_environment

from localspec.errors import ModelInvalid
from localspec.models.directory import (
    chat_template,
    is_directory_model,
    read_directory,
    read_settings,
    read_tokenizer,
    text_of_token,
)
from localspec.models.gguf import read_header
from localspec.protocol.requests import Message, Tool

MAX_SOURCE = 100_000
"""characters, of which the worst take 1 s and 120 MB to compile; well-known models have up to 20,000"""
MAX_SECONDS = 2.0
"""processor time of one rendering"""
MAX_STEPS = 2_000_000
MAX_CHARS = 8_000_000
"""characters of any text"""
MAX_MADE = 128_000_000
"""characters of all texts of a rendering together"""
ITEM, BIT = 16, 100
"""characters that an item of a list, and a bit of a whole number, count for"""
WIDEST = 1000
"""characters of an indentation, or of the format of a date"""
LONGEST_ERROR = 1000
"""characters"""
METHODS = frozenset(
    """capitalize casefold changed copy count cycle endswith find get index isalnum isalpha isdecimal isdigit
    islower isnumeric isspace istitle isupper items join keys lower lstrip next partition removeprefix
    removesuffix replace reset rfind rindex rpartition rsplit rstrip split splitlines startswith strip
    swapcase title upper values""".split()  # noqa: SIM905
)
LAZY = frozenset(
    """count d default first items last length list map reject rejectattr reverse select
    selectattr""".split()  # noqa: SIM905
)
"""filters that read no texts of the items that they pass on"""
EAGER = frozenset(
    """abs capitalize dictsort float indent int lower max min replace sort string sum title trim unique
    upper""".split()  # noqa: SIM905
)
CONTAINERS: Any = dict, list, tuple, type({}.keys()), type({}.values()), type({}.items())
PLAIN_TYPES = str, int, float, type(None), range, Undefined


class Failed(TemplateRuntimeError):
    """A template that is broken, or exceeded a limit."""


class Refusal(TemplateError):
    """A template's own error, by ``raise_exception``."""


class Program:
    """A compiled template; one thread at a time may run it. Raises :class:`Failed`."""

    def __init__(self, source: str) -> None:
        self._sandbox = _Sandbox()
        self._template: Template = _failing(lambda: self._sandbox.compiled(source))

    def run(self, variables: Mapping[str, Any]) -> str:
        """The text that it makes of ``variables``. Raises :class:`Failed` and :class:`Refusal`."""
        return str(_failing(lambda: self._sandbox.rendered(self._template, variables)))


def _failing(work: Callable[[], Any]) -> Any:
    try:
        try:
            return work()
        except TemplateError as error:
            str(error).encode()
            raise
    except UnicodeEncodeError as error:
        raise Failed(f"its text is not valid Unicode: {error}") from None
    except Refusal as error:
        raise Refusal(str(error)[:LONGEST_ERROR]) from None
    except Exception as error:
        # Any exception of a template is the model's fault: besides TemplateError nesting too deep, numbers
        # too long, and errors of Python's own methods.
        raise Failed((str(error) or type(error).__name__)[:LONGEST_ERROR]) from None


class _Generation(Extension):
    """The block ``{% generation %}``, by which transformers marks text to train on: only its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_called"), [], [], body).set_lineno(line)

    def _called(self, caller: Callable[[], str]) -> str:
        return caller()


class _Generator(CodeGenerator):
    """Code that counts blocks as steps, and what Jinja makes without the environment."""

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Any) -> None:
        self.writeline("environment.step()")
        super().blockvisit(nodes, frame)

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> None:
        if isinstance(node, nodes.ScopedEvalContextModifier):
            self.fail(f"autoescape {FORBIDDEN}", node.lineno)
        if isinstance(node, nodes.Concat):
            node = _call("concat", nodes.Tuple(node.nodes, "load"))
        if isinstance(node, nodes.For) and node.test is not None:
            node.test = nodes.And(_call("step"), node.test)
        is_slice = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        is_tuple = isinstance(node, nodes.Tuple) and node.ctx == "load"
        if is_slice or is_tuple or isinstance(node, nodes.List | nodes.Dict):
            self.write("environment.made(")
            super().visit(node, *args, **kwargs)
            self.write(")")
        else:
            super().visit(node, *args, **kwargs)


def _call(method: str, *operands: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method), list(operands), [], None, None)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's environment, with what one rendering has taken so far."""

    code_generator_class = _Generator
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self._begin()
        self.finalize = self.text
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": self._raise_exception, "strftime_now": _strftime_now}
        self.filters |= {name: _forbidden(name) for name in self.filters.keys() - LAZY - EAGER}
        tables: tuple[dict[str, Any], ...] = (self.filters, self.tests)
        for table in tables:
            table |= {name: self._counted(name, each) for name, each in table.items()}
        self.filters |= {"join": _join, "safe": self.text, "tojson": _as_json}

    def compiled(self, source: str) -> Template:
        self._begin()
        if len(source) > MAX_SOURCE:
            raise Failed(f"it is longer than {MAX_SOURCE} characters")
        return self.from_string(source)

    def rendered(self, template: Template, variables: Mapping[str, Any]) -> str:
        self._begin()
        text = self.concat(template.root_render_func(template.new_context(dict(variables))))
        text.encode()
        return text

    def _begin(self) -> None:
        self._steps, self._made, self._until = 0, 0, time.thread_time() + MAX_SECONDS

    def step(self) -> bool:
        """Count a step. Return True."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Failed(f"it took more than {MAX_STEPS} steps")
        if time.thread_time() > self._until:
            raise Failed(f"it took more than {MAX_SECONDS:g} s of processor time")
        return True

    def made(self, value: Any) -> Any:
        """Count a value that was made."""
        size = _fitting(_size(value))
        self._made += size + ITEM
        if self._made > MAX_MADE:
            raise Failed(f"its texts are longer than {MAX_MADE} characters together")
        return value

    def text(self, value: Any) -> Any:
        """A value as text."""
        if isinstance(value, str):
            return value
        _fitting(_length(value))
        return self.made(str(value))

    def concat(self, pieces: Iterable[Any]) -> str:
        """The texts of ``pieces``, one after the other."""
        texts, length = [], 0
        for piece in pieces:
            self.step()
            texts.append(text := self.text(piece))
            length = _fitting(length + len(text))
        return str(self.made("".join(texts)))

    def joined(self, separator: Any, values: Iterable[Any]) -> str:
        return self.concat(islice(chain.from_iterable(zip(repeat(separator), values)), 1, None))

    # Overrides of the methods that compiled templates call.

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """A measured ``str.format`` without specifications; ``format_map`` is none of METHODS."""
        made = super().wrap_str_format(value)
        if made is None or value.__name__ != "format":
            return None
        text = str(value.__self__)

        def measured(*args: Any, **kwargs: Any) -> str:
            if any(specification for _, _, specification, _ in Formatter().parse(text)):
                raise Failed(f"a field with ':' in a format {FORBIDDEN}")
            _fitting(len(text) + text.count("{") * (_length(args) + _length(kwargs)))
            return made(*args, **kwargs)

        return measured

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        is_method = callable(value) and type(value).__module__ == "builtins"
        return super().is_safe_attribute(obj, attr, value) and (attr in METHODS or not is_method)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        return self.undefined(f"{attribute!r} of {type(obj).__name__!r} {FORBIDDEN}", exc=Failed)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.step()
        if not isinstance(argument, PLAIN_TYPES):  # what is undefined writes its name
            _fitting(_length(argument))
        return super().getitem(obj, argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _fitting(_result(operator, left, right))
        return self.made(super().call_binop(context, operator, left, right))

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.step()
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        if isinstance(owner, str) and name == "join":
            return self.joined(owner, *args)
        if isinstance(owner, str | list | tuple):  # whose errors write their operands
            _fitting(sum(map(_length, args)))
        if isinstance(owner, str) and name in _MEASURES:
            _fitting(_MEASURES[name](owner, *args, **kwargs))
        if function is dict or function is Namespace:
            args, kwargs = (self.made(dict(*args, **kwargs)),), {}
        self.made(args)
        return self.made(super().call(context, function, *args, **kwargs))

    # Filters, tests and functions of the environment.

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or a test that is a step; what an eager filter reads of its operands is measured first."""
        own = int(hasattr(function, "jinja_pass_arg"))

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.step()
            if name in EAGER:
                args = (
                    *args[:own],
                    *(list(each) if isinstance(each, Iterator) else each for each in args[own:]),
                )
                _fitting(sum(map(_length, (*args[own:], *kwargs.values()))))
            if name in _MEASURES:
                _fitting(_MEASURES[name](*args[own:], **kwargs))
            return self.made(function(*args, **kwargs))

        return counted

    def _raise_exception(self, message: object) -> NoReturn:
        raise Refusal(self.text(message))


FORBIDDEN = "is not permitted in a chat template"


def _forbidden(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise Failed(f"the filter {name!r} {FORBIDDEN}")

    return refuse


def _fitting(size: int) -> int:
    """The number of characters. Raises :class:`Failed` where a text may not have so many."""
    if size > MAX_CHARS:
        raise Failed(f"its text is longer than {MAX_CHARS} characters")
    return size


def _size(value: object) -> int:
    """The characters that a value counts for."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict | list | tuple):
        return ITEM * len(value)
    return BIT * value.bit_length() if isinstance(value, int) else 0


def _length(value: object) -> int:
    """The characters of ``repr(value)``, or a number above MAX_CHARS. Raises :class:`Failed` for what has no
    text of its own: an iterator, a macro, a namespace."""
    length = 0
    left: list[Any] = [value]
    while left and length <= MAX_CHARS:
        each = left.pop()
        if isinstance(each, CONTAINERS):
            length += ITEM + 4 * len(each)
            left.extend(chain.from_iterable(each.items()) if isinstance(each, dict) else each)
        elif isinstance(each, PLAIN_TYPES):
            length += len(repr(each)) - 2 * isinstance(each, str)
        else:
            raise Failed(f"the text of a {type(each).__name__!r} {FORBIDDEN}")
    return length


def _result(operator: str, left: Any, right: Any) -> int:
    """The size of an operation's result, at most."""
    if operator == "+":
        return _size(left) + _size(right)
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        return BIT * (bits * right if operator == "**" else bits + right.bit_length())
    if operator == "*":
        several, times = (right, left) if isinstance(left, int) else (left, right)
        return _size(several) * times if isinstance(times, int) else 0
    if operator == "%" and isinstance(left, str):
        raise Failed(f"'%' on a text {FORBIDDEN}")
    return 0


def _of_replace(value: object, old: object, new: object, *_: object, **__: object) -> int:
    text = str(value)
    return len(text) + text.count(str(old)) * len(str(new))


def _of_indent(value: object, width: int | str = 4, *_: object, **__: object) -> int:
    text, wide = str(value), _narrow(width)
    return len(text) + (1 + sum(map(text.count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))) * (1 + wide)


def _of_rest(value: object, *_: object) -> int:
    return _result("%", value, 0)


_MEASURES: dict[str, Callable[..., int]] = {
    "divisibleby": _of_rest,
    "even": _of_rest,
    "odd": _of_rest,
    "replace": _of_replace,
    "indent": _of_indent,
}
"""the sizes of results, of methods, filters and tests"""


def _narrow(width: int | str) -> int:
    wide = len(width) if isinstance(width, str) else width
    if wide > WIDEST:
        raise Failed(f"a width of {wide} characters {FORBIDDEN}")
    return wide


@pass_environment
def _join(sandbox: _Sandbox, value: Any, d: Any = "", attribute: Any = None) -> str:
    return sandbox.joined(d, value if attribute is None else map(make_attrgetter(sandbox, attribute), value))


@pass_environment
def _as_json(
    sandbox: _Sandbox,
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers and llama.cpp write it: Jinja's own filter sorts keys and escapes HTML."""
    _narrow(indent or 0)
    form = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return sandbox.concat(form.iterencode(value))


def _strftime_now(form: str) -> str:
    _narrow(form)
    return datetime.now().strftime(form)


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
_Role = Literal["system", "user", "assistant", "tool"]
_SYSTEMS: tuple[_Role, ...] = ("system", "user")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""names that templates have for the thoughts of a turn"""


class ChatTemplate:
    """A chat template, compiled at its first use. Threads may share it: they take turns."""

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        self._source = source or CHATML
        self._own = {"bos_token": bos, "eos_token": eos, "add_generation_prompt": True}
        self._turn = threading.Lock()
        self._program: Any = None

    def render(
        self,
        messages: Sequence[Message],
        variables: Mapping[str, Any] = NO_VARIABLES,
        tools: Sequence[Tool] = (),
    ) -> str:
        """The prompt text that asks for the next assistant message; ``variables`` stand beside its own.

        A template that refuses the messages gets neighbours of one role as one message, and after that system
        messages as the user's. The arguments of calls are objects, or texts where it fails with those.

        Raises :class:`ModelInvalid` where the source is not valid Jinja, or a rendering fails or exceeds a
        limit of the sandbox.
        """

        with self._turn:
            try:
                self._program = self._program or Program(self._source)
            except Failed as error:
                raise ModelInvalid(f"the model's chat template is broken: {error}", _REMEDY) from None
            # Without one the templates of Llama 3 name a day of 2024.
            variables = {"date_string": _strftime_now("%d %b %Y"), **variables}
            own = {**self._own, "tools": [_function(tool) for tool in tools]} if tools else self._own
            refused: Exception | None = None
            for as_text in (False, True) if any(message.tool_calls for message in messages) else (False,):
                for system in (None, *_SYSTEMS):
                    attempt = messages if system is None else _joined(messages, system)
                    turns = _turns(attempt, as_text=as_text, nested="tool_responses" in self._source)
                    try:
                        return str(self._program.run({**variables, **own, "messages": turns}))
                    except Refusal as error:
                        refused = refused or error
                    except Failed as error:
                        refused = refused or error
                        break
        raise ModelInvalid(f"the model's chat template failed: {refused}", _REMEDY)


def _joined(messages: Iterable[Message], system: _Role) -> list[Message]:
    """``messages`` with neighbours of one role as one message, but for calls and their results; ``system``:
    the role of system messages."""

    def kind(message: Message) -> tuple[_Role, int]:
        role = system if message.role == "system" else message.role
        return role, id(message) if message.tool_calls or role == "tool" else 0

    joined = []
    for (role, whole), run in groupby(messages, kind):
        first, *others = run
        texts = (message.content for message in (first, *others))
        joined.append(first if whole else Message(role, "\n\n".join(texts)))
    return joined


def _turns(messages: Iterable[Message], *, as_text: bool, nested: bool) -> list[dict[str, Any]]:
    """The messages as templates read them; ``as_text``: the arguments of calls are texts; ``nested``: the
    results of calls are part of the turn with the calls."""
    names: dict[str, str] = {}
    turns: list[dict[str, Any]] = []
    for message in messages:
        turn: dict[str, Any] = {"role": message.role, "content": message.content}
        for call in message.tool_calls:
            names[call.id] = call.name
            arguments = call.arguments if as_text else json.loads(call.arguments)
            made = {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments},
            }
            turn.setdefault("tool_calls", []).append(made)
        if message.thinking:
            turn |= dict.fromkeys(_THOUGHTS, message.thinking)
        name = names.get(message.tool_call_id, "")
        if message.role == "tool" and nested and turns:
            result = {"name": name, "response": message.content}
            turns[-1].setdefault("tool_responses", []).append(result)
            continue
        if message.role == "tool":
            turn |= {"tool_call_id": message.tool_call_id, "name": name}
        turns.append(turn)
    return turns


def _function(tool: Tool) -> dict[str, Any]:
    """A tool as templates read it; some fail without properties."""
    parameters = {"type": "object", "properties": {}, **tool.parameters}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


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
