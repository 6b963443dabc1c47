"""Make the benchmark's fixed prompts, `localspec/bench/workloads/*.jsonl`, and their LICENSES.md.

    python -m assets.bench.make_workloads

takes some minutes. The code comes from packages that localspec depends on, which the bundled pair
never saw in training; the wordings are those it was trained on. The same package versions give the
same prompts.

The bundled target can do few of the tasks. On the others it repeats itself until the limit, and the
benchmark would measure how well a loop can be drafted. So edits are kept where its plain answers are edits
(they end by themselves and are like the right ones), gaps, questions and stories where they are long enough
to measure and do not repeat themselves; both as it is and rounded to the quantisation that the benchmark
inflates it to. Proposers have no influence on the selection.
"""

import ast
import difflib
import itertools
import random
import tempfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from assets.training.chat import fenced
from assets.training.corpus import Definition, SourceFile, definitions, library_files
from assets.training.edits import CONVERSATION_OPENERS, FOLLOW_UPS, RenameEdit, rename_one_of, repeated_names
from assets.training.evaluation.renames import package_files
from assets.training.infill import FimPieces
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.bench.inflate import Shape, inflate
from localspec.bench.workload import CODE, Case, Turn, request_of, usable_code
from localspec.engine.engine import Engine
from localspec.models.bundled import BUNDLED_TARGET, bundled_model
from localspec.models.model import model_at
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, File, FimPrompt, Message, Prompt, TextPrompt
from localspec.protocol.results import Result

FOLDER = Path(__file__).resolve().parents[2] / "localspec" / "bench" / "workloads"
PACKAGES = ("websockets", "rich", "filelock", "jinja2", "platformdirs", "psutil")
SEED = 11
TARGET = bundled_model(BUNDLED_TARGET)
TARGET_SHAPE, QUANTISATION = Shape(256, 6, 4, 2, 704), "Q8_0"  # its own shape: only rounded
CONTEXT_TOKENS = 1900  # of the bundled pair's 2,048, for a prompt and its answer
MARGIN = 4  # tokens
SHORTEST_ANSWER = 64  # tokens: what the goals look at
RUN, DISTINCT = 12, 0.85  # characters; how many of an answer's runs of so many are not repetitions
MOST_MENTIONS = 12

SHORT_CASES, SHORT_CHARACTERS, SHORT_TOKENS = 8, (200, 600), 256
LONG_CASES, LONG_TURNS, LONG_CHARACTERS, LONG_TOKENS = 4, 4, (900, 2000), 600
SIMILARITY = 0.75  # difflib's ratio of an answer's code to the right one

FIM_CASES, FIM_CHARACTERS, FIM_TOKENS, SHORTEST_FIM = 12, (1200, 2400), 64, 32
RING_FILES, RING_CHARACTERS = 2, 1200
LINE_END_SHARE = 0.7  # of the gaps: editors ask mostly for the rest of a line or of a few lines
LONG_FILE, CODE_FILE = 6000, 8  # characters; definitions: files of tables are no code to complete

CHAT_CASES, CHAT_TOKENS = 8, 128
DOCSTRING_CHARACTERS = 500
QUESTIONS = (
    "What does `{path}` do?",
    "Explain `{path}`.",
    "How do I use `{path}`?",
    "Tell me about {path} in Python.",
)
STORY_TOKENS = 160
STORIES = (
    '"""A small library that keeps a list of books, who has borrowed them, and when they are due.\n\n',
    "# The weather station\n#\n# Every hour the station measures temperature, pressure and wind, and\n",
    'class Garden:\n    """A garden with beds, plants and a gardener who forgets to water them.\n\n',
    "import random\n\n\ndef tell_story(hero, village, dragon):\n",
    '"""How the mail gets delivered.\n\nA letter starts its journey in a box at the corner of the street.\n',
    "# Notes on the design of a chess program\n#\n# 1. The board is a list of 64 squares.\n#\n# 2. ",
)


class Judges(NamedTuple):
    """The bundled target as it is, and rounded to the quantisation that the benchmark inflates it to."""

    exact: Engine
    rounded: Engine


def answer(engine: Engine, turn: Turn, previous: str | None = None) -> Result:
    """The plain answer of one of the judges."""
    return engine.stream(request_of(turn, previous)).finish()


def chat(*contents: str) -> ChatPrompt:
    """A conversation whose first and last messages are the user's."""
    return ChatPrompt(
        tuple(Message("assistant" if i % 2 else "user", content) for i, content in enumerate(contents))
    )


def single(workload: str, name: str, prompt: Prompt, options: Options) -> Case:
    """A case of one turn."""
    return Case(workload, name, (Turn(prompt, options),))


def sources() -> list[SourceFile]:
    """The packages' files, shuffled."""
    files = [file for package in PACKAGES for file in package_files(package)]
    random.Random(SEED).shuffle(files)
    return files


def unseen_functions(lengths: tuple[int, int]) -> Iterator[Definition]:
    """The packages' functions of so many characters."""
    for file in sources():
        for definition in definitions(file):
            if definition.is_function and lengths[0] <= len(definition.source) <= lengths[1]:
                yield definition


def edits_of(source: str, turns: int, rng: random.Random) -> list[RenameEdit]:
    """So many renames, one after the other, each of another name; fewer where names run out."""
    edits: list[RenameEdit] = []
    taken: set[str] = set()
    for _ in range(turns):
        names = [name for name in repeated_names(source, most=MOST_MENTIONS) if name not in taken]
        if not names:
            break
        edit = rename_one_of(source, names, rng)
        taken |= {edit.old, edit.new}
        edits.append(edit)
        source = edit.after
    return edits


def asking(edit: RenameEdit, wording: str, code: str) -> str:
    """The request for `edit` of `code`, a fenced block."""
    return wording.format(old=edit.old, new=edit.new, code=code)


def are_edits(engine: Engine, turns: tuple[Turn, ...], edits: list[RenameEdit]) -> bool:
    """Return True if every answer is like the right one and long enough to measure."""
    previous: str | None = None
    for turn, edit in zip(turns, edits, strict=True):
        result = answer(engine, turn, previous)
        code = usable_code(result.text, edit.after)
        if result.finish_reason != "stop" or code is None or result.completion_tokens < SHORTEST_ANSWER:
            return False
        if difflib.SequenceMatcher(None, code, edit.after, autojunk=False).ratio() < SIMILARITY:
            return False
        previous = result.text
    return True


def edit_short(judges: Judges) -> Iterator[Case]:
    """A rename, and another one in the same conversation."""
    rng = random.Random(f"short {SEED}")
    options = Options(temperature=0.0, max_tokens=SHORT_TOKENS)
    used: set[str] = set()
    for definition in unseen_functions(SHORT_CHARACTERS):
        edits = edits_of(definition.source, 2, rng)
        if len(edits) < 2 or definition.module in used:
            continue
        opener = asking(edits[0], rng.choice(CONVERSATION_OPENERS), fenced(definition.source))
        follow_up = rng.choice(FOLLOW_UPS).format(old=edits[1].old, new=edits[1].new)
        turns = (
            Turn(chat(opener), options),
            Turn(chat(opener, f"```python\n{CODE}```", follow_up), options, edits[0].after),
        )
        if all(are_edits(judge, turns, edits) for judge in judges):
            used.add(definition.module)
            yield Case("edit-short", definition.path, turns)


def edit_long(judges: Judges) -> Iterator[Case]:
    """Four renames in one piece of code; each prompt holds its newest version and nothing else."""
    rng = random.Random(f"long {SEED}")
    options = Options(temperature=0.0, max_tokens=LONG_TOKENS)
    used: set[str] = set()
    for definition in unseen_functions(LONG_CHARACTERS):
        edits = edits_of(definition.source, LONG_TURNS, rng)
        if len(edits) < LONG_TURNS or definition.module in used:
            continue
        block = f"```python\n{CODE}```"
        turns = tuple(
            Turn(chat(asking(edit, rng.choice(CONVERSATION_OPENERS), block)), options, edit.before)
            for edit in edits
        )
        if all(are_edits(judge, turns, edits) for judge in judges):
            used.add(definition.module)
            yield Case("edit-long", definition.path, turns)


def from_some_line(text: str, characters: int, rng: random.Random) -> str:
    """So many characters from the start of a line in the first half of `text`."""
    start = text.index("\n", rng.randrange(len(text) // 2)) + 1
    return text[start : start + characters]


def split_span(span: str, rng: random.Random) -> FimPieces:
    """Cut a span of at least 120 characters at two random places."""
    start = rng.randint(20, len(span) - 60)
    if rng.random() < LINE_END_SHARE:
        line_end = span.find("\n", start + rng.randint(0, 60))
        end = line_end if line_end > 0 else min(len(span), start + 60)
    else:
        end = min(len(span), start + rng.randint(10, 200))
    return FimPieces(span[:start], span[start:end], span[end:])


def fim(judges: Judges) -> Iterator[Case]:
    """A gap at a random place; every other case has chunks of its package's other files as context."""
    rng = random.Random(f"fim {SEED}")
    options = Options(temperature=0.0, max_tokens=FIM_TOKENS)
    files = [
        file for file in sources() if len(file.text) > LONG_FILE and len([*definitions(file)]) >= CODE_FILE
    ]
    i = 0
    for file in itertools.cycle(files):
        pieces = split_span(from_some_line(file.text, rng.randint(*FIM_CHARACTERS), rng), rng)
        others = [other for other in files if other is not file and package(other) == package(file)]
        ring = tuple(
            File(other.name, from_some_line(other.text, RING_CHARACTERS, rng))
            for other in others[: RING_FILES * (i % 2)]
        )
        prompt = FimPrompt(pieces.prefix, pieces.suffix, path=file.name, language="python", extra=ring)
        case = single("fim", file.module, prompt, options)
        if all(is_worth_measuring(answer(judge, case.turns[0]), SHORTEST_FIM) for judge in judges):
            i += 1
            yield case


def package(file: SourceFile) -> str:
    """The package that a file is part of."""
    return file.name.partition("/")[0]


def is_worth_measuring(result: Result, shortest: int = SHORTEST_ANSWER) -> bool:
    """Return True if an answer is long enough, and does not repeat itself."""
    runs = [result.text[i : i + RUN] for i in range(len(result.text) - RUN)]
    varied = len(set(runs)) >= DISTINCT * len(runs)
    # A prompt that was too long was cut, to a few tokens less than what fits.
    whole = result.prompt_tokens + FIM_TOKENS < CONTEXT_TOKENS - MARGIN
    return result.completion_tokens >= shortest and varied and whole


def chats(judges: Judges) -> Iterator[Case]:
    """Questions about functions and classes with long docstrings, every other one sampled."""
    files = library_files() + sources()
    found = [d for file in files for d in definitions(file) if "._" not in d.path]
    long = [d for d in found if len(ast.get_docstring(d.node) or "") > DOCSTRING_CHARACTERS]
    random.Random(f"chat {SEED}").shuffle(long)
    n = 0
    for definition in long:
        question = QUESTIONS[n % len(QUESTIONS)].format(path=definition.path)
        sampled = Options(temperature=0.8, seed=100 + n, max_tokens=CHAT_TOKENS)
        options = sampled if n % 2 else Options(temperature=0.0, max_tokens=CHAT_TOKENS)
        case = single("chat", definition.path, chat(question), options)
        if all(is_worth_measuring(answer(judge, case.turns[0])) for judge in judges):
            n += 1
            yield case


def stories(judges: Judges) -> Iterator[Case]:
    """Beginnings to go on from, each with the first seed that gives a long text."""
    for number, text in enumerate(STORIES, 1):
        for seed in itertools.count(100 * number):
            options = Options(temperature=1.0, seed=seed, max_tokens=STORY_TOKENS)
            case = single("story", f"seed {seed}", TextPrompt(text), options)
            if all(is_worth_measuring(answer(judge, case.turns[0])) for judge in judges):
                yield case
                break


def licences() -> str:
    """The licences of the packages whose code the prompts quote."""
    parts = [
        "# Licences\n\nThe prompts of `edit-short`, `edit-long` and `fim` quote code of these packages; "
        "`chat` names parts of them. The rest is localspec's own.\n"
    ]
    for name in PACKAGES:
        found = distribution(name)
        [text] = [file for file in found.files or () if "LICENSE" in file.name and ".dist-info" in str(file)]
        parts.append(f"\n## {name} {found.version}\n\n```\n{text.read_text().strip()}\n```\n")
    return "".join(parts)


def open_judge(path: Path) -> Engine:
    """A model that answers plainly."""
    config = EngineConfig(n_ctx=CONTEXT_TOKENS, parallel=1, threads=1)
    return Engine(LlamaCppBackend(model_at(path), config, measured=False), options=Options(proposer="none"))


def main() -> None:
    """Write all prompts and licences."""
    FOLDER.mkdir(exist_ok=True)
    kinds = (
        ("edit-short", edit_short, SHORT_CASES),
        ("edit-long", edit_long, LONG_CASES),
        ("fim", fim, FIM_CASES),
        ("chat", chats, CHAT_CASES),
        ("story", stories, len(STORIES)),
    )
    with tempfile.TemporaryDirectory() as scratch:
        rounded = inflate(TARGET, Path(scratch) / "rounded.gguf", TARGET_SHAPE, QUANTISATION)
        with open_judge(TARGET) as one, open_judge(rounded) as two:
            for name, make, cases in kinds:
                made = enumerate(itertools.islice(make(Judges(one, two)), cases), 1)
                numbered = [replace(case, name=f"{name}-{i} {case.name}") for i, case in made]
                lines = b"".join(msgspec.json.encode(case) + b"\n" for case in numbered)
                (FOLDER / f"{name}.jsonl").write_bytes(lines)
    (FOLDER / "LICENSES.md").write_text(licences(), "utf-8")


if __name__ == "__main__":
    main()
