"""``python -m localspec.models.rendering``: the process in which a model's chat template is run.

A template is a program of the model's author. Jinja's sandbox limits it to texts, lists and numbers; the
system limits the memory and processor time of its operations, filters and methods on these. Frames, each
msgpack after its length, come on stdin and go to stdout:
:class:`Begin`, then the variables of each rendering; a :class:`Rendered` answers each.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, BinaryIO, NoReturn

import msgspec
from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

LENGTH = struct.Struct("<I")
AGAIN_S = 0.05
LONGEST_ERROR = 1000
"""characters"""
SPARE_S = 1
"""seconds of processor time after the limit, until the system ends code that no signal interrupts"""


class Begin(msgspec.Struct):
    """A template and its limits: ``seconds`` of processor time, ``chars`` of a text, ``memory`` in bytes."""

    source: str
    seconds: float
    chars: int
    memory: int


class Rendered(msgspec.Struct):
    """A text, empty for :class:`Begin`; or the ``error`` instead."""

    text: str = ""
    error: str | None = None
    is_final: bool = True
    """True if rendering again in another process would give the same error"""
    is_refused: bool = False
    """True if the template refused the conversation by ``raise_exception``"""


def receive(stream: BinaryIO) -> bytes | None:
    """The next frame's content; None at the end of the stream."""
    header = stream.read(LENGTH.size)
    if len(header) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(header)
    content = stream.read(length)
    return content if len(content) == length else None


def framed(message: object) -> bytes:
    """A frame. Raises :class:`ValueError` for what msgpack cannot hold: long numbers, lone surrogates."""
    try:
        content = msgspec.msgpack.encode(message)
    except (OverflowError, RecursionError, TypeError) as error:
        raise ValueError(str(error)) from None
    return LENGTH.pack(len(content)) + content


class Refusal(TemplateError):
    """A template's own error, by ``raise_exception``."""


class Generation(Extension):
    """The block ``{% generation %}``, by which transformers marks text to train on: only its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_called"), [], [], body).set_lineno(line)

    def _called(self, caller: Callable[[], str]) -> str:
        return caller()


class Renderer:
    """A template in its limits."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._template: Template | None = None

    def compile(self) -> Rendered:
        return self._bounded(self._compile)

    def render(self, variables: Mapping[str, Any]) -> Rendered:
        return self._bounded(lambda: self._render(variables))

    def _compile(self) -> str:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
        )
        del environment.globals["lipsum"]
        environment.filters["tojson"] = _as_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._template = environment.from_string(self._begin.source)
        return ""

    def _render(self, variables: Mapping[str, Any]) -> str:
        assert self._template is not None
        pieces: list[str] = []
        length = 0
        for piece in self._template.generate(variables):
            pieces.append(piece)
            length += len(piece)
            if length > self._begin.chars:
                raise TemplateError(f"its text is longer than {self._begin.chars} characters")
        return "".join(pieces)

    def _bounded(self, work: Callable[[], str]) -> Rendered:
        try:
            with _processor_time(self._begin.seconds):
                return _done(work)
        except MemoryError:
            return Rendered(error=memory_exceeded(self._begin.memory))
        except TemplateError as error:
            return Rendered(error=str(error))


def _done(work: Callable[[], str]) -> Rendered:
    try:
        return Rendered(work())
    except MemoryError:
        raise
    except Exception as error:
        # Any exception of a template is the model's fault: besides TemplateError nesting too deep, numbers
        # too long, and errors of Python's own methods. Making the message takes time and memory, too.
        message = (str(error) or type(error).__name__)[:LONGEST_ERROR]
        return Rendered(error=message, is_refused=isinstance(error, Refusal))


def time_exceeded(seconds: float) -> str:
    return f"it took more than {seconds:g} s of processor time"


def memory_exceeded(size: int) -> str:
    return f"it took more than {size >> 20} MB of memory"


def _as_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers and llama.cpp write it: Jinja's own filter sorts keys and escapes HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise Refusal(message)


@contextlib.contextmanager
def _processor_time(seconds: float) -> Iterator[None]:
    """Limit this process to so many seconds of processor time inside. After them an exception is raised, and
    again in case that the template catches it; code that no exception reaches is ended by the kernel."""

    def over(*_: object) -> NoReturn:
        raise TemplateError(time_exceeded(seconds))

    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + seconds) + 1 + SPARE_S, hard))
    signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _bound(memory: int) -> None:
    """Limit what this process may allocate; leave no dump of it."""
    for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(kind)
        with contextlib.suppress(OSError, ValueError):  # macOS has no limit of the first kind
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _answer(stdout: BinaryIO, rendered: Rendered) -> None:
    try:
        frame = framed(rendered)
    except ValueError as error:  # a lone surrogate, in an error's text perhaps
        frame = framed(Rendered(error=f"its text is not valid Unicode: {error}"))
    stdout.write(frame)
    stdout.flush()


def main() -> None:
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    first = receive(stdin)
    if first is None:
        return
    begin = msgspec.msgpack.decode(first, type=Begin)
    _bound(begin.memory)
    renderer = Renderer(begin)
    _answer(stdout, renderer.compile())
    while (content := receive(stdin)) is not None:
        _answer(stdout, renderer.render(msgspec.msgpack.decode(content)))


if __name__ == "__main__":
    main()
