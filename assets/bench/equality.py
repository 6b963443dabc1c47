"""Equality, counted: answers with speculation beside plain ones from a cold cache, token by token.

    python -m assets.bench.equality --model MODEL [--draft MODEL] --out FILE.jsonl [--seconds 200]

Every prompt is answered plainly, greedily and with a seed, in every mode; then by every proposer,
in one of four ways that take turns: from a cold cache, again over the cells of the last answer, as a second
turn over them, and in a batch with the others. Drafts have a forced length, those of ``auto`` its own. Groups
of four prompts are appended to ``--out`` as they end; the same command continues behind them. The exit
status is 1 if a text differs from the plain one of its mode that was ``strict``, or whose receipt says
``exact``.

``--nodes local`` has an MLX model answer over a second process, and compares its plain greedy texts with
those of one process too: they may differ where the two best tokens are ``--close``.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from itertools import islice, product, takewhile
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from localspec.backends.base import Backend, Span, top_margin
from localspec.bench.run import Order, answer, open_engine, rest
from localspec.engine.engine import Engine
from localspec.engine.load import Progressed, choose_here, load_engine
from localspec.engine.sequence import Sequence as Generation
from localspec.errors import LocalspecError
from localspec.models.model import Model
from localspec.protocol.options import AUTO, KINDS, NONE, Options, parse_options
from localspec.protocol.requests import (
    ChatPrompt,
    EngineConfig,
    FimPrompt,
    Message,
    Prompt,
    Request,
    TextPrompt,
)
from localspec.ranks.backend import open_over_nodes

GROUP = 4
CONFIG = EngineConfig(n_ctx=2048, parallel=GROUP, prefill_chunk=32)
MODULES = "textwrap shutil json.decoder string inspect heapq bisect calendar ast tokenize csv copy random"
PROPOSERS = (NONE, *(kind.name for kind in KINDS), AUTO)
LENGTHS = 2, 3, 7, 12
"""tokens of a draft, by group"""
SAMPLINGS = {"greedy": Options(temperature=0.0), "seeded": Options(temperature=0.7, top_p=0.95, seed=7)}
MODES = "strict", "auto"
WAYS = "cold", "again", "second turn", "batch"
QUESTIONS = (
    "What does Python's `{name}` do?",
    "Add type hints to this function and return all of it:\n```python\n{source}```",
    "Give the parameters of this function as a JSON list of name and default:\n```python\n{source}```",
)
OUTCOMES = "equal exact", "equal near-ties", "differ near-ties", "differ exact"


def prompts(*, gaps: bool) -> Iterator[Prompt]:
    """All prompts: questions, edits, JSON, halves of code and, if the model has ``gaps``, gaps."""
    for module in map(import_module, MODULES.split()):
        for name, function in sorted(vars(module).items()):
            if not inspect.isfunction(function) or function.__module__ != module.__name__:
                continue
            source = textwrap.dedent(inspect.getsource(function))
            if 100 < len(source) < 400:
                for text in QUESTIONS:
                    yield ChatPrompt((Message("user", text.format(name=name, source=source)),))
                yield TextPrompt(source[: len(source) // 2])
                before, line, behind = source.partition(max(source.splitlines(), key=len))
                yield FimPrompt(before, behind) if gaps else TextPrompt(before + line)


def length(prompt: Prompt) -> int:
    """Its characters, without those of a template."""
    match prompt:
        case ChatPrompt():
            return sum(len(message.content) for message in prompt.messages)
        case FimPrompt():
            return len(prompt.prefix + prompt.suffix)
        case TextPrompt():
            return len(prompt.text)
    raise TypeError(f"no prompt of a text: {prompt!r}")


def played(engine: Engine, asked: Sequence[Prompt], options: Options, way: str = "cold") -> list[Generation]:
    """Answer prompts one after the other, or all at once; raises the first error."""
    found = []
    if way == "batch":
        found = [engine.submit(Request(prompt=p, options=options, priority="chat")) for p in asked]
        while engine.step():
            pass
        rest(engine)
        assert not any(sequence.error for sequence in found)
    for prompt in asked[len(found) :]:
        if way == "cold":
            engine._prefixes.forget("run")
        found.append(answer(engine, prompt, options)[0])
    return found


def compare(
    engine: Engine, alone: Engine | None, number: int, group: Sequence[Prompt], given: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Play a group; yield a line for each answer. ``alone``: the same model in one process."""
    for (name, sampling), mode in product(SAMPLINGS.items(), given.modes):
        asked = {"proposer": NONE, "exactness": mode, "max_tokens": given.tokens}
        plain = parse_options(asked).over(sampling)
        first = played(engine, group, plain)
        if alone is not None and name == "greedy":
            for said, own in zip(first, played(alone, group, plain), strict=True):
                what = {"group": number, "what": f"{mode} one process", "way": "one process"}
                yield {**what, **difference(alone, said.tokens, own.tokens, given.close)}
        later = [after(*both) for both in zip(group, first, strict=True)]
        second = list[Generation]()
        for place, proposer in enumerate(given.proposers):
            way = WAYS[(number + place) % len(WAYS)]
            k = {} if proposer in (NONE, AUTO) else {"k": LENGTHS[number // len(WAYS) % len(LENGTHS)]}
            options = parse_options({"proposer": proposer, **k}).over(plain)
            if way == "second turn":
                second = second or played(engine, later, plain)
                played(engine, group, options)
            prompts, truth = (later, second) if way == "second turn" else (group, first)
            for said, own in zip(played(engine, prompts, options, way), truth, strict=True):
                equal = said.tokens == own.tokens and said.text.text == own.text.text
                outcome = f"{'equal' if equal else 'differ'} {said.stats.exactness}"
                counts = {"drafted": said.stats.drafted, "accepted": said.stats.accepted, outcome: 1}
                yield {"group": number, "what": f"{mode} {name} {proposer}", "way": f"{mode} {way}", **counts}


def difference(engine: Engine, said: Sequence[int], own: Sequence[int], close: float) -> dict[str, Any]:
    """The outcome of two texts and, if they differ, how much better the engine's token is than the next."""
    if said == own:
        return {"equal exact": 1}
    backend = engine.target
    same = next((i for i, pair in enumerate(zip(said, own, strict=False)) if len({*pair}) > 1), len(own) - 1)
    sequence = backend.open()
    margin = top_margin(backend.forward([Span(sequence, own[:same], 1)]).rows(0, 1)[0])
    backend.close(sequence)
    return {f"differ {'near-ties' if margin < close else 'exact'}": 1, "margin": round(margin, 4)}


def after(prompt: Prompt, said: Generation) -> Prompt:
    """The next turn of a conversation, or a text that goes on."""
    if isinstance(prompt, ChatPrompt):
        more = Message("assistant", said.text.text), Message("user", "Now say the same in fewer words.")
        return ChatPrompt((*prompt.messages, *more))
    return TextPrompt(getattr(prompt, "text", "") + said.text.text + "\n")


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Counts by mode, sampling and proposer, and by mode and way."""
    names, counts = ("texts", "drafted", "accepted", *OUTCOMES), dict[str, Counter[str]]()
    for line in lines:
        for key in (line["what"], line["way"]):
            counts.setdefault(key, Counter()).update({"texts": 1, **{n: line.get(n, 0) for n in names[1:]}})
    rows = [f"{key:29}" + "".join(f"{own[name]:17}" for name in names) for key, own in sorted(counts.items())]
    return "\n".join([" " * 29 + "".join(f"{name:>17}" for name in names), *rows])


def over_nodes(model: Model, config: EngineConfig, progress: Progressed) -> Backend:
    def lost(error: LocalspecError) -> NoReturn:
        print(error)
        os._exit(3)

    return open_over_nodes(model, config, progress, lost)


def main() -> int:
    """Play the groups that are missing in the file, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--longest", type=int, default=1000, help="characters of a prompt")
    parser.add_argument("--tokens", type=int, default=28)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--proposers", nargs="+", choices=PROPOSERS, default=PROPOSERS)
    parser.add_argument("--nodes", nargs="+", default=())
    parser.add_argument("--close", type=float, default=0.1, help="in logits; more for bfloat16")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no group begins after these")
    given = parser.parse_args()
    # Only auto needs the costs of forwards.
    config = msgspec.structs.replace(CONFIG, idle_measuring=AUTO in given.proposers)
    shared = msgspec.structs.replace(config, nodes=tuple(given.nodes))
    pair = choose_here(given.model, given.draft, config=shared)
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {line["group"] for line in lines}
    with ExitStack() as stack:
        order = Order(pair, shared, AUTO)
        engine = stack.enter_context(open_engine(order, lambda part, share: None, over_nodes))
        alone = None
        if given.nodes:
            alone = stack.enter_context(load_engine(choose_here(given.model, NONE), config=config))
        out = stack.enter_context(given.out.open("a"))
        print(engine.target.capabilities)
        until = time.monotonic() + given.seconds
        every = prompts(gaps=engine.target.vocabulary.fim is not None)
        asked = list(islice((each for each in every if length(each) <= given.longest), given.prompts))
        missing = (number for number in range(len(asked) // GROUP) if number not in done)
        for number in takewhile(lambda _: time.monotonic() < until, missing):
            group = asked[number * GROUP :][:GROUP]
            new = list(compare(engine, alone, number, group, given))
            print(*map(json.dumps, new), sep="\n", file=out, flush=True)
            lines += new
    print(table(lines))
    differing = [line for line in lines if "differ near-ties" in line or "differ exact" in line]
    return int(any("differ exact" in each or each["way"].startswith("strict") for each in differing))


if __name__ == "__main__":
    raise SystemExit(main())
