"""From names to an engine: choose the models, check that they fit together, load them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import pkgutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from localspec import home
from localspec.backends.base import Backend, ModelVocabulary
from localspec.config import load_config
from localspec.engine.engine import OWN, Engine
from localspec.engine.learning import Learning
from localspec.engine.prefixes import Saved
from localspec.errors import (
    INSTALL_MLX,
    BackendUnavailable,
    EngineError,
    InvalidOptions,
    LocalspecError,
    ModelInvalid,
    OutOfMemory,
)
from localspec.memory.memory import Memory
from localspec.models.directory import number_of
from localspec.models.fit import (
    device_bytes,
    divide_model,
    needs_beside,
    needs_of,
    nodes_of,
    part_of,
    plan_context,
    rest_of,
    servers_of,
)
from localspec.models.gguf import GgufHeader
from localspec.models.machine import free_memory, machine_name
from localspec.models.model import Model
from localspec.models.needs import Needs
from localspec.models.pair import Pair, Room, choose, is_apple_silicon, without
from localspec.models.records import learnt_dir
from localspec.models.vocabulary import vocab_fp
from localspec.protocol.frames import Drafted
from localspec.protocol.messages import Placement
from localspec.protocol.options import parse_options, readable
from localspec.protocol.requests import EngineConfig
from localspec.speculation.draft_model import measure
from localspec.wording import MB, count_noun, describe_placement, size

log = logging.getLogger(__name__)

T = TypeVar("T")

LOADERS = {"gguf": "llama_cpp.backend:LlamaCppBackend", "mlx": "mlx.backend:MlxBackend"}
"""the backends of formats, imported with the first model: they take seconds"""
AS_IT_COMES = EngineConfig()
DEVICE_CHUNK = 512
"""tokens of a prompt per forward on a GPU: an H100 reads a 1.5B 1.34 times as fast as in pieces of 256"""
AGAIN_SHARE = 0.8
"""share of the GPUs' free memory that is planned with once a load has failed there"""
ALONE = "; sequences of this model are computed one after the other"
WHOLE = "; only MLX models are shared with nodes, and GGUF models with the servers of rpc"
AGAIN = "Send the request again: the file is read anew."

Progressed = Callable[[float], None] | None
OverNodes = Callable[[Model, EngineConfig, Progressed], Backend]
"""loads a model over the machines of its settings"""
Progress = Callable[[str, float], None]
"""called with the part that is loading, "target" or "draft", and its fraction, 0 to 1"""


def open_backend(
    model: Model,
    config: EngineConfig,
    progress: Callable[[float], None] | None = None,
    *,
    drafts: bool = False,
    servers: Mapping[str, int] = {},
) -> Backend:
    """Load one model on the backend of its format; ``drafts``: as a draft model; ``servers``: the bytes that
    are free at RPC servers, by their addresses. Raises :class:`BackendUnavailable` if that backend cannot be
    imported, and what loading raises."""
    backend = _backend_of(model)
    if model.format != "mlx":
        backend = partial(backend, drafts=drafts, servers=servers)
    try:
        return backend(model, config, progress=progress)
    except ModelInvalid as error:
        if model.own_name in error.message:
            raise
        # A store's files are named by digests, which say nothing to the user.
        raise ModelInvalid(f"{model.own_name} cannot be used: {error.message}", error.remedy) from None


def _backend_of(model: Model) -> Callable[..., Backend]:
    try:
        backend: Callable[..., Backend] = pkgutil.resolve_name(f"localspec.backends.{LOADERS[model.format]}")
    except (ImportError, OSError) as error:
        what, remedy = "llama-cpp-python", "Install it: pip install llama-cpp-python"
        if model.format == "mlx":
            what, remedy = f"{model.own_name} is an MLX directory, and mlx-lm", INSTALL_MLX
        raise BackendUnavailable(f"{what} cannot be imported: {error}", remedy) from None
    return backend


def load_engine(
    pair: Pair,
    *,
    config: EngineConfig = AS_IT_COMES,
    progress: Progress | None = None,
    memory: bool | Path = False,
    free: int | None = None,
    over_nodes: OverNodes | None = None,
) -> Engine:
    """Load target and draft model; see :func:`load_target` and :func:`add_draft`. Raises what they raise; for
    a draft model that was requested and has no room, before anything is loaded."""
    room = room_for(config, free).free(pair.target)
    if pair.draft is not None and pair.drafter.asked and room is not None:
        needs_of(pair.target, pair.draft, config, room).check(pair.target.name, room)
    engine = load_target(
        pair, config=config, progress=progress, memory=memory, free=free, over_nodes=over_nodes
    )
    try:
        left = None if free is None else free - engine.needs.total
        drafted = add_draft(engine, pair, progress=progress, free=left)
    except BaseException:
        engine.close()
        raise
    engine.reason += f"; {drafted.why}"
    return engine


def load_target(
    pair: Pair,
    *,
    config: EngineConfig,
    progress: Progress | None = None,
    memory: bool | Path = False,
    free: int | None = None,
    over_nodes: OverNodes | None = None,
) -> Engine:
    """Load a target, with what was learnt about it before, and as many sequences as leave room for its draft
    model; ``memory``: also the n-gram memory and the caches of chats, or an n-gram memory in another
    directory alone.

    ``free``: bytes of memory that may be used; None: all that is free now. ``over_nodes``: loads it where
    there are nodes; None: they are refused. Raises :class:`ModelError`, :class:`NodeLost` and
    :class:`OutOfMemory`; then nothing is left open."""
    place = memory if isinstance(memory, Path) else None
    _check_current(pair.target)
    config = _adapt_settings(pair.target, config)
    shown, others = progress and partial(progress, "target"), nodes_of(pair.target, config)
    there = None if others else _device_bytes(pair.target, config)
    whole, room_of, asked = "", ", as many as have room" * (config.gpu_layers < 0), config
    if there is None:
        room = room_for(config, free).free(pair.target)
        config, needs = plan_target(pair, config, room)
    with contextlib.ExitStack() as opened:
        if others:
            target = _over_nodes(over_nodes, pair.target)(pair.target, config, shown)
        elif there is not None:
            target, config, needs = _open_divided(pair, config, there, free, shown)
        else:
            if needs.cells and room is not None:  # otherwise the backend finds how many sequences have room
                config = msgspec.structs.replace(config, parallel=needs.sequences)
            target, config = _open_whole(pair.target, config, shown)
            room_of = ", which refused its memory" * (config.gpu_layers != asked.gpu_layers)
        opened.callback(target.free)
        target.model = pair.target.name
        learning = Learning(
            target,
            directory=_unless_broken(learnt_dir),
            model=pair.target,
            nodes=others,
            memory=_unless_broken(lambda: open_memory(pair.target, target.vocabulary, place))
            if memory and config.memory
            else None,
            chats=_unless_broken(lambda: open_chats(target, config)) if memory is True else None,
        )
        learning.know_rounding(target)
        engine = Engine(target, config=config, learning=learning)
        engine.placement = placement = placement_of(pair.target, config)
        if placement is not None:
            whole = f"; {describe_placement(placement)}" + room_of * (placement.layers < placement.of)
        alone = "" if target.capabilities.batches else ALONE
        whole += WHOLE if (config.nodes or config.rpc) and not others else ""
        if config.n_ctx != asked.n_ctx:
            whole += f"; the context is lowered to {config.n_ctx} tokens: more have no room"
        if others and pair.target.format == "gguf":
            whole = f"; {count_noun(config.gpu_layers, 'layer')} on {', '.join(others)}"
        engine.reason, engine.needs = pair.why + alone + whole + _beyond_training(pair.target, config), needs
        opened.pop_all()
        return engine


def _adapt_settings(target: Model, config: EngineConfig) -> EngineConfig:
    """Return the settings with a chunk for the device, and with no more layers of experts than there are: for
    each llama.cpp tries a pattern."""
    if not config.prefill_chunk and _on_device(target, config):
        config = msgspec.structs.replace(config, prefill_chunk=DEVICE_CHUNK)
    if isinstance(header := target.header, GgufHeader):
        experts = min(config.cpu_experts, header.layers * header.has_experts)
        config = msgspec.structs.replace(config, cpu_experts=experts)
    return config


def plan_placement(target: Model, config: EngineConfig) -> tuple[Placement | None, EngineConfig]:
    """Return the place of a model that would be loaded now, and its settings; raises :class:`ModelError`."""
    config = _adapt_settings(target, config)
    there = None if nodes_of(target, config) else _device_bytes(target, config)
    if there is not None:
        config = divide_model(target, config, there, free_memory())
    return placement_of(target, config), config


def placement_of(target: Model, config: EngineConfig) -> Placement | None:
    """Return the place of a model that is loaded with these settings; None without a GPU, and where other
    machines share the model."""
    if nodes_of(target, config):
        return None
    try:
        if isinstance(header := target.header, GgufHeader):
            native = _llama_library()
            gpus, of = native.list_gpus(), header.layers + 1
            used = native.gpus() or gpus  # integrated ones only without others
            names, layers = [gpus[each].name for each in used], min(native.gpu_layers(config), of)
        else:
            import mlx.core as mx  # the backend takes 3 s

            is_there = mx.default_device().type == mx.DeviceType.gpu
            names = [str(mx.device_info().get("device_name", "GPU"))] if is_there else []
            layers = of = number_of(header.config, "num_hidden_layers") or 1
    except (ImportError, OSError):
        return None  # loading the model reports what is missing
    there = max(0, config.cpu_experts - (of - layers))  # the first layers are the processor's
    return Placement(tuple(names), layers, of, there) if names else None


def add_draft(
    engine: Engine,
    pair: Pair,
    number: int = OWN,
    *,
    progress: Progress | None = None,
    free: int | None = None,
) -> Drafted:
    """Load the draft model of a pair, if it has one, beside the engine's target; ``free``: as in
    :func:`load_target`. One that was not requested is left out where it cannot be used. Otherwise this raises
    :class:`ModelError` and :class:`OutOfMemory`."""
    if pair.draft is None:
        return Drafted(why=pair.drafter.why)
    try:
        draft, needs = _open_draft(pair, pair.draft, engine, progress and partial(progress, "draft"), free)
    except Exception as error:
        # No error of a draft model that was chosen automatically may cost more than the drafts.
        if pair.drafter.asked:
            raise
        why = error.message if isinstance(error, LocalspecError) else f"{type(error).__name__}: {error}"
        log.warning("the draft model %s is left out: %s", pair.draft.path, why)
        return Drafted(why=without(why))
    known = engine.learning.know_draft(draft, pair.draft)
    if engine.config.idle_measuring:
        measure(draft, known.costs)
    engine.add_draft(draft, number)
    return Drafted(True, pair.drafter.why, needs.total, needs.mapped)


def _over_nodes(over_nodes: OverNodes | None, model: Model) -> OverNodes:
    _backend_of(model)  # raises if it cannot be imported
    if over_nodes is None:
        remedy = "Leave out --no-daemon, or set none: `--opt nodes='[]'`, for GGUF `--opt rpc='[]'`."
        raise InvalidOptions("a model over several machines runs in the daemon only", remedy)
    return over_nodes


def _check_current(model: Model) -> None:
    """Raise :class:`ModelInvalid` if a file is there and has changed since the model was chosen."""
    if not model.is_current and model.path.exists():
        raise ModelInvalid(f"a file of {model.own_name} has changed since it was chosen", AGAIN)


def _open_draft(
    pair: Pair, model: Model, engine: Engine, progress: Progressed, free: int | None
) -> tuple[Backend, Needs]:
    """Load the draft model. Raises what loading raises, :class:`ModelTooLarge`, and :class:`EngineError` or
    :class:`ModelInvalid` if it was chosen automatically and cannot be used."""
    target, limits = engine.target, engine.target.capabilities
    if limits.obstacle and not pair.drafter.asked:
        raise EngineError(limits.obstacle)
    _check_current(model)
    needs = needs_beside(pair.target, model, engine.config, limits.max_sequences)
    # As many sequences as the target has, so that every request can have its own draft.
    sized = msgspec.structs.replace(engine.config, parallel=limits.max_sequences, nodes=(), rpc=())
    layers = -1 if engine.config.gpu_layers else 0  # the number is about the target
    sized = msgspec.structs.replace(sized, gpu_layers=layers, cpu_experts=-1)

    def load_draft(sized: EngineConfig) -> Backend:
        room = room_for(sized, free).free(pair.target)
        if room is not None:
            needs.check(f"the draft model {model.name} beside {target.model}", room)
        return open_backend(model, sized, progress, drafts=True)

    here, there = msgspec.structs.replace(sized, gpu_layers=0), _device_bytes(model, sized)
    if there is not None and device_bytes(model, sized) > there:
        sized = here
    try:
        draft = load_draft(sized)
    except OutOfMemory as error:
        if model.format == "mlx" or not _on_device(model, sized):
            raise
        log.warning("%s; the draft model is loaded on the processor", error.message)
        draft = load_draft(here)
    if draft.capabilities.obstacle and not pair.drafter.asked:
        draft.free()
        raise ModelInvalid(f"{model.name} cannot draft: {draft.capabilities.obstacle}")
    draft.model = model.name
    return draft, needs


def _open_whole(model: Model, config: EngineConfig, progress: Progressed) -> tuple[Backend, EngineConfig]:
    """Load a model on one device; on the processor where a GPU that shares its memory has too little."""
    try:
        return open_backend(model, config, progress), config
    except OutOfMemory as error:
        if model.format == "mlx" or config.gpu_layers > 0 or not _on_device(model, config):
            raise
        log.warning("%s; it is loaded again on the processor", error.message)
        config = msgspec.structs.replace(config, gpu_layers=0)
        return open_backend(model, config, progress), config


def _open_divided(
    pair: Pair, config: EngineConfig, there: int, free: int | None, progress: Progressed
) -> tuple[Backend, EngineConfig, Needs]:
    """Load a GGUF model with as many layers as have room in ``there`` bytes of this machine's GPUs, and once
    more with fewer where their memory was less; returns the settings, and the memory that it takes here."""

    def count_bytes(plan: EngineConfig) -> int:
        return part_of(pair.target, plan).needs(None, plan).total

    def plan_load(there: int) -> tuple[EngineConfig, Needs]:
        here = free_memory() if free is None else free
        plan = divide_model(pair.target, config, there, here)
        if pair.draft is not None and not config.parallel:  # it may take sequences of the target, not layers
            fewer = (msgspec.structs.replace(plan, parallel=n) for n in range(plan.parallel, 0, -1))
            beside = (each for each in fewer if count_bytes(each) + device_bytes(pair.draft, each) <= there)
            plan = next(beside, plan)
        needs = rest_of(pair.target, plan).needs(None, plan, here)
        needs.check(f"the part of {pair.target.name} that is not on the GPU", here)
        return plan, needs

    plan, needs = plan_load(there)
    try:
        return open_backend(pair.target, plan, progress), plan, needs
    except OutOfMemory as error:
        left = int(AGAIN_SHARE * min(count_bytes(plan), _device_bytes(pair.target, config) or 0))
        log.warning("%s; it is loaded again with %s of the GPU's memory", error.message, size(left))
        plan, needs = plan_load(left)
        return open_backend(pair.target, plan, progress), plan, needs


def plan_target(pair: Pair, config: EngineConfig, room: int | None) -> tuple[EngineConfig, Needs]:
    """Return the settings and the memory of the target, with as many sequences as fit into ``room`` bytes
    beside the draft model, or without it if both do not fit, and with a smaller context if it does not fit
    otherwise; None: no limit. Raises :class:`ModelTooLarge`, before anything is loaded, if the target alone
    does not fit."""
    both = needs_of(pair.target, pair.draft, config, room)
    sequences = both.sequences if room is None or both.total <= room else config.parallel
    lower, alone = plan_context(pair.target, None, msgspec.structs.replace(config, parallel=sequences), room)
    if room is not None:
        alone.check(pair.target.name, room)
    return msgspec.structs.replace(config, n_ctx=lower.n_ctx), alone


def room_for(config: EngineConfig, free: int | None = None) -> Room:
    """The memory for a pair: ``free`` bytes or, if that is None, all that is free when it is read; on a
    device with memory of its own with what is free there, or unknown."""

    def count_free(target: Model) -> int | None:
        here = free_memory() if free is None else free
        if servers_of(target, config) or not _on_device(target, config):
            return here
        return None if target.format == "mlx" else here + (_device_bytes(target, config) or 0)

    return Room(config, count_free)


def _device_bytes(model: Model, config: EngineConfig) -> int | None:
    """Return the bytes for a GGUF model in memory of GPUs' own; None where it goes to none."""
    if model.format == "mlx" or not _on_device(model, config):
        return None
    found: int | None = _llama_library().free_bytes(config)
    return found


def _on_device(model: Model, config: EngineConfig) -> bool:
    """Return True if the weights go to a device's own memory; Apple silicon shares the machine's."""
    if is_apple_silicon():
        return False
    try:
        if model.format == "mlx":
            import mlx.core as mx

            return bool(mx.default_device() != mx.cpu)
        return bool(_llama_library().gpu_layers(config))
    except (ImportError, OSError):
        return False  # loading the model reports what is missing


def _llama_library() -> Any:
    """Raises :class:`ImportError` or :class:`OSError` where the library is not installed, or broken."""
    from localspec.backends.llama_cpp import native

    return native


def _beyond_training(target: Model, config: EngineConfig) -> str:
    """Warn of an ``n_ctx`` larger than the model was trained for; return the text to add to the reason."""
    # Without a set n_ctx the context is never larger, and the file need not be read.
    trained = target.description.context if config.n_ctx else None
    if trained is None or config.n_ctx <= trained:
        return ""
    warning = f"n_ctx is {config.n_ctx}, but {target.name} was trained for {trained} tokens"
    log.warning("%s: beyond that length answers may make no sense", warning)
    return f"; {warning}"


def _unless_broken(place: Callable[[], T]) -> T | None:
    """Return ``place()``, or None with a warning if it fails: learning needs a disk, answering does not."""
    try:
        return place()
    except LocalspecError as error:
        log.warning("nothing is kept on disk: %s. %s", error.message, error.remedy)
        return None


def open_memory(model: Model, vocabulary: ModelVocabulary, place: Path | None = None) -> Memory:
    """Open the n-gram memory for models with this model's vocabulary; ``place`` None: this user's."""
    fingerprint = model.description.vocab_fp or vocab_fp({})
    return Memory(place or home.private_dir(home.data_dir() / "memory"), fingerprint, vocabulary.piece)


def open_chats(target: Backend, config: EngineConfig) -> Saved | None:
    """Open the caches of chats with this model on this machine; without ``chat_cache_mb`` delete them."""
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
) -> Pair:
    """Return the pair that :func:`choose` finds, by measurements on this machine and by its memory. Every
    command that shows or uses a pair calls this. ``config``: the settings to load it with; ``free``: bytes
    that may be used; None: all that is free now."""
    return choose(model, draft, model_dirs, backend=backend, room=room_for(config, free))


def load(
    target: str | Path = "bundled",
    *,
    draft: str | Path = "auto",
    backend: str = "auto",
    memory: bool = False,
    **settings: Any,
) -> Engine:
    """Load a model in this process, and return its engine.

    ``target`` and ``draft`` are paths, or names as on the command line, also of models in the ``model_dirs``
    of ``config.toml``; its other settings do not apply. ``memory=True`` uses and fills this user's n-gram
    memory. ``settings`` are fields of :class:`EngineConfig` (``n_ctx``, ``threads``, …) and of
    :class:`Options` (``proposer``, ``temperature``, …), the latter as defaults for every request. Raises
    :class:`InvalidOptions` also if ``config.toml`` is invalid."""
    known = [name for name in EngineConfig.__struct_fields__ if name != "memory"]
    engine_values = {key: value for key, value in settings.items() if key in known}
    options = parse_options({key: value for key, value in settings.items() if key not in known})
    try:
        config = msgspec.convert(engine_values, EngineConfig)
    except msgspec.ValidationError as error:
        message = f"invalid setting: {readable(error)}"
        raise InvalidOptions(message, "See `help(localspec.load)` for the settings.") from None
    pair = choose_here(str(target), str(draft), load_config().model_dirs, backend=backend, config=config)
    engine = load_engine(pair, config=config, memory=memory)
    engine.options = options
    return engine
