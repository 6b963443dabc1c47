"""The overhead of localspec where a row of logits is long."""

from __future__ import annotations

from assets.bench.acceptance.random_model import LARGE_VOCABULARY, random_model
from localspec import home
from localspec.bench.bench import overheads_of
from localspec.bench.inflate import TARGET_SHAPE
from localspec.bench.measure import play_script, record
from localspec.bench.results import PLAIN, Contestant, Overhead
from localspec.bench.stand import Tell, load_stand
from localspec.bench.workload import load_workload
from localspec.models.bundled import BUNDLED_TARGET, bundled_model
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.proposer_kinds import LOOKUP

CASES = 2


def large_vocabulary_overheads(config: EngineConfig, tell: Tell) -> list[Overhead]:
    """Answer a few requests on a model of random weights, plainly and with prompt lookup."""
    tell("a large vocabulary", 0.0)
    path = home.cache_dir() / "bench" / f"random-{LARGE_VOCABULARY}-{TARGET_SHAPE.label}.gguf"
    if not path.exists():
        random_model(path, bundled_model(BUNDLED_TARGET), shape=TARGET_SHAPE)
    stand = load_stand(path, {}, config, tell)
    try:
        runs = []
        for script in record(stand, load_workload("chat")[:CASES]):
            for contestant in (Contestant(PLAIN), Contestant(LOOKUP.name, LOOKUP.name)):
                for run in play_script(stand, script, contestant):
                    run.contestant = contestant.name
                    runs.append(run)
        return overheads_of(runs, path.stem, stand)
    finally:
        stand.close()
