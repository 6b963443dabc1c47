"""Plain decoding through the daemon's HTTP server, beside llama.cpp's own server.

    python -m assets.bench.plain_decoding [--model FILE.gguf] [--repeats 5] [--tokens 200]

Both servers run the same file with the same threads and context, one request at a time, without drafts. One
client streams llama.cpp's ``/completion`` from either in turn, and reads the clock: milliseconds to the
first text, and tokens a second from the first to the last. The daemon's wire is measured beside them. Each
prompt begins with a number of its own, so that no server has read it before; an answer that ends early is not
counted. ``ratio`` is the median of the ratios to llama-server's rate in the same repeat. The model is the
bundled one, inflated to the cost of 0.5 billion parameters, unless one is given. llama-server is found as by
``localspec bench``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from assets.bench.http_cost import address_of, localspec
from assets.bench.keystrokes import measure as measure_model
from localspec.bench.bench import Order, model_paths
from localspec.bench.references.llama_server import LlamaServer
from localspec.bench.stand import TARGET
from localspec.client import connect
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options

CONTEXT = 4096
WORDS = "The sea was calm when the ship left the harbour, and the crew sang. "
PROMPTS = {
    "chat": "Write a long story about the sea and a ship.",
    "code": "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n",
    "behind 1,000 tokens": WORDS * 62,
}


class Answer(NamedTuple):
    first_ms: float
    rate: float
    """tokens a second from the first to the last; not a number for an answer that ended early"""


def answer(address: str, headers: dict[str, str], prompt: str, tokens: int) -> Answer:
    """Stream one completion and read the clock at its first and its last text."""
    body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "stream": True}
    connection = HTTPConnection(address)
    began = time.perf_counter()
    connection.request(
        "POST", "/completion", json.dumps(body), {"Content-Type": "application/json", **headers}
    )
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(response.read().decode())
    first, last, final = 0.0, 0.0, {}
    while line := response.readline():
        if line.startswith(b"data: "):
            now, event = time.perf_counter(), json.loads(line[6:])
            if event.get("content"):
                first, last = first or now, now
            final = event
    connection.close()
    return Answer(1000 * (first - began), _rate(final["tokens_predicted"], tokens, last - first))


def _rate(count: int, wanted: int, seconds: float) -> float:
    return (count - 1) / seconds if count == wanted else math.nan


async def answer_on_wire(prompt: str, tokens: int) -> Answer:
    """As :func:`answer`, over the daemon's wire."""
    options = Options(temperature=0.0, max_tokens=tokens, proposer="none")
    async with await connect(start=False, name="bench") as client:
        began = time.perf_counter()
        first = last = 0.0
        stream = client.generate(prompt, raw=True, options=options)
        async for delta in stream:
            if delta.text:
                last = time.perf_counter()
                first = first or last
        result = await stream.result()
    return Answer(1000 * (first - began), _rate(result.completion_tokens, tokens, last - first))


@contextmanager
def daemon(model: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A plainly decoding daemon in a home of its own; yields its HTTP address and the headers to send."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["LOCALSPEC_HOME"] = home
        config = Path(home, "config", "config.toml")
        config.parent.mkdir()
        config.write_text(
            f'[options]\nmodel = "{model.resolve()}"\nproposer = "none"\n[engine]\nn_ctx = {CONTEXT}\n'
            "[daemon]\nport = 0\n[http]\nenabled = true\nport = 0\n"
        )
        measure_model(
            model, n_ctx=CONTEXT
        )  # the daemon would do so between requests, beside the other server
        localspec("daemon", "start")
        try:
            token = localspec("daemon", "token").strip()
            yield asyncio.run(_address()), {"Authorization": f"Bearer {token}"}
        finally:
            localspec("daemon", "stop")


async def _address() -> str:
    async with await connect(start=False, name="bench") as client:
        return await address_of(client)


def measure(model: Path, repeats: int, tokens: int) -> dict[str, dict[str, list[Answer]]]:
    """Answers by prompt and server; the servers take turns, and their first answers are not counted."""
    config = EngineConfig(n_ctx=CONTEXT, parallel=1)
    with daemon(model) as (ours, headers), LlamaServer(model, config=config) as server:
        theirs = f"127.0.0.1:{server.port}"
        servers = {
            "llama-server": lambda prompt, n: answer(theirs, {}, prompt, n),
            "localspec by HTTP": lambda prompt, n: answer(ours, headers, prompt, n),
            "localspec by its wire": lambda prompt, n: asyncio.run(answer_on_wire(prompt, n)),
        }
        for ask in servers.values():
            ask(PROMPTS["chat"], 8)
        answers: dict[str, dict[str, list[Answer]]] = {
            prompt: {server: [] for server in servers} for prompt in PROMPTS
        }
        for repeat in range(repeats):
            for name, prompt in PROMPTS.items():
                for number, (each, ask) in enumerate(servers.items(), len(servers) * repeat):
                    answers[name][each].append(ask(f"{number}. {prompt}", tokens))
        return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    given = parser.parse_args()
    model = given.model or model_paths(Order(quick=True), lambda what, fraction: None)[TARGET]
    print(f"{'':22}{'':24}tokens/s: median   best  ratio  counted  first text, ms")
    for prompt, by_server in measure(model, given.repeats, given.tokens).items():
        plain = [one.rate for one in by_server["llama-server"]]
        for server, answers in by_server.items():
            rates = [one.rate for one in answers if not math.isnan(one.rate)]
            pairs = [one.rate / base for one, base in zip(answers, plain, strict=True)]
            ratio = statistics.median([each for each in pairs if not math.isnan(each)] or [math.nan])
            first = statistics.median(one.first_ms for one in answers)
            print(
                f"{prompt:22}{server:24}{statistics.median(rates):16.2f}{max(rates):7.2f}"
                f"{ratio:7.3f}{len(rates):9}{first:16.1f}"
            )


if __name__ == "__main__":
    main()
