"""Two models at work at once: in one localspec daemon, and in two llama-servers.

    python -m assets.bench.together --small FILE.gguf --large FILE.gguf

The small model answers with 160 tokens alone, beside a program that keeps a core busy, and while the large
one measures itself (localspec only), answers, and reads a prompt of 8 kB. Then it fills a gap with 24 tokens,
20 times, while the large one chats. All decode plainly. Rates are tokens a second by the client's clock from
the first text to the last. ``until idle``: the processor time that the daemon's processes took from the first
answers on, with that of the answer before.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psutil

import localspec
from assets.bench.asking import GAP, Answer, Question, ask, one
from assets.bench.servers import LlamaServer, busy, daemon_pid, http_daemon

CONTEXT, TOKENS, GAP_TOKENS, TIMES = 4096, 160, 24, 20
PROMPT_CHARS = 8 << 10
LOOK_S, WORK_S, IDLE_S, MOST_S = 0.25, 10.0, 15.0, 180.0
"""of a look at the processes; at most until they measure; without work, when idle; at most until then"""
WORKING = 0.3
"""of a core: above it the processes are at work"""
ESSAY = Question(one("Write a long essay about the history of the bicycle."))
CODE = Question(
    one(f"def mean(values):\n    {GAP}\n\n\ndef median(values):\n    ordered = sorted(values)\n"), "fim"
)

Put = Callable[[Question, int], Answer]


class Models:
    """The small model and the large one, each asked with prompts that no cache has."""

    def __init__(self, small: Put, large: Put) -> None:
        self._numbers = itertools.count(1)
        self._small, self._large = small, large

    def small(self, question: Question = ESSAY, tokens: int = TOKENS) -> Answer:
        return self._small(question.numbered(next(self._numbers)), tokens)

    def large(self, question: Question = ESSAY, tokens: int = TOKENS) -> Answer:
        return self._large(question.numbered(next(self._numbers)), tokens)


@contextmanager
def meanwhile(work: Callable[[], Answer]) -> Iterator[list[Answer]]:
    """Do this again and again in another thread, until the body has ended; its answers, the last of which may
    have been alone towards its end."""
    done, found = threading.Event(), list[Answer]()

    def repeat() -> None:
        while not done.is_set():
            found.append(work())

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        time.sleep(1)
        yield found
    finally:
        done.set()
        thread.join()


def scenes(models: Models, report: Callable[[str, str], None]) -> None:
    """All that both kinds of servers can do."""
    report("alone", rates([models.small()]))
    report("the large one alone", rates([models.large()]))
    with busy(1):
        report("beside a busy program", rates([models.small()]))
    with meanwhile(models.large) as others:
        small = models.small()
    report("while the large one answers", f"{rates([small])}, the large one {rates(others)}")
    source = Path(localspec.__file__).parent.joinpath("engine", "engine.py").read_text("utf-8")
    with meanwhile(partial(models.large, Question(one(source[:PROMPT_CHARS])), 1)):
        small = models.small()
    report("while the large one reads 8 kB", rates([small]))
    report("a gap, alone", times([models.small(CODE, GAP_TOKENS) for _ in range(TIMES)]))
    with meanwhile(models.large) as others:
        gaps = [models.small(CODE, GAP_TOKENS) for _ in range(TIMES)]
    report("a gap, while the large one chats", f"{times(gaps)}, the large one {rates(others)}")


def rates(answers: list[Answer]) -> str:
    """The median of their tokens a second, and of the time to the first text."""
    found = [answer.rate for answer in answers if answer.rate]
    first = statistics.median(answer.first_ms for answer in answers)
    return f"{statistics.median(found):.1f} tok/s (first text {first:.0f} ms)" if found else "no rate"


def times(answers: list[Answer]) -> str:
    """The median of their times, and the time within which 19 of 20 came."""
    ms = sorted(1000 * answer.seconds for answer in answers)
    return f"median {statistics.median(ms):.0f} ms, 19 of 20 within {ms[(len(ms) * 19 - 1) // 20]:.0f} ms"


def worked_s(daemon: int) -> float:
    """Seconds of processor time of a daemon's processes."""
    spent = (process.cpu_times() for process in psutil.Process(daemon).children(recursive=True))
    return sum(each.user + each.system for each in spent)


def is_working(daemon: int) -> bool:
    """Look at a daemon's processes for a moment."""
    spent = worked_s(daemon)
    time.sleep(LOOK_S)
    return worked_s(daemon) - spent > WORKING * LOOK_S


def idle_since(daemon: int) -> float:
    """Wait until a daemon's processes have done nothing for a while; the time at which they last worked."""
    began = last = time.monotonic()
    while (now := time.monotonic()) - last < IDLE_S and now - began < MOST_S:
        if is_working(daemon):
            last = time.monotonic()
    return last


def ours(small: Path, large: Path, report: Callable[[str, str], None]) -> None:
    """One daemon, at first with models that were not measured."""
    config = f'[options]\nmodel = "{small}"\ndraft = "none"\n[engine]\nn_ctx = {CONTEXT}\n'
    with http_daemon(config) as (server, _):
        daemon = daemon_pid()
        put = partial(ask, server, localspec={"proposer": "none", "remember": False})
        models = Models(partial(put, model=str(small)), partial(put, model=str(large)))
        models.small(tokens=4), models.large(tokens=4)
        spent, answered = worked_s(daemon), time.monotonic()
        while not (measures := is_working(daemon)) and time.monotonic() - answered < WORK_S:
            pass
        scene = "while a model measures itself" if measures else f"{WORK_S:.0f} s later, none at work"
        report(scene, rates([models.small()]))
        took = idle_since(daemon) - answered
        report("until idle", f"{worked_s(daemon) - spent:.1f} s of processor time within {took:.0f} s")
        scenes(models, report)


def beside(small: Path, large: Path, report: Callable[[str, str], None]) -> None:
    """Two llama-servers."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(LlamaServer(model, ("--ctx-size", str(CONTEXT)))).server
            for model in (small, large)
        ]
        models = Models(*(partial(ask, server) for server in servers))
        models.small(tokens=4), models.large(tokens=4)
        scenes(models, report)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", type=Path, required=True)
    parser.add_argument("--large", type=Path, required=True)
    given = parser.parse_args()
    models = given.small.resolve(), given.large.resolve()
    for name, run in (("localspec", ours), ("llama-server", beside)):
        print(f"\n{name}: the small model")
        run(*models, lambda scene, found: print(f"  {scene:42}{found}", flush=True))


if __name__ == "__main__":
    main()
