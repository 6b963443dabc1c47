"""Chat templates: the model's own Jinja source, run in a process of its own with limits."""

from __future__ import annotations

import contextlib
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, BinaryIO, cast

import msgspec
import psutil

from localspec import process
from localspec.errors import EngineError, ModelInvalid, of_system
from localspec.models.rendering import Begin, Rendered, memory_told, receive, send, time_told
from localspec.protocol.requests import Message

MAX_SECONDS = 2.0
MAX_CHARS = 8_000_000
MAX_MEMORY = 512 << 20
NO_VARIABLES: Mapping[str, Any] = MappingProxyType({})
WAIT_S = 20.0
"""longest wait for the process, which may get little of a busy machine's time"""
LOOK_S = 0.02
"""after so long its memory is looked at as well: not every system limits that by itself"""

# What llama.cpp falls back to as well: ChatML, https://github.com/openai/openai-python/blob/v0.28.1/chatml.md
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_REMEDY = "Use --raw to send the text without a template."


class ChatTemplate:
    """A compiled chat template.

    Raises :class:`ModelInvalid` where the source is no Jinja, or a rendering fails, computes for longer than
    two seconds, takes more than 512 MB or makes a text of more than eight million characters.
    """

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        self._begin = Begin(source or CHATML, MAX_SECONDS, MAX_CHARS, MAX_MEMORY)
        self._own = {"bos_token": bos, "eos_token": eos, "add_generation_prompt": True}
        self._turn = threading.Lock()
        self._child: _Child | None = None
        with self._turn:
            self._started()

    def render(self, messages: Sequence[Message], variables: Mapping[str, Any] = NO_VARIABLES) -> str:
        """The prompt text that asks for the next assistant message; ``variables`` stand beside its own."""
        turns = [{"role": m.role, "content": m.content} for m in messages]
        with self._turn:
            rendered = self._started().ask({**variables, **self._own, "messages": turns})
        if rendered.error is not None:
            raise ModelInvalid(f"the model's chat template failed: {rendered.error}", _REMEDY)
        return rendered.text

    def _started(self) -> _Child:
        """The process with the compiled template; a new one where the last one was ended."""
        if self._child is not None and self._child.is_alive():
            return self._child
        child = _Child(self._begin)
        compiled = child.ask(self._begin)
        if compiled.error is not None:
            raise ModelInvalid(f"the model's chat template is broken: {compiled.error}", _REMEDY)
        self._child = child
        return child


class _Child:
    """A process of :mod:`.rendering`; it ends with this object."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        try:
            self._process = subprocess.Popen(
                process.python("localspec.models.rendering"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's Ctrl-C is for us
                **process.surroundings(),
            )
        except OSError as error:
            what = "the chat template's process cannot be started"
            raise of_system(error, what) or EngineError(f"{what}: {error.strerror}") from None
        self._end = weakref.finalize(self, _end, self._process)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, message: object) -> Rendered:
        """What it answers; the limit that has ended it, where one has.

        An interrupt ends it, too: its answer to this message must not be read as the one to the next.
        """
        try:
            return self._answer(message)
        except BaseException:
            self._end()
            raise

    def _answer(self, message: object) -> Rendered:
        stdin, stdout = cast(BinaryIO, self._process.stdin), cast(BinaryIO, self._process.stdout)
        told = None
        with contextlib.suppress(OSError):  # it has ended, and how is found out below
            try:
                send(stdin, message)
            except ValueError as error:
                return Rendered(error=str(error))
            told = self._excess(stdout)
        content = None if told else receive(stdout)
        if content is not None:
            return msgspec.msgpack.decode(content, type=Rendered)
        self._process.kill()
        code = self._process.wait()
        self._end()
        return Rendered(error=told or self._how(code))

    def _excess(self, stdout: BinaryIO) -> str | None:
        """Wait for an answer, or the end; the limit that it exceeds meanwhile, None for neither."""
        begun = time.monotonic()
        wait_s = LOOK_S
        while not select.select([stdout], [], [], wait_s)[0]:
            if time.monotonic() - begun > WAIT_S:
                return time_told(WAIT_S)
            with contextlib.suppress(psutil.Error):
                if psutil.Process(self._process.pid).memory_info().rss > self._begin.memory:
                    return memory_told(self._begin.memory)
        return None

    def _how(self, code: int) -> str:
        if code == -getattr(signal, "SIGXCPU", 0):
            return time_told(self._begin.seconds)
        return f"its process ended with {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # what it did not read any more
                stream.close()
    process.kill()
    process.wait()
