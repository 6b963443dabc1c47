"""Records out of texts: answers of a JSON schema by localspec, beside free ones and llama-server's.

    python -m assets.bench.forms --model FILE.gguf [--draft FILE.gguf] [--cases 20] [--turns 1]

The records of forms.toml are asked for by HTTP, greedily and one at a time; the contestants take turns,
beginning with another one each time. A prompt names the record's form, so that a free answer can have it. The
table has medians of the seconds of whole answers by the client's clock, of their tokens, and of the ratio of
seconds to localspec's own constrained answer by ``auto``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from assets.bench.asking import Answer, Question, ask, one
from assets.bench.servers import LlamaServer, http_daemon

CONTEXT, TOKENS = 4096, 256
CASES = Path(__file__).parent / "forms.toml"
AUTO = "localspec auto"
NGRAMS = ("--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "16", "--spec-ngram-mod-n-min", "2")
SIMPLE = {name: {"type": name} for name in ("string", "integer", "number", "boolean")}


class Record(NamedTuple):
    question: Question
    schema: dict[str, Any]


def schema_of(form: Any) -> dict[str, Any]:
    """The JSON schema of a form, as forms.toml describes them."""
    if isinstance(form, dict):
        properties = {name: schema_of(each) for name, each in form.items()}
        needs = {"required": list(form), "additionalProperties": False}
        return {"type": "object", "properties": properties, **needs}
    if isinstance(form, list):
        return {"type": "array", "items": schema_of(form[0]), "minItems": 1, "maxItems": 5}
    return SIMPLE.get(form) or {"enum": form.split("|")}


def records(number: int) -> list[Record]:
    found = []
    for case in tomllib.loads(CASES.read_text("utf-8"))["case"][:number]:
        text = f"Write a JSON record of the form\n{case['form']}\nfrom this text:\n{case['text']}"
        found.append(Record(Question(one(text)), schema_of(json.loads(case["form"]))))
    return found


def contestants(stack: ExitStack, given: argparse.Namespace) -> dict[str, Callable[[Record], Answer]]:
    """The servers of all settings, started; each answers a record."""
    model, draft = given.model.resolve(), "none" if given.draft is None else str(given.draft.resolve())
    config = f'[options]\nmodel = "{model}"\ndraft = "{draft}"\nremember = false\n'
    config += f"[engine]\nn_ctx = {CONTEXT}\nthreads = {given.threads}\n"
    daemon, _ = stack.enter_context(http_daemon(config, [(str(model), draft, CONTEXT)]))

    def ours(record: Record, *, proposer: str, free: bool = False) -> Answer:
        own: dict[str, Any] = {"proposer": proposer} | ({} if free else {"schema": record.schema})
        return ask(daemon, record.question, TOKENS, localspec=own)

    found: dict[str, Callable[[Record], Answer]] = {
        AUTO: partial(ours, proposer="auto"),
        "localspec none": partial(ours, proposer="none"),
        "localspec none, free": partial(ours, proposer="none", free=True),
    }
    sizes = ("--ctx-size", str(CONTEXT), "--threads", str(given.threads))
    for name, more in (("plain", ()), ("ngram-mod", NGRAMS)):
        server = stack.enter_context(LlamaServer(model, (*sizes, *more))).server

        def theirs(record: Record, server: Any = server) -> Answer:
            return ask(server, record.question, TOKENS, json_schema=record.schema)

        found[f"llama-server {name}"] = theirs
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 2)
    given = parser.parse_args()
    asked, runs = records(given.cases), dict[str, list[Answer]]()
    with ExitStack() as stack:
        servers = contestants(stack, given)
        names = list(servers)
        for name in names:
            servers[name](asked[0])  # loads models, and is not counted
        for turn in range(given.turns):
            for number, record in enumerate(asked):
                first = (turn + number) % len(names)
                for name in (*names[first:], *names[:first]):
                    runs.setdefault(name, []).append(servers[name](record))
                print(f"{turn + 1}.{number + 1}", end=" ", file=sys.stderr, flush=True)
    print(f"\n{'':24}{'seconds':>9}{'tokens':>8}{'ratio':>8}{'least':>8}{'most':>8}{'valid':>8}{'equal':>8}")
    for name in names:
        print(row(name, runs[name], runs))


def row(name: str, answers: list[Answer], runs: dict[str, list[Answer]]) -> str:
    """Medians; the ratio with its extremes; how many answers are JSON, and equal those by ``none``."""
    ratios = [each.seconds / own.seconds for each, own in zip(answers, runs[AUTO], strict=True)]
    seconds, tokens = (statistics.median(getattr(a, of) for a in answers) for of in ("seconds", "tokens"))
    figures = "".join(f"{each:8.2f}" for each in (statistics.median(ratios), min(ratios), max(ratios)))
    plain = runs["localspec none"]
    equal = f"{sum(a.text == b.text for a, b in zip(answers, plain, strict=True))}/{len(answers)}"
    valid = f"{sum(is_json(a.text) for a in answers)}/{len(answers)}"
    return f"{name:24}{seconds:9.2f}{tokens:8.0f}{figures}{valid:>8}{equal:>8}"


def is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


if __name__ == "__main__":
    main()
