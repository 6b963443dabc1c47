"""The references as contestants: those for a model, and those of them that are worth repeating."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec.backends.base import Vocabulary
from localspec.bench.contestant import attempt
from localspec.bench.measure import Step, text_hash
from localspec.bench.references import (
    SETTINGS,
    LlamaPromptLookup,
    LlamaServer,
    RawLoop,
    Reference,
    Setting,
    find_llama_server,
    question_of,
)
from localspec.bench.results import Contestant, Run
from localspec.errors import INSTALL_MLX, BackendUnavailable
from localspec.models.description import format_of
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.requests import Request

SERVER, MLX_LM = "llama-server", "mlx-lm"
MLX_DRAFTS = (2, 1, 4)
"""draft tokens a round, mlx-lm's own default first"""
CPU_TOKENS = 2
"""``num_pred_tokens`` that llama-cpp-python advises on a CPU"""


class Rival(NamedTuple):
    """A reference that can be opened. ``kind`` None: it has only one setting."""

    contestant: Contestant
    open: Callable[[], Reference]
    kind: str | None = None
    is_default: bool = False


def rivals_of(target: Path, draft: Path | None, config: EngineConfig, program: Path | None) -> list[Rival]:
    """All references for a pair of its format; llama-server where it is found.

    Raises :class:`BackendUnavailable` if ``program`` is given and not found.
    """
    if format_of(target) == "mlx":
        return _of_mlx(target, draft, config)
    found = [
        _rival("llama.cpp", lambda: RawLoop(target, config)),
        _rival("llama-cpp-python lookup n=2 k=10", lambda: LlamaPromptLookup(target, config)),
        _rival(
            f"llama-cpp-python lookup n=2 k={CPU_TOKENS}",
            lambda: LlamaPromptLookup(target, config, k=CPU_TOKENS),
        ),
    ]
    try:
        server = find_llama_server(program)
    except BackendUnavailable:
        if program is not None:
            raise
        return found
    kinds: set[str] = set()
    for setting in SETTINGS:
        if draft is not None or not setting.needs_draft:
            kind = setting.name.partition(" ")[0]
            opened = _server(target, setting, draft, config, server)
            found.append(_rival(f"{SERVER} {setting.name}", opened, kind, kind not in kinds))
            kinds.add(kind)
    return found


def _of_mlx(target: Path, draft: Path | None, config: EngineConfig) -> list[Rival]:
    try:
        from localspec.bench.references.mlx_lm import MlxLm
    except (ImportError, OSError) as error:
        raise BackendUnavailable(f"mlx-lm cannot be imported: {error}", INSTALL_MLX) from None
    found = [_rival(MLX_LM, lambda: MlxLm(target, config))]
    for k in MLX_DRAFTS if draft is not None else ():
        name = f"{MLX_LM} draft k={k}"
        drafting = partial(MlxLm, target, config, draft=draft, k=k)
        found.append(_rival(name, drafting, f"{MLX_LM} draft", k == MLX_DRAFTS[0]))
    return found


def _rival(
    name: str, opened: Callable[[], Reference], kind: str | None = None, is_default: bool = False
) -> Rival:
    return Rival(Contestant(name, kind or name, reference=True), opened, kind, is_default)


def _server(
    target: Path, setting: Setting, draft: Path | None, config: EngineConfig, program: Path
) -> Callable[[], Reference]:
    return lambda: LlamaServer(target, setting, draft=draft, config=config, program=program)


def worth_repeating(rivals: Iterable[Rival], runs: Sequence[Run]) -> list[Rival]:
    """Defaults, and the fastest setting of each kind in ``runs``, the runs of one workload."""
    rivals = list(rivals)
    speeds = {rival.contestant.name: _speed(runs, rival.contestant.name) for rival in rivals}
    best: dict[str | None, str] = {}
    for rival in rivals:
        name = rival.contestant.name
        if rival.kind not in best or speeds[name] > speeds[best[rival.kind]]:
            best[rival.kind] = name
    return [r for r in rivals if r.kind is None or r.is_default or best[r.kind] == r.contestant.name]


def _speed(runs: Iterable[Run], name: str) -> float:
    mine = [run for run in runs if run.contestant == name]
    seconds = sum(run.decode_s for run in mine)
    return sum(run.completion_tokens - 1 for run in mine) / seconds if seconds else 0.0


class Player:
    """A reference as a contestant; see :class:`localspec.bench.measure.Guest`."""

    def __init__(self, reference: Reference, vocabulary: Vocabulary, n_ctx: int) -> None:
        self._reference, self._vocabulary, self._n_ctx = reference, vocabulary, n_ctx

    def play(self, steps: Sequence[Step]) -> Iterator[Run]:
        """All turns of a case, from a fresh start."""
        self._reference.fresh()
        for step in steps:
            question = question_of(self._fitting(step), self._vocabulary, self._n_ctx)
            answer = self._reference.answer(question)
            tokens = answer.completion_tokens
            # localspec counts from the first token to the last; some references count the end token as well.
            counted = max(tokens - 1, 0) / answer.decoded if answer.decoded else 0.0
            yield Run(
                workload=step.log.workload,
                case=step.log.case,
                turn=step.log.turn,
                contestant="",
                repeat=0,
                prompt_tokens=len(question.tokens),
                completion_tokens=tokens,
                text_hash=text_hash(answer.text),
                ttft_s=answer.ttft_s,
                decode_s=answer.decode_s * counted,
                total_s=answer.ttft_s + answer.decode_s,
                drafted=answer.drafted,
                accepted=answer.accepted,
                exact=step.request.options.temperature == 0,
            )

    def _fitting(self, step: Step) -> Request:
        """Return the request of a step, with ``max_tokens`` limited to the room behind the prompt.

        localspec's engine stops its contestants at the end of the context; a reference might go on.
        """
        options, room = step.request.options, self._n_ctx - len(step.log.prompt)
        most = room if options.max_tokens is None else min(options.max_tokens, room)
        return msgspec.structs.replace(
            step.request, options=msgspec.structs.replace(options, max_tokens=most)
        )


@contextmanager
def opened(
    rivals: Iterable[Rival], vocabulary: Vocabulary, n_ctx: int, failures: dict[str, str]
) -> Iterator[Mapping[str, Player]]:
    """Players by contestant's name; all are closed at the end. ``failures`` gets errors of opening."""
    with ExitStack() as stack:
        players = {}
        for rival in rivals:
            with attempt(rival.contestant, failures):
                reference = rival.open()
                stack.callback(reference.close)
                players[rival.contestant.name] = Player(reference, vocabulary, n_ctx)
        yield players
