"""``edit-long`` after a restart: the value of an n-gram memory that outlived its process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from assets.bench.acceptance.results import Restart
from localspec.bench.measure import Script, play_script
from localspec.bench.results import Contestant, Run
from localspec.bench.scratch import scratch_memory
from localspec.bench.stand import Stand, Tell

MEMORY = Contestant("memory", "memory")


class Filled(NamedTuple):
    """Memories of a case: that filled by this model, and that filled by the draft model (None without)."""

    kept: Path
    other: Path | None


def measure_restart(stand: Stand, scripts: Sequence[Script], runs: int, tell: Tell) -> Iterator[Restart]:
    """Play the cases with ``--proposer memory`` alone; per repeat one line for every state of the memory.

    The memory is filled by a run of the same case in an engine that was closed since, with the model
    that is measured (``kept``) and with the first draft model (``other``). Every timed run has a copy of
    its own, without the effects of other repeats.
    """
    with filled_memories(stand, scripts) as memories:
        for repeat in range(runs):
            for number, state in enumerate(("empty", "kept", "other")):
                places = [_place(memory, state) for memory in memories]
                if state == "other" and None in places:
                    continue
                tell(f"warm-restart: {state}", (repeat + number / 3) / runs)
                played = _played(stand, scripts, places)
                yield _summary(state, repeat, played, diverged=_diverged(scripts, played))


def _place(memory: Filled, state: str) -> Path | None:
    return {"kept": memory.kept, "other": memory.other}.get(state)


def _played(stand: Stand, scripts: Sequence[Script], places: Sequence[Path | None]) -> list[Run]:
    runs: list[Run] = []
    for script, place in zip(scripts, places, strict=True):
        with scratch_memory(place) as memory:
            runs += play_script(stand, script, MEMORY, memory)
    return runs


def _diverged(scripts: Sequence[Script], runs: Sequence[Run]) -> int:
    steps = (step for script in scripts for step in script.steps)
    return sum(run.exact and run.text_hash != s.text_hash for run, s in zip(runs, steps, strict=True))


def _summary(state: str, repeat: int, runs: Sequence[Run], *, diverged: int) -> Restart:
    first = [run for run in runs if run.turn == 0]
    shares = memory_share(runs), memory_share(first)
    return Restart(state, repeat, *shares, s_per_token(runs), diverged, s_per_token(first))


def s_per_token(runs: Sequence[Run]) -> float:
    """Seconds of decoding per output token; the first token of an answer is the prompt's."""
    return sum(run.decode_s for run in runs) / max(sum(run.completion_tokens - 1 for run in runs), 1)


def memory_share(runs: Sequence[Run]) -> float:
    """The share of output tokens that came from memory."""
    tokens = sum(run.completion_tokens for run in runs)
    return sum(run.sources.get("memory", 0) for run in runs) / max(tokens, 1)


@contextmanager
def filled_memories(stand: Stand, scripts: Sequence[Script]) -> Iterator[list[Filled]]:
    """A memory per case and model that played it."""
    drafts = list(stand.drafts.values())[:1]
    with scratch_memory() as root:
        filled = []
        for number, script in enumerate(scripts):
            kept = _fill(stand, script, root / f"{number}-kept")
            others = [_fill(Stand(d, {}, stand.config), script, root / f"{number}-other") for d in drafts]
            filled.append(Filled(kept, others[0] if others else None))
        yield filled


def _fill(stand: Stand, script: Script, place: Path) -> Path:
    place.mkdir()
    for _ in play_script(stand, script, MEMORY, place):
        pass
    return place
