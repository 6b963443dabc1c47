"""localspec beside llama.cpp's own server, request by request in turn.

    python -m assets.bench.beside [--model FILE.gguf] [--draft FILE.gguf] [--only NAME] [--workload NAME]

The cases of ``localspec bench`` are streamed by HTTP, greedily and one request at a time, from a localspec
daemon and from a llama-server for each of its settings, with the same threads and context. The client's clock
gives the time to the first text, and tokens a second from the first text to the last. The servers take turns.
Each prompt begins with a number of its own, so that none has read it before; no server remembers earlier
answers. ``ratio`` and ``worst`` are the median and the smallest ratio to plain llama-server's rate for the
same case and repeat. The model is the bundled one unless one is given.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from assets.bench.servers import LlamaServer, daemon_address, localspec, measure_costs, own_home
from localspec.bench.run import Case, load_cases
from localspec.models.bundled import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model

CONTEXT = 4096
PLAIN = "llama-server plain"
PROPOSERS = ("none", "auto", "prompt-lookup", "draft")
CONFIG = """\
[options]
model = "{model}"
draft = "{draft}"
[engine]
n_ctx = {context}
threads = {threads}
[daemon]
port = 0
[http]
enabled = true
port = 0
"""


class Setting(NamedTuple):
    """A setting of llama-server; ``remembers``: earlier answers speed up later ones."""

    name: str
    arguments: tuple[str, ...] = ()
    remembers: bool = False
    needs_draft: bool = False


def ngram_simple(n: int, m: int) -> Setting:
    """The last ``n`` tokens are searched for; the ``m`` that followed are the draft."""
    sizes = ("--spec-ngram-simple-size-n", str(n), "--spec-ngram-simple-size-m", str(m))
    return Setting(f"ngram-simple {n}/{m}", ("--spec-type", "ngram-simple", *sizes))


def ngram_mod(match: int, least: int, most: int) -> Setting:
    """A hash table of all texts since the start: ``match`` tokens give the next one, chained."""
    sizes = ("--spec-ngram-mod-n-match", str(match), "--spec-ngram-mod-n-min", str(least))
    arguments = ("--spec-type", "ngram-mod", *sizes, "--spec-ngram-mod-n-max", str(most))
    return Setting(f"ngram-mod {match}/{least}/{most}", arguments, remembers=True)


SETTINGS = (
    Setting("plain"),
    ngram_simple(12, 48),  # the defaults of llama-server
    ngram_simple(3, 8),
    ngram_mod(16, 2, 16),
    Setting("draft-simple 3", ("--spec-type", "draft-simple", "--spec-draft-n-max", "3"), needs_draft=True),
)


class Question(NamedTuple):
    """A prompt: messages of a chat, or a text that is continued."""

    workload: str
    messages: tuple[dict[str, str], ...]
    raw: bool

    def numbered(self, number: int) -> Question:
        """The same with a number at the beginning."""
        first, *others = self.messages
        mark = f"# {number}\n" if self.raw else f"{number}. "
        return self._replace(messages=({**first, "content": mark + first["content"]}, *others))


class Answer(NamedTuple):
    """``rate``: tokens a second from the first text to the last; None for a single piece of text."""

    first_ms: float
    rate: float | None
    text: str


Ask = Callable[[Question, int], Answer]
"""a function that asks a contestant for an answer of so many tokens at most"""


def asked(address: str, body: dict[str, Any], headers: dict[str, str], question: Question) -> Answer:
    """Stream one answer and read the clock at its first and its last text."""
    if question.raw:
        path, body = "/completion", {**body, "prompt": question.messages[0]["content"]}
    else:
        usage = {"stream_options": {"include_usage": True}}
        path, body = "/v1/chat/completions", {**body, **usage, "messages": question.messages}
    connection = HTTPConnection(address)
    began = time.perf_counter()
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"{address}{path}: {response.read().decode()}")
    first, last, tokens, text = 0.0, 0.0, 0, ""
    while line := response.readline():
        if line.startswith(b"data: {"):
            now, event = time.perf_counter(), json.loads(line[6:])
            if piece := piece_of(event):
                first, last, text = first or now, now, text + piece
            tokens = (event.get("usage") or {}).get("completion_tokens") or event.get(
                "tokens_predicted", tokens
            )
    connection.close()
    rate = (tokens - 1) / (last - first) if last > first else None
    return Answer(1000 * (first - began), rate, text)


def piece_of(event: dict[str, Any]) -> str:
    """The text of an event of either dialect."""
    if "choices" not in event:
        return event.get("content") or ""
    return "".join(choice["delta"].get("content") or "" for choice in event["choices"])


@contextmanager
def our_server(model: Path, draft: Path | None, threads: int) -> Iterator[dict[str, Ask]]:
    """Contestants of a daemon, by name."""
    pair = str(model), "none" if draft is None else str(draft)
    with own_home(CONFIG.format(model=pair[0], draft=pair[1], context=CONTEXT, threads=threads)):
        measure_costs(*pair, n_ctx=CONTEXT)
        localspec("daemon", "start")
        headers = {"Authorization": f"Bearer {localspec('daemon', 'token').strip()}"}
        address = asyncio.run(daemon_address())

        def ask(proposer: str) -> Ask:
            own = {"localspec": {"proposer": proposer, "remember": False}}
            return lambda question, tokens: asked(address, {**own, **limits(tokens)}, headers, question)

        yield {f"localspec {name}": ask(name) for name in PROPOSERS if draft is not None or name != "draft"}


@contextmanager
def their_server(setting: Setting, model: Path, draft: Path | None, threads: int) -> Iterator[Ask]:
    """A contestant: llama-server with one setting."""
    sizes = ("--ctx-size", str(CONTEXT), "--threads", str(threads), "--threads-batch", str(threads))
    drafting = ("--model-draft", str(draft)) if setting.needs_draft else ()
    server = LlamaServer(model, (*sizes, *setting.arguments, *drafting))

    def ask(question: Question, tokens: int) -> Answer:
        if setting.remembers:
            server.close()
            server.start()
        return asked(server.address, {**limits(tokens), "cache_prompt": False}, {}, question)

    try:
        yield ask
    finally:
        server.close()


def limits(tokens: int) -> dict[str, Any]:
    """The same settings in the words of both dialects."""
    return {"stream": True, "temperature": 0, "n_predict": tokens, "max_tokens": tokens}


def question_of(case: Case, ask: Ask, tokens: int) -> Question:
    """The last prompt of a case, after ``ask``'s answers to the earlier ones."""
    messages: tuple[dict[str, str], ...] = ()
    for prompt in case.prompts[:-1]:
        messages += ({"role": "user", "content": prompt},)
        text = ask(Question(case.workload, messages, raw=False), tokens).text
        messages += ({"role": "assistant", "content": text},)
    return Question(case.workload, (*messages, {"role": "user", "content": case.prompts[-1]}), case.raw)


Measured = dict[tuple[str, str], list[tuple[Answer, float | None]]]
"""by workload and contestant: answers, each with its ratio to plain llama-server"""


def measure(contestants: dict[str, Ask], cases: list[Case], tokens: int, repeats: int) -> Measured:
    """Answers of all contestants in turn; the first answers, which load models, are not counted."""
    numbers, found = count(1), Measured()
    for ask in contestants.values():
        ask(Question("", ({"role": "user", "content": "Hello"},), raw=False), 4)
    for case in cases:
        question = question_of(case, contestants[PLAIN], tokens)
        for _ in range(repeats):
            answers = {
                name: ask(question.numbered(next(numbers)), tokens) for name, ask in contestants.items()
            }
            plain = answers[PLAIN].rate
            for name, answer in answers.items():
                ratio = answer.rate / plain if answer.rate and plain else None
                found.setdefault((case.workload, name), []).append((answer, ratio))
    return found


def table(found: Measured) -> str:
    """The measurements as a table of medians."""
    lines = [f"{'workload':14}{'':34}{'tok/s':>8}{'ratio':>8}{'worst':>8}{'first text':>13}"]
    for (workload, name), answers in found.items():
        ratios = [ratio for _, ratio in answers if ratio is not None]
        rates = [answer.rate for answer, _ in answers if answer.rate is not None]
        if ratios:
            first = statistics.median(answer.first_ms for answer, _ in answers)
            figures = statistics.median(rates), statistics.median(ratios), min(ratios), first
            row = "{:8.1f}{:7.2f}x{:7.2f}x{:10.0f} ms".format(*figures)
            lines.append(f"{workload:14}{name:34}{row}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, default=bundled_model(BUNDLED_TARGET))
    parser.add_argument("--draft", type=Path, help="otherwise none, or the bundled one for the bundled model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workload", action="append", default=[])
    parser.add_argument("--only", action="append", default=[], help=f"a contestant, beside {PLAIN}")
    given = parser.parse_args()
    model, draft = given.model.resolve(), given.draft and given.draft.resolve()
    if model == bundled_model(BUNDLED_TARGET):
        draft = draft or bundled_model(BUNDLED_DRAFT)
    # The n-gram memory is localspec's alone.
    cases = [case for case in load_cases(tuple(given.workload)) if not case.taught]

    def takes_part(name: str) -> bool:
        return not given.only or name in (PLAIN, *given.only)

    with ExitStack() as stack:
        ours = stack.enter_context(our_server(model, draft, given.threads))
        contestants = {name: ask for name, ask in ours.items() if takes_part(name)}
        for setting in SETTINGS:
            name = f"llama-server {setting.name}"
            if takes_part(name) and (draft is not None or not setting.needs_draft):
                contestants[name] = stack.enter_context(their_server(setting, model, draft, given.threads))
        print(table(measure(contestants, cases, given.tokens, given.repeats)))


if __name__ == "__main__":
    main()
