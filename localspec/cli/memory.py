"""``localspec memory …``: the n-gram memory's files, with a daemon or without."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import App, Parameter

from localspec import home
from localspec.cli import output
from localspec.cli.answer import workspace_at
from localspec.cli.flags import AsJson, ModelName
from localspec.cli.output import arguments, examples
from localspec.config import environment_options, load_config
from localspec.errors import INSTALL_MLX, BackendUnavailable, ExitCode, InvalidOptions
from localspec.home import plain
from localspec.models.directory import read_directory
from localspec.models.library import Sections, find
from localspec.models.model import BACKENDS
from localspec.models.vocabulary import read_tokens, vocab_fp
from localspec.protocol.messages import TableStats
from localspec.protocol.requests import File
from localspec.wording import counted, printable, size

if TYPE_CHECKING:
    from localspec.backends.base import Vocabulary
    from localspec.memory.memory import Memory
    from localspec.models.model import Model

SHOWN_SOURCES = 3
app = App(
    name="memory",
    help_epilogue=examples("localspec memory stats", "localspec memory prime src/"),
)


@app.command
def stats(*, as_json: AsJson = False) -> int:
    """List every table of the n-gram memory, its size and its sources."""
    from localspec.memory.memory import stats as all_stats

    tables = all_stats(_directory(), _notice)
    if as_json:
        output.json({"tables": tables})
    elif not tables:
        output.write("Nothing is remembered yet.\n")
    for table in () if as_json else tables:
        output.write(printable("\n".join(_lines(table)) + "\n"))
    return ExitCode.OK


def _lines(table: TableStats) -> Iterator[str]:
    yield f"{table.workspace or 'user'} (vocabulary {table.vocab_fp})"
    used = f"{table.entries} of {table.capacity} n-grams ({table.occupancy:.0%})"
    learnt = counted(table.tokens, "token") if table.tokens else "no tokens"
    yield f"  {used}, {size(table.bytes)}, {learnt} learnt here"
    if table.last_use is not None:
        yield f"  last learnt {datetime.fromtimestamp(table.last_use):%Y-%m-%d %H:%M}"
    names = [f"{counted(count, 'n-gram')} from {name}" for name, count in table.sources.items()]
    more = [f"and from {len(names) - SHOWN_SOURCES} more"] if len(names) > SHOWN_SOURCES else []
    if names:
        yield f"  {', '.join(names[:SHOWN_SOURCES] + more)}"


@app.command(
    help_epilogue=examples(
        "localspec memory forget --workspace .",
        "localspec memory forget --source file:$PWD/app.py --yes",
        "localspec memory forget --all --yes",
    )
)
def forget(
    *,
    workspace: str | None = None,
    source: str | None = None,
    every: Annotated[bool, Parameter(name="--all")] = False,
    yes: bool = False,
    as_json: AsJson = False,
) -> int:
    """Forget what the n-gram memory learnt in a workspace, from a source, or all of it.

    The history of chats is another file and is kept.

    Parameters
    ----------
    workspace
        Only n-grams learnt in the workspace of this directory.
    source
        Only n-grams learnt from this source, by its name in `localspec memory stats --json`.
    every
        All n-grams of all workspaces.
    yes
        Do not ask.
    """
    from localspec.memory import memory

    _check_selection(workspace, source, every=every)
    if workspace is not None:
        path = os.path.abspath(os.path.expanduser(workspace))
        workspace = workspace_at(Path(path)) or path
    scope = f" from {source!r}" if source is not None else ""
    scope += f" in {workspace}" if workspace is not None else ""
    what = "the memory of all workspaces" if every else f"what was learnt{scope}"
    if not yes:
        held = memory.count(_directory(), _notice, workspace=workspace) if source is None else None
        amount = "" if held is None else f" ({counted(held, 'table')})"
        if not output.confirms(f"Forget {what}{amount}? It cannot be undone."):
            output.note("Nothing was forgotten.")
            return ExitCode.ERROR
    forgotten = memory.forget(_directory(), _notice, workspace=workspace, source=source)
    unit = "table" if source is None else "n-gram"
    if as_json:
        output.json({"forgotten": forgotten, "unit": f"{unit}s"})
    elif not forgotten:
        output.write(printable(f"There is nothing to forget: nothing was learnt{scope}.\n"))
    else:
        output.write(printable(f"Forgot {what}: {counted(forgotten, unit)}.\n"))
    return ExitCode.OK


def _check_selection(workspace: str | None, source: str | None, *, every: bool) -> None:
    """Raise :class:`InvalidOptions` unless the flags of `memory forget` say what is forgotten."""
    if workspace == "":
        raise InvalidOptions("--workspace is empty", "Give a directory, or drop --workspace.")
    if workspace is None and source is None and not every:
        raise InvalidOptions(
            "nothing is selected to be forgotten",
            "Add --workspace . (this workspace), --source NAME (a file or a chat), or --all.",
        )
    if every and not (workspace is None and source is None):
        raise InvalidOptions(
            "--all cannot be combined with --workspace or --source", "Drop --all, or the others."
        )


@app.command(
    usage=arguments("memory prime", "[PATHS...]"),
    help_epilogue=examples("localspec memory prime src/", "localspec memory prime app.py --workspace ."),
)
def prime(
    *paths: Path,
    model: ModelName = None,
    workspace: Path | None = None,
    stdin: bool = False,
    as_json: AsJson = False,
) -> int:
    """Learn text files in advance, each into the table of its workspace.

    Parameters
    ----------
    paths
        Files, or directories of a git repository: their text files of at most 1 MB.
        Those that git ignores, or that are named like a file of secrets, are left out of directories.
    model
        Model whose vocabulary is used: a name of `localspec models list`, or a path.
    workspace
        Learn all texts into the table of this directory, whatever their paths.
    stdin
        Also learn texts from stdin: a JSON array of objects with a path and a text.
    """
    from localspec.memory.memory import Memory
    from localspec.memory.text_files import text_files

    given = _given_texts() if stdin else []
    if not paths and not given:
        raise InvalidOptions("there is nothing to learn: no file was given", "Name files or directories.")
    for path in paths:
        if not path.exists():
            raise InvalidOptions(f"{path} does not exist", "Name files or directories that exist.")
    target = _model(model)
    tokens_of = read_tokens(target.path).texts
    files = dict.fromkeys(file for path in paths for file in text_files(path))
    texts = [*((file, None) for file in files), *((Path(text.path), text.text) for text in given)]
    with _vocabulary(target, max(tokens_of) + 1) as vocabulary:
        memory = Memory(_directory(), vocab_fp(tokens_of), vocabulary.piece, notice=_notice)
        try:
            learnt, tokens = _learn(texts, vocabulary, memory, workspace)
        finally:
            memory.close()
    if memory.failure is not None:
        raise memory.failure
    withheld, skipped = memory.withheld, len(texts) - learnt
    tokens -= withheld
    if as_json:
        output.json({"files": learnt, "skipped": skipped, "tokens": tokens, "secret_tokens": withheld})
    else:
        secrets = f"; {counted(withheld, 'token')} that look like secrets left out" if withheld else ""
        others = f"; {counted(skipped, 'file')} without text" if skipped else ""
        output.write(f"Learnt {counted(tokens, 'token')} of {counted(learnt, 'file')}{secrets}{others}.\n")
    return ExitCode.OK


def _given_texts() -> list[File]:
    """The texts in stdin; raises :class:`InvalidOptions`."""
    try:
        return msgspec.json.decode(sys.stdin.buffer.read() or b"[]", type=list[File])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidOptions(
            f"stdin is not a JSON array of objects with a path and a text: {error}",
            'Give JSON such as [{"path": "…", "text": "…"}].',
        ) from None


def _learn(
    texts: Sequence[tuple[Path, str | None]], vocabulary: Vocabulary, memory: Memory, workspace: Path | None
) -> tuple[int, int]:
    """Learn the texts; return the numbers of files and tokens learnt. A file without a text is read."""
    from localspec.memory.ngrams import Lesson
    from localspec.memory.text_files import read_text

    own, progress = cache(workspace_at), output.Progress()
    learnt = tokens = 0
    try:
        for number, (file, text) in enumerate(texts):
            progress.update(f"learning {file.name}", number / len(texts))
            text = read_text(file) if text is None else text
            if text is None:
                continue
            place = workspace or own(file.parent)
            ids = vocabulary.encode(text, special=False)
            memory.learn(Lesson(ids, None if place is None else plain(str(place)), plain(f"file:{file}")))
            while memory.work():
                pass
            learnt, tokens = learnt + 1, tokens + len(ids)
    finally:
        progress.stop()
    return learnt, tokens


@contextmanager
def _vocabulary(model: Model, size: int) -> Iterator[Vocabulary]:
    """Load a model's vocabulary without its weights; that of an MLX directory needs the tokenizers package
    only, not MLX."""
    if model.format == "mlx":
        try:
            from localspec.backends.mlx.vocabulary import MlxVocabulary
        except ImportError as error:
            message = f"the tokenizer of the MLX directory {model.path} cannot be used: {error}"
            raise BackendUnavailable(message, INSTALL_MLX) from None
        yield MlxVocabulary(read_directory(model.path), size)
        return
    from llama_cpp import llama_model_free

    from localspec.backends.llama_cpp.native import load_vocabulary
    from localspec.backends.llama_cpp.vocabulary import LlamaVocabulary

    loaded = load_vocabulary(str(model.path))
    try:
        yield LlamaVocabulary(loaded)
    finally:
        llama_model_free(loaded)


def _model(name: str | None) -> Model:
    """The model of a name, or the default one. Raises :class:`ModelError` for one that does not exist."""
    config = load_config()
    options = Sections(config).merged(environment_options())
    # Chooses between two models of one name; a path is used whatever its backend.
    wanted = next((format for format, backend in BACKENDS.items() if backend == options.backend), None)
    return find(name or options.model or "bundled", config.model_dirs, format=wanted)


def _directory() -> Path:
    return home.data_dir() / "memory"


def _notice(text: str) -> None:
    output.note(f"localspec: {text}")
