"""``localspec memory prime``: text files learnt in advance."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec

from localspec.backends.base import ModelVocabulary
from localspec.cli import output
from localspec.cli.answer import workspace_at
from localspec.cli.flags import AsJson, ModelName
from localspec.cli.memory import memory_directory, notice
from localspec.config import environment_options, load_config
from localspec.errors import INSTALL_MLX, BackendUnavailable, ExitCode, InvalidOptions
from localspec.home import plain
from localspec.memory.memory import Memory
from localspec.memory.ngrams import MemoryText
from localspec.memory.text_files import read_text, text_files
from localspec.models.directory import read_directory
from localspec.models.library import Sections, find
from localspec.models.model import BACKENDS, Model
from localspec.models.vocabulary import read_tokens, vocab_fp
from localspec.process import delay_interrupts
from localspec.protocol.requests import EngineConfig, File
from localspec.wording import count_noun


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
        Learn all texts into the table of this directory's workspace, whatever their paths.
    stdin
        Also learn texts from stdin: a JSON array of objects with a path and a text.
    """
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
        memory = Memory(memory_directory(), vocab_fp(tokens_of), vocabulary.piece, notice=notice)
        try:
            learnt, tokens = _learn(texts, vocabulary, memory, workspace)
        finally:
            memory.close()
    if memory.failure is not None:
        raise memory.failure
    withheld, skipped = memory.withheld, len(texts) - learnt
    tokens -= withheld
    secrets = f"; {count_noun(withheld, 'token')} that look like secrets left out" if withheld else ""
    others = f"; {count_noun(skipped, 'file')} without text" if skipped else ""
    text = f"Learnt {count_noun(tokens, 'token')} of {count_noun(learnt, 'file')}{secrets}{others}.\n"
    counts = {"files": learnt, "skipped": skipped, "tokens": tokens, "secret_tokens": withheld}
    output.show(counts, text, as_json=as_json)
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
    texts: Sequence[tuple[Path, str | None]],
    vocabulary: ModelVocabulary,
    memory: Memory,
    workspace: Path | None,
) -> tuple[int, int]:
    """Learn the texts; return the numbers of files and tokens learnt. A file without a text is read."""
    own, progress = cache(workspace_at), output.LiveProgress()
    learnt = tokens = 0
    try:
        for number, (file, text) in enumerate(texts):
            progress.update(f"learning {file.name}", number / len(texts))
            text = read_text(file) if text is None else text
            if text is None:
                continue
            place = own(workspace or file.parent) or workspace
            ids = vocabulary.encode(text, special=False)
            memory.learn(MemoryText(ids, None if place is None else plain(str(place)), plain(f"file:{file}")))
            while memory.work():
                pass
            learnt, tokens = learnt + 1, tokens + len(ids)
    finally:
        progress.stop()
    return learnt, tokens


@contextmanager
def _vocabulary(model: Model, size: int) -> Iterator[ModelVocabulary]:
    """Load a model's vocabulary without its weights; for an MLX directory by tokenizers, without MLX."""
    if model.format == "mlx":
        try:
            from localspec.backends.mlx.vocabulary import MlxVocabulary
        except ImportError as error:
            message = f"the tokenizer of the MLX directory {model.path} cannot be used: {error}"
            raise BackendUnavailable(message, INSTALL_MLX) from None
        yield MlxVocabulary(read_directory(model.path), size)
        return
    from llama_cpp import llama_model_free

    from localspec.backends.llama_cpp import native, vocabulary

    with delay_interrupts():
        loaded = native.load_model(str(model.path), EngineConfig(), None, vocab_only=True)
    try:
        yield vocabulary.LlamaVocabulary(loaded)
    finally:
        llama_model_free(loaded)


def _model(name: str | None) -> Model:
    """The model of a name, or the default one. Raises :class:`ModelError` for one that does not exist."""
    config = load_config()
    options = Sections(config).merge_options(environment_options())
    # Chooses between two models of one name; a path is used whatever its backend.
    wanted = next((format for format, backend in BACKENDS.items() if backend == options.backend), None)
    return find(name or options.model or "bundled", config.model_dirs, format=wanted)
