"""Record answers of a real pair for the simulator, with what its draft model would have drafted.

    python -m assets.bench.record ANSWERS.jsonl --model TARGET.gguf --draft DRAFT.gguf

Every case of ``prompts.toml`` is answered plainly by the target, greedily and at temperature 0.7 with top-p
0.95 and a seed. Then the draft model reads each answer once: its row after every token gives the token that
it would draft there, and how sure it is. While a draft is right, its context is the answer itself, so these
rows are those of drafts of any length, until the first wrong token.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec

from assets.bench.asking import GAP, Kind
from assets.bench.beside import Case, load_cases
from assets.bench.simulate import Log
from localspec.backends.base import Backend, Span
from localspec.bench.run import answer
from localspec.engine.engine import Engine
from localspec.engine.load import load_engine, open_backend
from localspec.engine.sequence import Sequence
from localspec.models.library import find
from localspec.models.pair import choose
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, EngineConfig, FimPrompt, Message, Prompt, TextPrompt
from localspec.speculation.draft_model import certainty_of
from localspec.speculation.noise import Noise, NoiseStream
from localspec.speculation.sampling import Sampler, SamplingParams
from localspec.speculation.verify import ForwardRows

CONFIG = EngineConfig(n_ctx=8192, parallel=1)
PLAIN = Options(proposer="none", temperature=0.0, remember=False)
SEED, TEMPERATURE, TOP_P, TOKENS = 7, 0.7, 0.95, 128
SAMPLED = msgspec.structs.replace(PLAIN, temperature=TEMPERATURE, top_p=TOP_P, seed=SEED)
TAUGHT = "(taught)"
"""the workload of answers that are learnt before a case, and not measured"""
PIECE = 256
"""tokens that the draft model reads at once"""


def recorded(target: Engine, draft: Engine, case: Case, name: str, options: Options) -> Iterator[Log]:
    """The plain answers to a case's prompts, each after those before it; before them, those taught."""
    for text in case.taught:
        teacher = draft if case.taught_by == "draft" else target
        sequence, _ = answer(teacher, ChatPrompt((Message("user", text),)), options)
        yield log_of(TAUGHT, name, 0, sequence)
    messages: tuple[Message, ...] = ()
    for turn, text in enumerate(case.prompts):
        messages += (Message("user", text),)
        sequence, result = answer(target, prompt_of(case.kind, text, messages), options)
        yield log_of(case.workload, name, turn, sequence)
        messages += (Message("assistant", result.text),)


def log_of(workload: str, name: str, turn: int, sequence: Sequence) -> Log:
    prompt, output = sequence.tokens[: sequence.prompt_length], sequence.tokens[sequence.prompt_length :]
    return Log(workload, name, turn, prompt, output)


def prompt_of(kind: Kind, text: str, messages: tuple[Message, ...]) -> Prompt:
    if kind == "fim":
        prefix, _, suffix = text.partition(GAP)
        return FimPrompt(prefix, suffix)
    return TextPrompt(text) if kind == "raw" else ChatPrompt(messages)


def drafted(backend: Backend, log: Log, sampler: Sampler) -> Log:
    """The log with the draft model's token for each place of the answer, and its certainty."""
    tokens, start = [*log.prompt, *log.output], len(log.prompt)
    slot, drafts, certain = backend.open(), list[int](), list[int]()
    for at in range(0, len(tokens) - 1, PIECE):
        piece = tokens[at : min(at + PIECE, len(tokens) - 1)]
        rows = max(0, at + len(piece) - max(at, start - 1))
        forward = ForwardRows(backend.forward([Span(slot, piece, rows)]))
        if not rows:
            continue
        forward.wait(whole=not sampler.params.greedy)
        for row in range(rows):
            position = at + len(piece) - rows + row + 1
            if sampler.params.greedy:
                drafts.append(forward.argmax[row])
                certain.append(certainty_of(1.0 / (1.0 + math.exp(-forward.margins[row]))))
            else:
                q = sampler.distribution(forward.row(row), [])
                drafts.append(q.sample(sampler.noise, position, NoiseStream.TARGET))
                certain.append(certainty_of(float(q.probabilities.max())))
    backend.close(slot)
    return msgspec.structs.replace(log, draft=drafts, certainty=certain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--draft", required=True)
    given = parser.parse_args()
    params = SamplingParams(temperature=TEMPERATURE, top_p=TOP_P)
    samplers = {
        "greedy": (PLAIN, Sampler(SamplingParams(), Noise(0), seeded=False)),
        "T 0.7": (SAMPLED, Sampler(params, Noise(SEED), seeded=True)),
    }
    cases, logs = load_cases(), list[tuple[Log, Sampler]]()
    with ExitStack() as stack:
        pair = (choose(name, "none", ()) for name in (given.model, given.draft))
        target, draft = (stack.enter_context(load_engine(each, config=CONFIG)) for each in pair)
        for name, (options, sampler) in samplers.items():
            for number, case in enumerate(cases):
                limited = msgspec.structs.replace(options, max_tokens=case.tokens or TOKENS)
                found = recorded(target, draft, case, f"{number} {name}", limited)
                logs += [(log, sampler) for log in found]
                print(f"{name}: {number + 1} of {len(cases)} cases", file=sys.stderr)
    backend = open_backend(find(given.draft, ()), CONFIG, drafts=True)
    lines = [msgspec.json.encode(drafted(backend, log, sampler)) + b"\n" for log, sampler in logs]
    given.answers.write_bytes(b"".join(lines))


if __name__ == "__main__":
    main()
