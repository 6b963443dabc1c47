"""Plain decoding through the daemon against plain llama-server, alternately, behind short and long prompts.

    python -m assets.bench.plain --model FILE.gguf [--model FILE.gguf] [--pairs 8] [--busy 1]

Both continue the same text, the source of localspec, which is in their caches when the answers are measured.
The table has tokens a second by the client's clock, medians, and the median, least and greatest ratio of a
pair of answers. ``--busy``: beside so many programs that each keep a core busy.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil

import localspec
from assets.bench.asking import Answer, Question, ask, one
from assets.bench.servers import LlamaServer, busy, http_daemon

CONTEXT, TOKENS = 8192, 64
CHARS_PER_TOKEN = 4
LENGTHS = (200, 4000)
"""tokens of the prompt, about"""


def prompt_of(tokens: int) -> Question:
    engine = Path(localspec.__file__).parent.joinpath("engine")
    source = "".join(path.read_text("utf-8") for path in sorted(engine.glob("*.py")))
    return Question(one(source[: tokens * CHARS_PER_TOKEN]), "raw")


def pairs_of(model: Path, length: int, pairs: int, threads: int) -> Iterator[tuple[Answer, Answer]]:
    """The answers of localspec and llama-server; each begins every other pair."""
    config = (
        f'[options]\nmodel = "{model}"\ndraft = "none"\n[engine]\nn_ctx = {CONTEXT}\nthreads = {threads}\n'
    )
    sizes = ("--ctx-size", str(CONTEXT), "--threads", str(threads))
    question, own = prompt_of(length), {"proposer": "none", "remember": False}
    with ExitStack() as stack:
        daemon, _ = stack.enter_context(http_daemon(config, [(str(model), "none", CONTEXT)]))
        ours = partial(ask, daemon, question, localspec=own)
        theirs = partial(ask, stack.enter_context(LlamaServer(model, sizes)).server, question)
        ours(1), theirs(1)
        for number in range(pairs):
            both = (ours, theirs) if number % 2 else (theirs, ours)
            answers = {each: each(TOKENS) for each in both}
            yield answers[ours], answers[theirs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", required=True)
    parser.add_argument("--length", type=int, action="append", help="tokens of the prompt, about")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 2)
    given = parser.parse_args()
    print(f"{'':44}{'prompt':>7}{'ours':>8}{'theirs':>8}{'ratio':>8}{'least':>8}{'most':>8}{'equal':>8}")
    for model in given.model:
        for length in given.length or LENGTHS:
            with busy(given.busy):
                found = list(pairs_of(model.resolve(), length, given.pairs, given.threads))
            print(row(f"{model.stem[:43]:44}{length:7}", found), flush=True)


def row(head: str, pairs: list[tuple[Answer, Answer]]) -> str:
    """Medians of the rates and of their ratio, its least and greatest value, and how many texts are equal."""
    rates = [(ours.rate, theirs.rate) for ours, theirs in pairs if ours.rate and theirs.rate]
    if not rates:
        return f"{head}  no answer had two pieces"
    ratios = [ours / theirs for ours, theirs in rates]
    ours, theirs = (statistics.median(side) for side in zip(*rates, strict=True))
    figures = "".join(f"{each:8.2f}" for each in (statistics.median(ratios), min(ratios), max(ratios)))
    equal = f"{sum(a.text == b.text for a, b in pairs)}/{len(pairs)}"
    return f"{head}{ours:8.1f}{theirs:8.1f}{figures}{equal:>8}"


if __name__ == "__main__":
    main()
