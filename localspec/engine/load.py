"""From names to an engine: find the models, check that they fit together, open them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from localspec import home
from localspec.backends.base import Backend, Vocabulary
from localspec.config import EngineConfig, load_config
from localspec.engine.choice import Choice, choose, is_apple_silicon
from localspec.engine.engine import Engine
from localspec.engine.learning import Learning, known_speed
from localspec.engine.saved import Saved
from localspec.errors import (
    INSTALL_MLX,
    BackendUnavailable,
    EngineError,
    InvalidOptions,
    LocalspecError,
    ModelError,
    ModelInvalid,
)
from localspec.memory.memory import Memory
from localspec.models.candidates import Room, without
from localspec.models.catalogue import format_of, model_name, real_tokens, trained_context
from localspec.models.fingerprint import vocab_fp
from localspec.models.fit import free_memory, needs_of
from localspec.models.pairing import FITS, check_pair
from localspec.models.processor import machine_name
from localspec.models.record import learnt_dir
from localspec.models.rendering_process import RenderingProcess
from localspec.models.tried import note_failure
from localspec.models.vocabulary import read_tokens
from localspec.protocol.options import parse_options, readable
from localspec.units import MB, size

log = logging.getLogger(__name__)

T = TypeVar("T")

AS_IT_COMES = EngineConfig()

Progressed = Callable[[float], None] | None
Progress = Callable[[str, float], None]
"""(what is loading, fraction 0 to 1)"""


def open_backend(
    path: Path,
    config: EngineConfig,
    progress: Callable[[float], None] | None = None,
    *,
    measured: bool = True,
    drafts: bool = False,
) -> Backend:
    """Load one model on the backend of its format, to draft for another one or not; raises
    :class:`BackendUnavailable` where that backend cannot be imported, and what loading raises."""
    try:
        if format_of(path) == "mlx":
            return _mlx(path, config, progress, measured)
        return _llama_cpp(path, config, progress, measured=measured, drafts=drafts)
    except ModelInvalid as error:
        name = model_name(path)
        if name in error.message:
            raise
        # In a store's directory a digest is no name.
        raise ModelInvalid(f"{name} cannot be used: {error.message}", error.remedy) from None


def _llama_cpp(
    path: Path, config: EngineConfig, progress: Progressed, *, measured: bool, drafts: bool
) -> Backend:
    try:
        from localspec.backends.llama_cpp.backend import LlamaCppBackend
    except (ImportError, OSError) as error:
        raise BackendUnavailable(
            f"llama-cpp-python cannot be imported: {error}", "Install it: pip install llama-cpp-python"
        ) from None
    return LlamaCppBackend(path, config, progress=progress, measured=measured, drafts=drafts)


def _mlx(path: Path, config: EngineConfig, progress: Progressed, measured: bool) -> Backend:
    try:
        from localspec.backends.mlx.backend import MlxBackend
    except (ImportError, OSError) as error:
        raise BackendUnavailable(
            f"{model_name(path)} is an MLX directory, and mlx-lm cannot be imported: {error}",
            INSTALL_MLX,
        ) from None
    return MlxBackend(path, config, progress=progress, measured=measured)


def load_engine(
    choice: Choice,
    *,
    config: EngineConfig | None = None,
    progress: Progress | None = None,
    memory: bool = False,
    free: int | None = None,
) -> Engine:
    """Open target and draft, with what was learnt about them before; ``memory``: the n-gram memory too.

    ``free``: bytes of memory that may be used; None: what is free now. Raises :class:`ModelError` and
    :class:`OutOfMemory`; then nothing is left open.
    """
    config = config or EngineConfig()
    choice = _fitted(choice, config, free)
    reason = f"{choice.backend_reason}; {choice.draft_reason}"
    if choice.asked and choice.draft is not None:
        # Before anything is loaded: what cannot be a pair need not be waited for.
        reason += f"; {FITS[check_pair(read_tokens(choice.target), read_tokens(choice.draft))]}"

    def part(stage: str) -> Callable[[float], None]:
        return lambda fraction: progress(stage, fraction) if progress else None

    with contextlib.ExitStack() as opened:
        rendering = _rendering()
        if rendering is not None:
            opened.callback(rendering.end)
        target = open_backend(choice.target, config, part("target"), measured=False)
        opened.callback(target.free)
        target.model = choice.name
        draft: Backend | None = None
        try:
            draft = _open_draft(choice, target, config, part("draft"))
        except Exception as error:
            # Whatever a model raises that nobody asked for: it costs the draft.
            if choice.asked:
                raise
            reason = f"{choice.backend_reason}; {without(_told(error, choice))}"
        if draft is not None:
            opened.callback(draft.free)
        learning = Learning(
            target,
            draft,
            directory=_unless_broken(learnt_dir),
            paths=(choice.target, choice.draft if draft is not None else None),
            memory=_unless_broken(lambda: open_memory(choice.target, target.vocabulary))
            if memory and config.memory
            else None,
            chats=_unless_broken(lambda: open_chats(target, config)) if memory else None,
        )
        learning.know_rounding(target)
        engine = Engine(target, draft, config=config, learning=learning)
        if not target.capabilities.batches:
            reason += "; its sequences are computed one after the other"
        engine.reason = reason + _beyond_training(choice, config)
        if rendering is not None:
            with contextlib.suppress(EngineError):  # the first chat tells it
                engine.prepare_chats(rendering)
        opened.pop_all()
        return engine


def _rendering() -> RenderingProcess | None:
    """A process for the chat template, which is ready when the models are; None where none can be started,
    which the first chat tells."""
    with contextlib.suppress(LocalspecError):
        return RenderingProcess()
    return None


def _open_draft(
    choice: Choice, target: Backend, config: EngineConfig, progress: Callable[[float], None]
) -> Backend | None:
    """The draft model, if there is one. Raises what loading raises, and :class:`EngineError` for one that
    nobody asked for and that would be of no use."""
    if choice.draft is None:
        return None
    if target.capabilities.obstacle and not choice.asked:
        raise EngineError(target.capabilities.obstacle)
    # As many sequences as the target has, so that every request can have its own draft.
    sized = msgspec.structs.replace(config, parallel=target.capabilities.max_sequences)
    draft = open_backend(choice.draft, sized, progress, measured=False, drafts=True)
    if draft.capabilities.obstacle and not choice.asked:
        draft.free()
        raise ModelInvalid(f"of {choice.draft_name}, {draft.capabilities.obstacle}")
    draft.model = choice.draft_name or draft.model
    return draft


def _told(error: Exception, choice: Choice) -> str:
    """Why the draft that was chosen is left out; where that is the model's fault another is chosen next."""
    why = error.message if isinstance(error, LocalspecError) else f"{type(error).__name__}: {error}"
    log.warning("%s was chosen as the draft model, and is left out: %s", choice.draft, why)
    if isinstance(error, ModelError) and choice.draft is not None:
        note_failure(choice.target, choice.draft, why)
    return why


def _fitted(choice: Choice, config: EngineConfig, free: int | None) -> Choice:
    """Without a draft that was chosen where there is no memory for it; raises :class:`ModelTooLarge`, before
    anything is loaded, where there is none for what was asked for."""
    room = room_for(config, free).free(choice.target)
    if room is None:
        return choice
    needs = needs_of(choice.target, choice.draft, config, room)
    if choice.draft is not None and not choice.asked and needs.total > room:
        alone = needs_of(choice.target, None, config, room)
        if alone.total <= room:
            short = f"{size(needs.total)} are needed with {choice.draft_name}, {size(room)} are free"
            return choice._replace(draft=None, draft_reason=without(short))
    needs.check(choice.name, room)
    return choice


def room_for(config: EngineConfig, free: int | None = None) -> Room:
    """What a pair is to fit in: ``free`` bytes, or what is free when that is asked; a device's memory is its
    driver's to tell."""

    def left(target: Path) -> int | None:
        return None if _on_device(target, config) else free_memory() if free is None else free

    return Room(config, left)


def _on_device(model: Path, config: EngineConfig) -> bool:
    """Whether the weights go to memory that is not this machine's own, as Apple silicon's is."""
    if is_apple_silicon():
        return False
    try:
        if format_of(model) == "mlx":
            import mlx.core as mx

            return bool(mx.default_device() != mx.cpu)
        import llama_cpp

        return config.gpu_layers != 0 and bool(llama_cpp.llama_supports_gpu_offload())
    except (ImportError, OSError):
        return False  # whoever opens the model says what is missing


def _beyond_training(choice: Choice, config: EngineConfig) -> str:
    """Warns of an ``n_ctx`` larger than what the model was trained for; returns what to add to the reason."""
    # Without a wish the context is never larger: nothing to read the file for.
    trained = trained_context(choice.target) if config.n_ctx else None
    if trained is None or config.n_ctx <= trained:
        return ""
    told = f"n_ctx is {config.n_ctx}, but {choice.name} was trained for {trained} tokens"
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
    fingerprint = vocab_fp(real_tokens(model))
    return Memory(home.private_dir(home.data_dir() / "memory"), fingerprint, vocabulary.piece)


def open_chats(target: Backend, config: EngineConfig) -> Saved | None:
    """What was computed of this user's chats with this model, on this kind of machine; None, and nothing is
    left on disk, where none is to be kept."""
    model = f"{target.description}, {target.capabilities.n_ctx} cells, on {machine_name()}"
    name = hashlib.sha256(model.encode()).hexdigest()[:16]
    saved = Saved(home.private_dir(home.chat_caches_dir() / name), model, config.chat_cache_mb * MB)
    return saved if config.chat_cache_mb else None


def choose_here(
    model: str,
    draft: str,
    model_dirs: tuple[str, ...] = (),
    *,
    backend: str = "auto",
    config: EngineConfig = AS_IT_COMES,
    free: int | None = None,
) -> Choice:
    """As :func:`choose`, by what was measured on this machine and by the memory there is: what everybody
    asks who says or does something with a pair.

    ``config``: how it is to be loaded; ``free``: bytes that may be used; None: what is free now.
    """
    room = room_for(config, free)
    return choose(model, draft, model_dirs, backend=backend, speed=speed_of, room=room)


def speed_of(model: Path) -> float | None:
    """Seconds that a plain step of a model took on this machine, if one was measured."""
    directory = _unless_broken(learnt_dir)
    return None if directory is None else known_speed(directory, model)


def load(
    target: str | Path = "bundled",
    *,
    draft: str | Path = "auto",
    backend: str = "auto",
    memory: bool = False,
    **settings: Any,
) -> Engine:
    """Load a model, in this process.

    ``target`` and ``draft`` are paths, or names as the command takes them: those of ``model_dirs`` in
    ``config.toml``, too, of which nothing else is heeded. ``memory=True`` uses and fills this user's n-gram
    memory; ``settings`` are fields of :class:`EngineConfig` (``n_ctx``, ``threads``, …) and of
    :class:`Options` (``proposer``, ``temperature``, …), the latter as defaults for every request. Raises
    :class:`InvalidOptions` where that file is broken, too.
    """
    known = [name for name in EngineConfig.__struct_fields__ if name != "memory"]
    engine_values = {key: value for key, value in settings.items() if key in known}
    option_values = {key: value for key, value in settings.items() if key not in known}
    options = parse_options(option_values)
    try:
        config = msgspec.convert(engine_values, EngineConfig)
    except msgspec.ValidationError as error:
        raise InvalidOptions(f"invalid setting: {readable(error)}") from None
    model_dirs = load_config().model_dirs
    choice = choose_here(str(target), str(draft), model_dirs, backend=backend, config=config)
    engine = load_engine(choice, config=config, memory=memory)
    engine.options = options
    return engine
