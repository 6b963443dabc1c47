"""llama.cpp's own server, found at a given path, by LOCALSPEC_LLAMA_SERVER or on PATH.

llama-cpp-python's source release contains the llama.cpp of localspec's backend, so that a server built
from it (8 minutes on 2 cores) differs in its speculation alone::

    pip download --no-deps --no-binary llama-cpp-python llama-cpp-python==0.3.36
    tar xzf llama_cpp_python-0.3.36.tar.gz
    cmake -S llama_cpp_python-0.3.36/vendor/llama.cpp -B llama-build -DCMAKE_BUILD_TYPE=Release \\
      -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \\
      -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_MTMD=OFF
    cmake --build llama-build --target llama-server --parallel
    export LOCALSPEC_LLAMA_SERVER=$PWD/llama-build/bin/llama-server
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import msgspec

from localspec.bench.references.answer import Answer, Question
from localspec.bench.references.setting import PLAIN, Setting
from localspec.bench.references.sizes import Sizes, sizes_of
from localspec.errors import BackendUnavailable, EngineCrashed, EngineError, InvalidOptions
from localspec.process import surroundings
from localspec.protocol.engine_config import EngineConfig

PROGRAM = "llama-server"
VARIABLE = "LOCALSPEC_LLAMA_SERVER"
LOOPBACK = "127.0.0.1"
START_S = 120.0
POLL_S = 0.02
ANSWER_S = 600.0
STOP_S = 5.0
LOG_TAIL = 2000
"""characters at the end of its log that an error quotes"""


def find_llama_server(program: Path | None = None) -> Path:
    """The path of llama-server: ``program``, else LOCALSPEC_LLAMA_SERVER's, else PATH's.

    Raises :class:`BackendUnavailable` when there is none.
    """
    named = str(program) if program is not None else os.environ.get(VARIABLE)
    found = shutil.which(named or PROGRAM)
    if found is None:
        raise BackendUnavailable(
            f"the program {named or PROGRAM} was not found",
            f"Install llama.cpp, or set {VARIABLE} to the path of its {PROGRAM}.",
        )
    return Path(found).absolute()  # it is started in another directory


class _Timings(msgspec.Struct):
    prompt_ms: float
    predicted_ms: float
    predicted_n: int
    draft_n: int = 0
    draft_n_accepted: int = 0


class _Reply(msgspec.Struct):
    """The parts of llama-server's answer that are used."""

    content: str
    tokens: list[int]
    timings: _Timings


class LlamaServer:
    """See :class:`.answer.Reference`: a server process, started here, with one setting.

    Threads and context are those of localspec's backend. Prompts are computed anew every time
    (``cache_prompt`` off). A setting that remembers texts across questions forgets them in
    :meth:`fresh`, which starts the process again. llama-server ends an answer at llama.cpp's own end
    tokens, which include all models' end tokens; where it goes on behind another end token of the
    question, ``tokens`` end there, but the text does not.

    Raises :class:`BackendUnavailable` without the program, :class:`InvalidOptions` for a setting
    without the draft model it needs, :class:`EngineError` when it does not start.
    """

    def __init__(
        self,
        path: Path,
        setting: Setting = PLAIN,
        *,
        draft: Path | None = None,
        config: EngineConfig | None = None,
        program: Path | None = None,
    ) -> None:
        if setting.needs_draft and draft is None:
            raise InvalidOptions(
                f"the setting {setting.name} needs a draft model",
                f'Name a draft model with --draft, or use another `--contestant "{PROGRAM} ..."`.',
            )
        self.name = f"{PROGRAM} {setting.name}"
        self._setting = setting
        sizes = sizes_of(path, config or EngineConfig())
        self._command = [
            str(find_llama_server(program)),
            "--model",
            str(path.absolute()),
            *_arguments(sizes, setting),
        ]
        if draft is not None and setting.needs_draft:
            self._command += ["--model-draft", str(draft.absolute())]
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fresh(self) -> None:
        if self._setting.remembers:
            self.close()
            self._start()

    def answer(self, question: Question) -> Answer:
        body = self._ask("POST", "/completion", _body(question))
        try:
            reply = msgspec.json.decode(body, type=_Reply)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EngineError(
                f"{self.name} sent an answer of unknown form: {error}",
                f"Use the {PROGRAM} of another llama.cpp version.",
            ) from None
        tokens, timings = reply.tokens, reply.timings
        ends = [i for i, token in enumerate(tokens) if token in question.end_tokens]
        return Answer(
            text=reply.content,
            tokens=tuple(tokens[: ends[0]] if ends else tokens),
            ttft_s=timings.prompt_ms / 1000,
            decode_s=timings.predicted_ms / 1000,
            decoded=max(timings.predicted_n - 1, 0),
            drafted=timings.draft_n,
            accepted=timings.draft_n_accepted,
        )

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    def _start(self) -> None:
        """Start the process and wait until it answers."""
        self.port = _free_port()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process lives
        # Its environment variables would change the measured settings.
        its_own = [name for name in os.environ if name.startswith("LLAMA_ARG_")]
        try:
            self._process = subprocess.Popen(
                [*self._command, "--port", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                **surroundings(without=its_own),
            )
        except OSError as error:
            self._log.close()
            raise BackendUnavailable(
                f"{self._command[0]} cannot be run: {error.strerror}",
                f"Install llama.cpp again, or set {VARIABLE} to the path of another {PROGRAM}.",
            ) from None
        try:
            self._await_health()
        except BaseException:
            self.close()
            raise

    def _await_health(self) -> None:
        deadline = time.monotonic() + START_S
        while not self._is_healthy():
            if self._process.poll() is not None:
                raise EngineError(
                    f"{self.name} ended with code {self._process.returncode}: {self._log_tail()}",
                    f"Use the {PROGRAM} of a newer llama.cpp, or another setting.",
                )
            if time.monotonic() > deadline:
                raise EngineError(f"{self.name} did not answer within {START_S:g} s", "Use a smaller model.")
            time.sleep(POLL_S)

    def _is_healthy(self) -> bool:
        try:
            return self._request("GET", "/health", None)[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> bytes:
        """The reply; raises :class:`EngineError` for a refusal, :class:`EngineCrashed` for none."""
        try:
            status, reply = self._request(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            raise EngineCrashed(
                f"{self.name} did not answer: {error}; its log ends with: {self._log_tail()}",
                f"Run the benchmark again, or use the {PROGRAM} of another llama.cpp version.",
            ) from None
        if status != http.client.OK:
            raise EngineError(
                f"{self.name} answered with the HTTP status {status}: {reply.decode('utf-8', 'replace')}",
                f'Run the benchmark with another `--contestant "{PROGRAM} ..."`.',
            )
        return reply

    def _request(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=ANSWER_S)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _log_tail(self) -> str:
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")[-LOG_TAIL:].strip()


def _arguments(sizes: Sizes, setting: Setting) -> list[str]:
    threads = str(sizes.threads)
    return [
        *("--ctx-size", str(sizes.n_ctx), "--threads", threads, "--threads-batch", threads),
        *("--n-gpu-layers", str(sizes.gpu_layers), "--parallel", "1", "--cache-ram", "0", "--host", LOOPBACK),
        *setting.arguments,
    ]


def _body(question: Question) -> dict[str, Any]:
    return {
        "prompt": list(question.tokens),
        "n_predict": question.max_tokens,
        "temperature": question.temperature,
        "seed": question.seed % 2**32,
        "samplers": ["temperature"],
        "cache_prompt": False,
        "return_tokens": True,
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
