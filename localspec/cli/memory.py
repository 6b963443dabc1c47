"""``localspec memory …``: the n-gram memory's files, with a daemon or without."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from cyclopts import Parameter
from msgspec.structs import replace

from localspec import home
from localspec.cli import asking, output
from localspec.cli.flags import ModelName
from localspec.cli.here import workspace_at, workspace_from_here
from localspec.config import environment_options, load_config
from localspec.errors import (
    FULL,
    INSTALL_MLX,
    BackendUnavailable,
    DiskFull,
    ExitCode,
    InvalidOptions,
    ModelInvalid,
    StorageError,
)
from localspec.models.sections import Sections
from localspec.protocol.memory import TableStats
from localspec.protocol.requests import File
from localspec.units import size
from localspec.wording import counted, printable

if TYPE_CHECKING:
    from localspec.backends.base import Vocabulary
    from localspec.memory.archive import Imported, Step
    from localspec.memory.files import TableFiles
    from localspec.memory.memory import Memory
    from localspec.models.model import Model

AsJson = Annotated[bool, Parameter(name="--json")]
SHOWN_SOURCES = 3


class Words(NamedTuple):
    """A model's vocabulary, as its file's header or its directory tells it."""

    model: Model
    vocab_fp: str
    size: int


def stats(*, as_json: AsJson = False) -> int:
    """What is remembered: every table, its size, and who taught it.

    Parameters
    ----------
    as_json
        Print one JSON object.
    """
    from localspec.memory.upkeep import stats as all_stats

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
    learned = counted(table.tokens, "token") if table.tokens else "no tokens"
    yield f"  {used}, {size(table.bytes)}, {learned} learned here"
    if table.last_use is not None:
        yield f"  last taught {datetime.fromtimestamp(table.last_use):%Y-%m-%d %H:%M}"
    names = [f"{name} ({count})" for name, count in table.sources.items()]
    more = [f"and {len(names) - SHOWN_SOURCES} more"] if len(names) > SHOWN_SOURCES else []
    if names:
        yield f"  by {', '.join(names[:SHOWN_SOURCES] + more)}"
    for name in table.quarantined:
        yield f"  set aside: {name}"


def forget(
    *, workspace: str | None = None, source: str | None = None, yes: bool = False, as_json: AsJson = False
) -> int:
    """Forget what the n-gram memory learned in a workspace, from a source, or all of it.

    The history of chats is another file and stays.

    Parameters
    ----------
    workspace
        Only what was learned in the workspace that this directory is in.
    source
        Only what this source taught, as `localspec memory stats --json` names it.
    yes
        Do not ask.
    as_json
        Print one JSON object.
    """
    from localspec.memory.upkeep import forget as forget_in

    if workspace == "":
        raise InvalidOptions("--workspace names no directory", "Name one, or leave --workspace out.")
    if workspace is not None:
        path = os.path.abspath(os.path.expanduser(workspace))
        workspace = workspace_at(Path(path), Sections(load_config())) or path
    scope = f" from {source!r}" if source is not None else ""
    scope += f" in {workspace}" if workspace is not None else ""
    what = f"what was learned{scope}" if scope else "the n-gram memory of all workspaces"
    other = "" if scope else _history()
    if not yes and not _confirm(f"Forget {what}? It cannot be undone.{other}"):
        output.note("Nothing was forgotten.")
        return ExitCode.ERROR
    forgotten = forget_in(_directory(), _notice, workspace=workspace, source=source)
    unit = "table" if source is None else "n-gram"
    if as_json:
        output.json({"forgotten": forgotten, "unit": f"{unit}s"})
    elif not forgotten:
        output.write(printable(f"There is nothing to forget: nothing was learned{scope}.{other}\n"))
    else:
        output.write(printable(f"Forgot {what}: {counted(forgotten, unit)}.{other}\n"))
    return ExitCode.OK


def _history() -> str:
    """A sentence on what is not of the memory, if it is there: what was asked and answered, in full."""
    path = home.history_path()
    return f" The history of chats is another file: {path}" if path.exists() else ""


def _confirm(question: str) -> bool:
    """Ask; raises :class:`InvalidOptions` where nobody can be asked."""
    if not asking.is_possible():
        raise InvalidOptions("there is no terminal to ask on", "Add --yes to forget without being asked.")
    return asking.agrees(question)


def prime(
    *paths: Path,
    model: ModelName = None,
    workspace: Path | None = None,
    stdin: bool = False,
    as_json: AsJson = False,
) -> int:
    """Learn text files before they are needed, into the table of the workspace that each is in.

    Parameters
    ----------
    paths
        Files, or directories: below them everything that is text, at most 1 MB, neither ignored by git nor
        by its name a file of secrets.
    model
        Whose vocabulary to learn with: a name of `localspec models list`, or a path.
    workspace
        Learn everything into the table of this directory, wherever the texts come from.
    stdin
        Learn texts from stdin, too: a JSON array of objects with a path and a text.
    as_json
        Print one JSON object.
    """
    from localspec.memory.memory import Memory
    from localspec.memory.texts import text_files

    given = _given_texts() if stdin else []
    if not paths and not given:
        raise InvalidOptions("there is nothing to learn", "Name files or directories.")
    for path in paths:
        if not path.exists():
            raise InvalidOptions(f"there is no {path}", "Name files or directories that exist.")
    words = _words(model, workspace)
    files = dict.fromkeys(file for path in paths for file in text_files(path))
    texts = [*((file, None) for file in files), *((Path(text.path), text.text) for text in given)]
    with _vocabulary(words) as vocabulary:
        memory = Memory(_directory(), words.vocab_fp, vocabulary.piece, notice=_notice)
        try:
            learned, tokens = _learn(texts, vocabulary, memory, workspace)
        finally:
            memory.close()
    if memory.failure is not None:
        raise memory.failure
    withheld, skipped = memory.withheld, len(texts) - learned
    tokens -= withheld
    if as_json:
        output.json({"files": learned, "skipped": skipped, "tokens": tokens, "secret_tokens": withheld})
    else:
        secrets = f"; {counted(withheld, 'token')} of what looks like secrets left out" if withheld else ""
        told = {0: "", 1: "; 1 was no text"}.get(skipped, f"; {skipped} were no text")
        output.write(f"Learned {counted(tokens, 'token')} of {counted(learned, 'file')}{secrets}{told}.\n")
    return ExitCode.OK


def _given_texts() -> list[File]:
    """What stdin holds; raises :class:`InvalidOptions`."""
    try:
        return msgspec.json.decode(sys.stdin.buffer.read() or b"[]", type=list[File])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidOptions(f"stdin holds no texts: {error}", 'Give [{"path": "…", "text": "…"}].') from None


def _learn(
    texts: Sequence[tuple[Path, str | None]], vocabulary: Vocabulary, memory: Memory, workspace: Path | None
) -> tuple[int, int]:
    """(files, tokens) learned; a file without its text is read."""
    from localspec.memory.lesson import Lesson
    from localspec.memory.texts import read_text
    from localspec.memory.workspace import plain

    sections, progress = Sections(load_config()), output.Progress()
    own = cache(lambda folder: workspace_at(folder, sections))
    learned = tokens = 0
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
            learned, tokens = learned + 1, tokens + len(ids)
    finally:
        progress.stop()
    return learned, tokens


def export(file: Path, /, *, model: ModelName = None, as_json: AsJson = False) -> int:
    """Write the n-grams of a model's vocabulary to a file, as lines of JSON.

    Parameters
    ----------
    file
        Is replaced if it exists; readable by its owner only.
    model
        A name of `localspec models list`, or a path.
    as_json
        Print one JSON object.
    """
    from localspec.memory.archive import export_table

    if not file.absolute().parent.is_dir():
        raise InvalidOptions(f"there is no directory {file.parent}", "Name a file in one that exists.")
    tables = _files(_words(model))
    ngrams = 0
    with _private_file(file) as target, _steps(file) as show:
        for name in tables.names():
            for number, line in enumerate(export_table(tables, name, show)):
                target.write(line)
                ngrams += number > 0
    if as_json:
        output.json({"file": str(file), "ngrams": ngrams})
    else:
        output.write(printable(f"Wrote {counted(ngrams, 'n-gram')} to {file}.\n"))
    return ExitCode.OK


@contextmanager
def _steps(file: Path) -> Iterator[Callable[[Step], None]]:
    """What shows how far an export or import is."""
    progress = output.Progress()
    try:
        yield lambda step: progress.update(f"{step.what} {file.name}", step.done / max(step.total, 1))
    finally:
        progress.stop()


@contextmanager
def _private_file(file: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when it is complete. Raises :class:`StorageError`."""
    scratch: str | None = None
    try:
        fd, scratch = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".part")
        with os.fdopen(fd, "wb") as target:
            yield target
        os.replace(scratch, file)
        scratch = None
    except OSError as error:
        message = f"{file} cannot be written: {error.strerror}"
        if error.errno in FULL:
            raise DiskFull(message, "Name a place with room.") from None
        raise StorageError(message, "Name a place where you may write.") from None
    finally:
        if scratch is not None:
            Path(scratch).unlink(missing_ok=True)


def import_(file: Path, /, *, model: ModelName = None, as_json: AsJson = False) -> int:
    """Add the n-grams of an exported file.

    None is lost, unless a table holds others already that take their room.

    Parameters
    ----------
    file
        What `localspec memory export` wrote.
    model
        The model whose vocabulary it must have: a name of `localspec models list`, or a path.
    as_json
        Print one JSON object.
    """
    from localspec.memory.archive import import_tables

    words, last = _words(model), None

    def follow(step: Step) -> None:
        nonlocal last
        last = step
        show(step)

    try:
        with _steps(file) as show:
            imported = import_tables(_files(words), file, vocabulary_size=words.size, progress=follow)
    except KeyboardInterrupt:
        output.interrupted()
        output.note(_part(last))
        return ExitCode.INTERRUPTED
    if as_json:
        output.json({"file": str(file), "ngrams": imported.kept, "read": imported.read})
    else:
        output.write(printable(f"{_became(imported, file)}\n"))
    return ExitCode.OK


def _part(last: Step | None) -> str:
    """What an import did until it was interrupted, after this step."""
    if last is None or last.what == "checking":
        return "Nothing was imported."
    are = "n-gram was" if last.total == 1 else "n-grams were"
    return f"{last.done} of {last.total} {are} imported."


def _became(imported: Imported, file: Path) -> str:
    read, kept = imported
    if not read:
        return f"There are no n-grams in {file}."
    if kept == read:
        return f"Kept {'all' if read > 1 else 'the'} {counted(read, 'n-gram')} of {file}."
    others = "others" if read - kept > 1 else "other"
    return f"Kept {kept} of the {counted(read, 'n-gram')} in {file}: for the {others} there was no room."


def _vocabulary(words: Words) -> AbstractContextManager[Vocabulary]:
    """A model's vocabulary, loaded without its weights."""
    return _of_directory(words) if words.model.format == "mlx" else _of_file(words)


@contextmanager
def _of_directory(words: Words) -> Iterator[Vocabulary]:
    """Needs the package of tokenizers only, nothing of MLX."""
    from localspec.models.directory import read_directory

    try:
        from localspec.backends.mlx.vocabulary import MlxVocabulary
    except ImportError as error:
        raise BackendUnavailable(
            f"{words.model.path} is an MLX directory, and its tokenizer cannot be used: {error}",
            INSTALL_MLX,
        ) from None
    yield MlxVocabulary(read_directory(words.model.path), words.size)


@contextmanager
def _of_file(words: Words) -> Iterator[Vocabulary]:
    from llama_cpp import llama_model_free

    from localspec.backends.llama_cpp.native import load_vocabulary
    from localspec.backends.llama_cpp.vocabulary import LlamaVocabulary

    model = load_vocabulary(str(words.model.path))
    try:
        yield LlamaVocabulary(model)
    finally:
        llama_model_free(model)


def _words(model: str | None, workspace: Path | None = None) -> Words:
    """Those of ``model``, or of the one that answers in a workspace, or here.

    Raises :class:`ModelError` for a model that is not there or has no vocabulary.
    """
    from localspec.models.description import BACKENDS
    from localspec.models.fingerprint import vocab_fp
    from localspec.models.library import find
    from localspec.models.vocabulary import real_tokens

    config = load_config()
    here = workspace_from_here(None if workspace is None else str(workspace))
    options = Sections(config).merged(replace(environment_options(), workspace=here))
    # Of a name that stands for two models; what is given as a path needs no backend to be learnt with.
    wanted = next((format for format, name in BACKENDS.items() if name == options.backend), None)
    found = find(model or options.model or "bundled", config.model_dirs, format=wanted)
    tokens = real_tokens(found)
    if not tokens:
        raise ModelInvalid(f"{found.path} has no vocabulary")
    return Words(found, vocab_fp(tokens), max(token for token, _ in tokens) + 1)


def _files(words: Words) -> TableFiles:
    from localspec.memory.files import TableFiles

    return TableFiles(_directory() / words.vocab_fp, _notice)


def _directory() -> Path:
    return home.data_dir() / "memory"


def _notice(text: str) -> None:
    output.note(f"localspec: {text}")
