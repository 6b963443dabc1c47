"""The configuration, the default model, its draft, and the memory that both need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing

from localspec.config import Config, config_path, environment_options, load_config, parse_known, read_toml
from localspec.doctor import Finding, end_sentence, problem_of
from localspec.doctor.probe import Report
from localspec.errors import EngineBusy, LocalspecError
from localspec.models.catalogue import BUNDLED, CATALOGUE, DEFAULT
from localspec.models.fit import plan_context
from localspec.models.library import Sections, is_here
from localspec.models.machine import free_memory
from localspec.models.model import BACKENDS, Model
from localspec.models.pair import Pair, Room, choose, is_apple_silicon
from localspec.protocol.messages import DaemonStatus
from localspec.protocol.options import Options
from localspec.protocol.requests import EngineConfig
from localspec.ranks.peer import greet
from localspec.ranks.rpc import reach_server
from localspec.wording import MB, size

EDIT = "Correct it in config.toml; `localspec models list` shows the names."


def models(report: Callable[[str], Report], status: DaemonStatus | None) -> Iterator[Finding]:
    """Check the configuration, and the pair that it chooses. ``report`` gives the probe of a backend.
    Raises the errors of a configuration that is not valid."""
    path, config = config_path(), load_config()
    sections = Sections(config)
    options = sections.merge_options(environment_options())
    there = f"{path} is valid." if path.exists() else f"There is no {path}: the defaults apply."
    yield Finding("config", "ok", there)
    sentences = [f"A key is left out: {each}" for each in parse_known(read_toml(path), where=str(path))[1]]
    for name, error in sections.find_unresolved():
        sentences.append(f'The section [models."{name}"] matches no model: {error.message}')
    for sentence in sentences:
        yield Finding("config", "warning", end_sentence(sentence), EDIT)
    yield from _pair(sections, options, report, _free(config, status))


def nodes(config: Config) -> Iterator[Finding]:
    """Greet the machines that share the default model with this one, and measure their links."""
    sections = Sections(config)
    name = sections.merge_options(environment_options()).model or BUNDLED
    for node in sections.engine(name).nodes:
        try:
            with closing(greet(node)) as peer:
                latency_s = peer.measure_latency()
        except LocalspecError as error:
            yield problem_of("nodes", error)
        else:
            took = f"{1000 * latency_s:.2f} ms there and back"
            yield Finding("nodes", "ok", f"{peer.name} answers, with the same versions: {took}.")


def servers(config: Config) -> Iterator[Finding]:
    """Reach the RPC servers that share GGUF models with this machine."""
    engines = (config.engine, *(each.over(config.engine) for each in config.models.values()))
    named, protocol = {name: engine for engine in engines for name in engine.rpc}, None
    if named:
        from localspec.backends.llama_cpp import rpc  # loads llama.cpp

        try:
            protocol = rpc.protocol()
        except LocalspecError as error:
            yield problem_of("rpc", error)
    for name, engine in named.items():
        try:
            server = reach_server(name, engine, protocol)
        except LocalspecError as error:
            yield problem_of("rpc", error, level="warning" if isinstance(error, EngineBusy) else "problem")
        else:
            took = f"{1000 * server.seconds:.2f} ms there and back"
            yield Finding("rpc", "ok", f"{name} answers: {took}, {size(server.free)} of memory.")


def _free(config: Config, status: DaemonStatus | None) -> int:
    """Bytes that a pair can take: free ones and those of loaded models, at most memory_mb."""
    loaded = () if status is None else status.models
    free = free_memory() + sum(model.resident_bytes or 0 for model in loaded)
    return min(free, config.daemon.memory_mb * MB) if config.daemon.memory_mb else free


def _pair(
    sections: Sections, options: Options, report: Callable[[str], Report], free: int
) -> Iterator[Finding]:
    name, dirs = options.model or BUNDLED, sections.config.model_dirs
    engine = sections.engine(name)

    def room(target: Model) -> int | None:
        """Bytes for a target; None if it is loaded to a device's memory."""
        device = report(BACKENDS[target.format]).device
        is_whole = target.format == "mlx" or engine.gpu_layers != 0
        return None if is_whole and not is_apple_silicon() and device not in ("", "the CPU") else free

    try:
        pair = choose(name, "none", dirs, backend=options.backend or "auto")
    except LocalspecError as error:
        yield problem_of("model", error, _mend("model"))
        return
    sentence = f"{pair.target.name} is the default model, {pair.why}."
    if pair.target.problem:
        sentence += f" It cannot be used: {pair.target.problem}."
        yield Finding("model", "problem", sentence, _mend("model"))
        return
    if not report(pair.backend).usable:
        step = f"Repair {pair.backend}, as its own line says, or choose another model."
        yield Finding("model", "problem", f"{sentence} {pair.backend} cannot be used.", step)
        return
    if sections.lacks_default(environment_options()):
        sentence = f"{DEFAULT}, the default model, is not on this disk: {pair.target.name} answers instead."
        wanted = f"Run `localspec models pull {DEFAULT}` ({size(CATALOGUE[DEFAULT].size)})."
        yield Finding("model", "warning", sentence, wanted)
    else:
        yield Finding("model", "ok", sentence)
    try:
        draft = options.draft or "auto"
        pair = choose(name, draft, dirs, backend=options.backend or "auto", room=Room(engine, room))
        yield _pairing(pair, dirs)
    except LocalspecError as error:
        yield problem_of("pairing", error, _mend("draft"))
    yield _memory(pair, engine, room(pair.target))


def _pairing(pair: Pair, dirs: tuple[str, ...]) -> Finding:
    name, drafter, draft = pair.target.name, pair.drafter, pair.draft
    if draft is None:
        known = None if drafter.asked or name not in CATALOGUE else CATALOGUE[name].draft
        is_missing = known is not None and not is_here(known, dirs)
        wanted = f"`localspec models pull {known}` brings one." if is_missing else None
        return Finding("pairing", "ok", f"{name}: {drafter.why}.", wanted)
    chosen = drafter.why.removeprefix(f"{draft.name} drafts: ")
    why = "as configured" if drafter.asked else f"chosen by auto: {chosen}"
    return Finding("pairing", "ok", f"{draft.name} drafts for {name}, {why}.")


def _memory(pair: Pair, engine: EngineConfig, free: int | None) -> Finding:
    """The memory that a pair is to take, beside the bytes that it can take; None: a device's memory."""
    names = " with ".join(model.name for model in pair.models)
    if free is None:
        return Finding("memory", "ok", f"{names} goes to the device's memory, as far as that has room.")
    try:
        lower, needs = plan_context(pair.target, pair.draft, engine, free)
        needs.check(names, free)
    except LocalspecError as error:
        return problem_of("memory", error, level="warning")
    lowered = f", with a context of {lower.n_ctx} tokens" * (lower != engine)
    sentence = f"{names} needs {size(needs.total)} of {size(free)} that are free{lowered}."
    return Finding("memory", "ok", sentence)


def _mend(key: str) -> str:
    """The remedy for a wrong ``model`` or ``draft``."""
    name, other = f"LOCALSPEC_{key.upper()}", "NAME" if key == "model" else "auto"
    step = f"Choose another with `localspec config set {key} {other}`"
    return f"{f'Correct {name}' if os.environ.get(name) else step}; `localspec models list` shows the names."
