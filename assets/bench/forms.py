"""Records or calls of tools: constrained answers of localspec, beside free ones and those of llama-server.

    python -m assets.bench.forms --model FILE.gguf [--draft FILE.gguf] [--calls] [--cases 20] [--turns 1]

The records of forms.toml, or its calls, are asked for by HTTP, greedily and one at a time, after their
prompt was read; the contestants take turns, each beginning in turn. A prompt names the record's form, so
that a free answer can have it; a free answer to tools may be a text. The table has medians of the seconds
of whole answers by the client's clock, of their tokens, of tokens a second of the whole, and of the ratio
of seconds to localspec's own answer of that form by ``auto``. Below it: milliseconds to the first text,
with a new schema and again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path
from string import ascii_letters
from typing import Any, NamedTuple

import psutil

from assets.bench.asking import Answer, Question, ask, one
from assets.bench.servers import LlamaServer, Server, http_daemon

CONTEXT, TOKENS = 4096, 256
CASES = Path(__file__).parent / "forms.toml"
AUTO, NONE = "localspec auto", "localspec none"
NGRAMS = ("--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "16", "--spec-ngram-mod-n-min", "2")
SIMPLE = {name: {"type": name} for name in ("string", "integer", "number", "boolean")}


class Case(NamedTuple):
    """``form``: the fields of a request that constrain its answer."""

    question: Question
    form: dict[str, Any]
    free: dict[str, Any]


def schema_of(form: Any) -> dict[str, Any]:
    """The JSON schema of a form, as forms.toml describes them."""
    if isinstance(form, dict):
        properties = {name: schema_of(each) for name, each in form.items()}
        needs = {"required": list(form), "additionalProperties": False}
        return {"type": "object", "properties": properties, **needs}
    if isinstance(form, list):
        return {"type": "array", "items": schema_of(form[0]), "minItems": 1, "maxItems": 5}
    return SIMPLE.get(form) or {"enum": form.split("|")}


def records(number: int) -> list[Case]:
    found = []
    for case in tomllib.loads(CASES.read_text("utf-8"))["case"][:number]:
        text = f"Write a JSON record of the form\n{case['form']}\nfrom this text:\n{case['text']}"
        schema = {"type": "json_schema", "json_schema": {"schema": schema_of(json.loads(case["form"]))}}
        found.append(Case(Question(one(text)), {"response_format": schema}, {}))
    return found


def calls(number: int) -> list[Case]:
    """Requests that must call one of the tools, and ones that may."""
    read = tomllib.loads(CASES.read_text("utf-8"))
    tools = [
        {"type": "function", "function": {**each, "parameters": schema_of(json.loads(each["parameters"]))}}
        for each in read["tool"]
    ]
    free = {"tools": tools, "parallel_tool_calls": False}
    return [
        Case(Question(one(each)), {**free, "tool_choice": "required"}, free)
        for each in read["calls"][:number]
    ]


class Contestant(NamedTuple):
    """A server with settings of its requests; ``of_form``: whether they ask for the form."""

    server: Server
    fields: dict[str, Any]
    of_form: bool = True

    def answer(self, case: Case) -> Answer:
        return ask(
            self.server, case.question, TOKENS, **(case.form if self.of_form else case.free), **self.fields
        )


def contestants(stack: ExitStack, given: argparse.Namespace) -> dict[str, Contestant]:
    """The servers of all settings, started."""
    model, draft = given.model.resolve(), "none" if given.draft is None else str(given.draft.resolve())
    config = f'[options]\nmodel = "{model}"\ndraft = "{draft}"\nremember = false\n'
    config += f"[engine]\nn_ctx = {CONTEXT}\nthreads = {given.threads}\n"
    daemon, _ = stack.enter_context(http_daemon(config, [(str(model), draft, CONTEXT)]))
    auto, none = ({"localspec": {"proposer": each}} for each in ("auto", "none"))
    found = {
        AUTO: Contestant(daemon, auto),
        NONE: Contestant(daemon, none),
        f"{NONE}, free": Contestant(daemon, none, of_form=False),
    }
    sizes = ("--ctx-size", str(CONTEXT), "--threads", str(given.threads))
    for name, more in (("plain", ()), ("ngram-mod", NGRAMS)):
        server = stack.enter_context(LlamaServer(model, (*sizes, *more))).server
        # Its grammar for a required call also allows a text that never ends.
        found[f"llama-server {name}"] = Contestant(server, {}, of_form=not given.calls)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 2)
    given = parser.parse_args()
    asked, runs = (calls if given.calls else records)(given.cases), dict[str, list[Answer]]()
    firsts: dict[str, list[float]] = {}
    with ExitStack() as stack:
        all_of = contestants(stack, given)
        names = list(all_of)
        for each in all_of.values():
            each.answer(asked[-1])  # loads models, and is not counted
        for turn in range(given.turns):
            for number, case in enumerate(asked):
                for server in {each.server.address: each.server for each in all_of.values()}.values():
                    ask(server, case.question, 1, **case.free)
                first, is_new = (turn + number) % len(names), turn == 0 and not given.calls
                for name in (*names[first:], *names[:first]):
                    one_of = all_of[name]
                    runs.setdefault(name, []).append(answer := one_of.answer(case))
                    if name in (AUTO, NONE):
                        name = "localspec, a new schema" if is_new else "localspec, the same again"
                        is_new = False
                    firsts.setdefault(name, []).append(answer.first_ms)
                took = " ".join(f"{runs[name][-1].seconds:.2f}" for name in names)
                print(f"{turn + 1}.{number + 1}: {took}", file=sys.stderr, flush=True)
    print(
        f"\n{'':24}{'seconds':>9}{'tokens':>8}{'tok/s':>8}{'ratio':>8}{'least':>8}{'most':>8}{'valid':>8}{'equal':>8}"
    )
    for name in names:
        print(row(name, runs[name], runs))
    print("\nms to the first text, median and most")
    for name, times in firsts.items():
        print(f"{name:28}{statistics.median(times):8.0f}{max(times):8.0f}")


def row(name: str, answers: list[Answer], runs: dict[str, list[Answer]]) -> str:
    """Medians; the ratio with its extremes; how many answers are JSON, and equal those by ``none``."""
    ratios = [each.seconds / own.seconds for each, own in zip(answers, runs[AUTO], strict=True)]
    seconds, tokens = (statistics.median(getattr(a, of) for a in answers) for of in ("seconds", "tokens"))
    pace = statistics.median(a.tokens / a.seconds for a in answers)
    figures = "".join(f"{each:8.2f}" for each in (statistics.median(ratios), min(ratios), max(ratios)))
    plain = runs[NONE]
    equal = f"{sum(a.text == b.text for a, b in zip(answers, plain, strict=True))}/{len(answers)}"
    valid = f"{sum(is_json(a.text) for a in answers)}/{len(answers)}"
    return f"{name:24}{seconds:9.2f}{tokens:8.0f}{pace:8.1f}{figures}{valid:>8}{equal:>8}"


def is_json(text: str) -> bool:
    """True if the text is a JSON object, or the name of a tool followed by one."""
    try:
        return isinstance(json.loads(text.lstrip(ascii_letters + "_")), dict)
    except ValueError:
        return False


if __name__ == "__main__":
    main()
