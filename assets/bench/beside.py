"""localspec beside llama.cpp's own server, request by request in turn.

    python -m assets.bench.beside --model FILE.gguf [--draft FILE.gguf] [--json FILE] [--markdown]
    python -m assets.bench.beside --model FILE.gguf --sweep [KIND ...]
    python -m assets.bench.beside --show FILE [--markdown]

The cases of prompts.toml are streamed by HTTP, greedily and one request at a time, from a localspec daemon
and from a llama-server for each of its settings, with the same threads and context. The contestants take
turns, beginning with another one each time. In a conversation all go on from plain llama-server's answers,
so that their prompts are alike. Each conversation begins with a number of its own, so that no cache of
prompts helps but that of its earlier turns; as localspec's proposers share a daemon, only the first of them
in a turn gives its time to the first text. Contestants remember between requests as they do by default:
localspec's memory learns, in a workspace of each proposer's own, and ngram-mod keeps its table. With
``--repeats`` they meet texts again that they have answered before. The first answers, which load models, are
not counted. Workloads are interleaved, so that each has runs when ``--minutes`` or Ctrl-C ends the run.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import psutil

from assets.bench.asking import Answer, Kind, Message, Question, ask, one
from assets.bench.results import AGAIN, PLAIN, Results, Run, by_turn, markdown, table, verdict
from assets.bench.servers import LlamaServer, Server, http_daemon
from localspec.models.catalogue import BUNDLED_TARGET, bundled_model
from localspec.models.machine import processor_name

CONTEXT = 4096
CASES = Path(__file__).parent / "prompts.toml"
OURS, THEIRS = "localspec ", "llama-server "
PROPOSERS = {"none": None, "auto": None, "prompt-lookup": None, "memory": None, "draft": 3}
"""localspec's proposers, and their ``k``: without it the draft model is not used where it costs time"""
ARGUMENTS = {
    "plain": (),
    "ngram-simple": ("ngram-simple-size-n", "ngram-simple-size-m"),
    "ngram-map-k": ("ngram-map-k-size-n", "ngram-map-k-size-m", "ngram-map-k-min-hits"),
    "ngram-map-k4v": ("ngram-map-k4v-size-n", "ngram-map-k4v-size-m", "ngram-map-k4v-min-hits"),
    "ngram-mod": ("ngram-mod-n-match", "ngram-mod-n-min", "ngram-mod-n-max"),
    "ngram-cache": (),
    "draft-simple": ("draft-n-max",),
}
"""kinds of llama-server's speculation, and the arguments (``--spec-…``) of which a setting has the values"""
SETTINGS = (
    "plain",
    "ngram-simple 4/16",
    "ngram-map-k 12/48",
    "ngram-map-k4v 8/8/2",
    "ngram-mod 16/4/32",
    "ngram-cache",
    "draft-simple 3",
)
SWEPT = 4
SWEEP = {
    "ngram-simple": ("12/48", "3/8", "4/16", "6/16", "8/32"),
    "ngram-map-k": ("12/48", "3/8", "4/16", "6/16", "8/32"),
    "ngram-map-k4v": ("12/48", "8/8/2", "3/8", "4/16", "6/16"),
    "ngram-mod": ("24/48/64", "16/2/16", "12/2/16", "8/2/8", "16/4/32"),
    "draft-simple": ("2", "3", "5", "8"),
}
"""settings that ``--sweep`` compares, and the number of edits by which it does, unless others are chosen"""
FORGETFUL = ("none", "prompt-lookup", "draft", "plain", "ngram-simple", "draft-simple")
"""kinds that keep nothing of earlier texts, which are not taught"""
MEMORY = {"file": 1.3, "more": 1 << 30}
"""of a llama-server: its repacked weights, as a multiple of the file, and bytes of caches and buffers"""


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One case of ``prompts.toml``."""

    workload: str
    prompts: tuple[str, ...]
    kind: Kind = "chat"
    taught: tuple[str, ...] = ()
    taught_by: Literal["model", "draft"] = "model"
    tokens: int | None = None


class Contestant(NamedTuple):
    """A server, and the fields of its requests; ``name`` is the server's and that of a setting."""

    name: str
    server: Server
    fields: dict[str, Any]

    @property
    def kind(self) -> str:
        return self.name.split()[1]

    def answer(self, question: Question, tokens: int) -> Answer:
        return ask(self.server, question, tokens, **self.fields)


class Place(NamedTuple):
    """The models of all contestants, and their threads."""

    model: Path
    draft: Path | None
    threads: int


def load_cases(workloads: Sequence[str] = ()) -> list[Case]:
    """The cases of these workloads, or all, the first ones of each first; SystemExit for an unknown one."""
    cases = msgspec.convert(tomllib.loads(CASES.read_text("utf-8"))["case"], list[Case])
    known = list(dict.fromkeys(case.workload for case in cases))
    if unknown := set(workloads) - set(known):
        raise SystemExit(
            f"unknown workloads: {', '.join(sorted(unknown))}. Choose among: {', '.join(known)}."
        )
    each = ([case for case in cases if case.workload == name] for name in workloads or known)
    return [case for some in itertools.zip_longest(*each) for case in some if case is not None]


def arguments_of(setting: str, draft: Path | None) -> tuple[str, ...]:
    """The arguments of a setting, as ``ngram-simple 3/8``; its values in the order of ``ARGUMENTS``."""
    kind, _, values = setting.partition(" ")
    if kind in ("plain", "plain again"):
        return ()
    pairs = zip(ARGUMENTS[kind], values.split("/") if values else (), strict=False)
    drafting = ("--model-draft", str(draft)) if kind == "draft-simple" else ()
    return ("--spec-type", kind, *drafting, *(word for name, n in pairs for word in (f"--spec-{name}", n)))


def names_for(only: Sequence[str], draft: Path | None) -> list[str]:
    """The contestants, with plain llama-server once more at the end; SystemExit for an unknown one."""
    every = [*(OURS + name for name in PROPOSERS), *(THEIRS + name for name in SETTINGS)]
    for name in only:
        head, _, setting = name.partition(" ")
        if name not in (*every, AGAIN) and (head != THEIRS.strip() or setting.split()[0] not in ARGUMENTS):
            raise SystemExit(f"unknown contestant: {name!r}. Choose among: {', '.join(every)}.")
    chosen = [name for name in only or every if draft is not None or "draft" not in name]
    return [*(name for name in dict.fromkeys(chosen) if name not in (PLAIN, AGAIN)), PLAIN, AGAIN]


@contextmanager
def contestants(names: Sequence[str], place: Place) -> Iterator[list[Contestant]]:
    """The contestants of these names, as many as fit into memory, plain llama-server first."""
    with ExitStack() as stack:
        found = []
        if ours := [name for name in names if name.startswith(OURS)]:
            found += stack.enter_context(our_contestants(ours, place))
        for name in sorted((each for each in names if each.startswith(THEIRS)), key=PLAIN.__ne__):
            if psutil.virtual_memory().available < needed(place.model):
                note(f"{name} is left out: there is no memory for one more server. Try fewer by --only.")
                continue
            server = stack.enter_context(their_server(name.removeprefix(THEIRS), place)).server
            found.append(Contestant(name, server, {}))
        yield sorted(found, key=lambda contestant: names.index(contestant.name))


def needed(model: Path) -> float:
    """Bytes that a llama-server needs beside the file, which all share."""
    return MEMORY["file"] * model.stat().st_size + MEMORY["more"]


@contextmanager
def our_contestants(names: Sequence[str], place: Place) -> Iterator[list[Contestant]]:
    """A daemon's proposers, each with a memory of its own."""
    draft = "none" if place.draft is None else str(place.draft)
    config = f'[options]\nmodel = "{place.model}"\ndraft = "{draft}"\n'
    config += f"[engine]\nn_ctx = {CONTEXT}\nthreads = {place.threads}\n"
    pairs = [(str(place.model), draft, CONTEXT)]
    if place.draft is not None:
        pairs.append((draft, "none", CONTEXT))
    with http_daemon(config, pairs) as (server, home):
        found = []
        for name in names:
            proposer = name.removeprefix(OURS)
            workspace = home / "workspaces" / proposer
            (workspace / ".git").mkdir(parents=True)
            own = {"proposer": proposer, "workspace": str(workspace), "k": PROPOSERS[proposer]}
            found.append(Contestant(name, server, {"localspec": own}))
        yield found


def their_server(setting: str, place: Place) -> LlamaServer:
    sizes = ("--ctx-size", str(CONTEXT), "--threads", str(place.threads))
    return LlamaServer(place.model, (*sizes, *arguments_of(setting, place.draft)))


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def teach(contestant: Contestant, case: Case, place: Place, tokens: int) -> None:
    """Let a contestant that remembers answer the texts that go before a case."""
    by_draft = case.taught_by == "draft"
    if contestant.kind in FORGETFUL or (by_draft and not contestant.name.startswith(OURS)):
        return
    fields = contestant.fields
    if by_draft:
        own = {**fields["localspec"], "draft": "none", "proposer": "none"}
        fields = {"model": str(place.draft), "localspec": own}
    for text in case.taught:
        contestant._replace(fields=fields).answer(Question(one(text)), tokens)


def runs_of(
    every: list[Contestant], cases: list[Case], place: Place, tokens: int, repeats: int
) -> Iterator[Run]:
    """Runs of all contestants in turn."""
    numbers = itertools.count(1)
    for contestant in every:
        contestant.answer(Question(one("Hello")), 4)
    for repeat, (number, case) in itertools.product(range(repeats), enumerate(cases)):
        if case.taught_by == "draft" and place.draft is None:
            continue
        for contestant in every:
            teach(contestant, case, place, case.tokens or tokens)
        mark, messages = next(numbers), tuple[Message, ...]()
        for turn, prompt in enumerate(case.prompts):
            messages, said, asked = (*messages, *one(prompt)), "", set[str]()
            first = (number + turn + repeat) % len(every)
            for contestant in (*every[first:], *every[:first]):
                question = Question(messages, case.kind).numbered(mark)
                answer = contestant.answer(question, case.tokens or tokens)
                said = answer.text if contestant.name == PLAIN else said
                fresh = contestant.server.address not in asked
                asked.add(contestant.server.address)
                yield Run(case.workload, number, turn, repeat, contestant.name, fresh, answer)
            messages = (*messages, Message("assistant", said))


def watched(runs: Iterable[Run], until: float, file: Path | None) -> list[Run]:
    """The runs until that time or Ctrl-C, each written to ``file`` as it comes."""
    found: list[Run] = []
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        lines = None if file is None else stack.enter_context(file.open("ab", buffering=0))
        for run in runs:
            found.append(run)
            if lines:
                lines.write(msgspec.json.encode(run) + b"\n")
            rate = f"{run.answer.rate or 0:.1f} tok/s, {run.answer.tokens} tokens"
            note(f"{run.workload} {run.case + 1}.{run.turn + 1}  {run.contestant}: {rate}")
            if time.monotonic() > until:
                note("The time is up: what is left of the cases is not measured.")
                break
    return found


def read(file: Path) -> list[Run]:
    """The runs of a file that ``--json`` wrote; its first line describes the machine."""
    return [msgspec.json.decode(line, type=Run) for line in file.read_bytes().splitlines()[1:]]


def sweep(kinds: Sequence[str], place: Place, tokens: int, cases: list[Case]) -> None:
    """Compare the settings of each kind, and name the best."""
    for kind in kinds or SWEEP:
        names = [f"{THEIRS}{kind} {sizes}" for sizes in SWEEP[kind]]
        with contestants(names_for(names, place.draft), place) as every:
            results = Results(watched(runs_of(every, cases, place, tokens, 1), float("inf"), None))
        print(table(results))
        ratios = {
            name: results.ratios([r for r in results.runs if r.contestant == name], PLAIN) for name in names
        }
        mean = {name: sum(each) / len(each) for name, each in ratios.items() if each}
        if mean:
            best = max(mean, key=mean.__getitem__)
            print(f"best of {kind}: {best.removeprefix(THEIRS)}, {mean[best]:.2f}x on average\n", flush=True)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, default=bundled_model(BUNDLED_TARGET))
    parser.add_argument("--draft", type=Path, help="otherwise nothing is measured with a draft model")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 2)
    parser.add_argument("--tokens", type=int, default=96, help="of an answer, where its case does not say")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30.0, help="after which no more is measured")
    parser.add_argument("--cases", type=int, help="only so many")
    parser.add_argument("--workload", action="append", default=[])
    parser.add_argument("--only", action="append", default=[], help=f"a contestant, beside {PLAIN}")
    parser.add_argument(
        "--sweep", nargs="*", choices=list(SWEEP), help="compare settings of these kinds, or of all"
    )
    parser.add_argument("--json", type=Path, help="a file for every run, one on a line")
    parser.add_argument("--show", type=Path, help="print the tables of such a file; nothing is measured")
    parser.add_argument("--markdown", action="store_true", help="print the table as the documentation has it")
    return parser.parse_args()


def main() -> None:
    given = parsed()
    place = Place(given.model.resolve(), given.draft and given.draft.resolve(), given.threads)
    if given.sweep is not None:
        cases = load_cases(given.workload or ["edit"])[: given.cases or SWEPT]
        sweep(given.sweep, place, given.tokens, cases)
        return
    if given.show is not None:
        runs = read(given.show)
    else:
        cases = load_cases(given.workload)[: given.cases]
        if given.json is not None:
            facts = {"machine": processor_name(), "system": platform.platform(), "model": place.model.name}
            more = {
                "draft": place.draft and place.draft.name,
                "threads": place.threads,
                "tokens": given.tokens,
            }
            given.json.write_bytes(msgspec.json.encode({**facts, **more}) + b"\n")
        with contestants(names_for(given.only, place.draft), place) as every:
            until = time.monotonic() + 60 * given.minutes
            runs = watched(runs_of(every, cases, place, given.tokens, given.repeats), until, given.json)
    results = Results(runs)
    shown = (markdown,) if given.markdown else (table, by_turn)
    print("\n\n".join(filter(None, (show(results) for show in (*shown, verdict)))))


if __name__ == "__main__":
    main()
