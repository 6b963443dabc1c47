"""From names to an engine: find the models, check that they fit together, open them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from localspec import home
from localspec.backends.base import Backend, Vocabulary
from localspec.config import EngineConfig
from localspec.engine.engine import Engine
from localspec.engine.learning import Learning
from localspec.errors import BackendUnavailable, InvalidOptions, LocalspecError
from localspec.memory.memory import Memory
from localspec.models.catalogue import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model, find_model, model_name
from localspec.models.fingerprint import gguf_tokens, vocab_fp
from localspec.models.gguf import read_header
from localspec.models.pairing import Tokens, check_pair
from localspec.protocol.options import parse_options, readable

log = logging.getLogger(__name__)

T = TypeVar("T")

Progress = Callable[[str, float], None]
"""(what is loading, fraction 0 to 1)"""

FITS = {"exact": "same vocabulary", "compatible": "compatible vocabularies"}
"""what :func:`check_pair` finds, for people"""


class Choice(NamedTuple):
    """Which files to open, and why this draft."""

    target: Path
    draft: Path | None
    reason: str


def choose(model: str, draft: str, model_dirs: tuple[str, ...] = ()) -> Choice:
    """Resolve names to files; ``draft`` may be ``auto`` or ``none``. Raises :class:`ModelNotFound`."""
    target = find_model(model, model_dirs)
    if draft == "none":
        return Choice(target, None, "no draft model was wanted")
    if draft != "auto":
        return Choice(target, find_model(draft, model_dirs), "this draft model was asked for")
    if target == bundled_model(BUNDLED_TARGET):
        return Choice(target, bundled_model(BUNDLED_DRAFT), "the bundled pair")
    return Choice(target, None, "no draft model is known for this target")


def open_backend(
    path: Path,
    backend: str,
    config: EngineConfig,
    progress: Callable[[float], None] | None = None,
    *,
    measured: bool = True,
) -> Backend:
    """Load one model; raises :class:`BackendUnavailable` for a backend that cannot run here."""
    if backend not in ("auto", "llama_cpp"):
        raise BackendUnavailable(f"there is no backend {backend!r} in this installation")
    try:
        from localspec.backends.llama_cpp.backend import LlamaCppBackend
    except (ImportError, OSError) as error:
        raise BackendUnavailable(
            f"llama-cpp-python cannot be imported: {error}", "Install it: pip install llama-cpp-python"
        ) from None
    return LlamaCppBackend(path, config, progress=progress, measured=measured)


def tokens_of(vocabulary: Vocabulary) -> Tokens:
    """What a vocabulary is compared by."""
    texts = tuple(vocabulary.text_of(token) for token in range(vocabulary.size))
    return Tokens(texts, vocabulary.bos, vocabulary.eos)


def load_engine(
    choice: Choice,
    *,
    backend: str = "auto",
    config: EngineConfig | None = None,
    progress: Progress | None = None,
    memory: bool = False,
) -> Engine:
    """Open target and draft, with what was learnt about them before; ``memory``: the n-gram memory too.

    Raises :class:`ModelError` and :class:`OutOfMemory`; then nothing is left open.
    """
    config = config or EngineConfig()

    def part(stage: str) -> Callable[[float], None]:
        return lambda fraction: progress(stage, fraction) if progress else None

    target = open_backend(choice.target, backend, config, part("target"), measured=False)
    draft: Backend | None = None
    try:
        reason = choice.reason
        if choice.draft is not None:
            # As many sequences as the target has, so that every request can have its own draft.
            parallel = target.capabilities.max_sequences
            sized = msgspec.structs.replace(config, parallel=parallel)
            draft = open_backend(choice.draft, backend, sized, part("draft"), measured=False)
            fit = check_pair(tokens_of(target.vocabulary), tokens_of(draft.vocabulary))
            reason = f"{reason}; {FITS[fit]}"
        learning = Learning(
            target,
            draft,
            directory=_unless_broken(lambda: home.private_dir(home.cache_dir() / "learnt")),
            memory=_unless_broken(lambda: open_memory(choice.target, target.vocabulary))
            if memory and config.memory
            else None,
        )
        learning.know_rounding(target)
        engine = Engine(target, draft, config=config, learning=learning)
        engine.reason = reason + _beyond_training(choice.target, config)
        return engine
    except BaseException:
        target.free()
        if draft is not None:
            draft.free()
        raise


def _beyond_training(model: Path, config: EngineConfig) -> str:
    """Warns of an ``n_ctx`` larger than what the model was trained for; returns what to add to the reason."""
    # Without a wish the context is never larger: nothing to read the file for.
    trained = read_header(model).of_architecture("context_length") if config.n_ctx else None
    if type(trained) is not int or config.n_ctx <= trained:
        return ""
    told = f"n_ctx is {config.n_ctx}, but {model_name(model)} was trained for {trained} tokens"
    log.warning("%s: beyond them answers may make no sense", told)
    return f"; {told}"


def _unless_broken(place: Callable[[], T]) -> T | None:
    """What is learnt may need a disk; answering does not."""
    try:
        return place()
    except LocalspecError as error:
        log.warning("%s: nothing is kept there. %s", error.message, error.remedy)
        return None


def open_memory(model: Path, vocabulary: Vocabulary) -> Memory:
    """This user's n-gram memory for models with this model's vocabulary."""
    fingerprint = vocab_fp(gguf_tokens(read_header(model)))
    return Memory(home.private_dir(home.data_dir() / "memory"), fingerprint, vocabulary.piece)


def load(
    target: str | Path = "bundled",
    *,
    draft: str | Path = "auto",
    backend: str = "auto",
    memory: bool = False,
    **settings: Any,
) -> Engine:
    """Load a model, in this process.

    ``target`` and ``draft`` are paths or names; ``memory=True`` uses and fills this user's n-gram
    memory; ``settings`` are fields of :class:`EngineConfig` (``n_ctx``, ``threads``, …) and of
    :class:`Options` (``proposer``, ``temperature``, …), the latter as defaults for every request.
    """
    known = [name for name in EngineConfig.__struct_fields__ if name != "memory"]
    engine_values = {key: value for key, value in settings.items() if key in known}
    option_values = {key: value for key, value in settings.items() if key not in known}
    options = parse_options(option_values)
    try:
        config = msgspec.convert(engine_values, EngineConfig)
    except msgspec.ValidationError as error:
        raise InvalidOptions(f"invalid setting: {readable(error)}") from None
    engine = load_engine(choose(str(target), str(draft)), backend=backend, config=config, memory=memory)
    engine.options = options
    return engine
