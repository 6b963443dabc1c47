"""The bundled model over two processes: the contract, the same texts however they are drafted, and those of
one process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from localspec.backends.base import Backend, Span, top_margin
from localspec.engine.engine import Engine
from localspec.engine.load import load
from localspec.engine.sequence import Sequence
from localspec.errors import InvalidOptions, LocalspecError, ModelInvalid
from localspec.models.model import model_at
from localspec.protocol.requests import EngineConfig
from localspec.ranks.backend import open_over_nodes
from tests.conformance.backend import BackendConformance
from tests.toys import answer, request, run_all

pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
from localspec.backends.mlx.backend import MlxBackend  # noqa: E402
from tests.mlx_pair import mlx_model

CONFIG = EngineConfig(n_ctx=512, parallel=4, prefill_chunk=16, nodes=("local",))
ALONE = EngineConfig(n_ctx=512, parallel=4, prefill_chunk=16)
TOLERANCE = 0.1
"""half precision: a row depends a little on how many stand beside it, and on how sums are split"""
PROMPTS = (
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fib",
    "import json\n\n\ndef load(path):\n    with open(path) as file:\n        ",
    "class Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n\n    def __",
)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Backend]:
    """One for all: a process can connect to other ranks once."""
    lost: list[LocalspecError] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.2 22")  # of the session of the daemon's start
        backend = open_over_nodes(model_at(mlx_model("stdlib-6m")), CONFIG, None, lost.append)
    yield backend
    assert lost == []
    backend.free()


@pytest.mark.slow
class TestConformance(BackendConformance):
    tolerance = TOLERANCE

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, ranks: Backend) -> Backend:
        return ranks


@pytest.fixture(scope="module")
def engines(ranks: Backend) -> Iterator[dict[str, Engine]]:
    """Two ranks, and one process, each with a draft model."""
    drafts = [MlxBackend(model_at(mlx_model("stdlib-1m")), ALONE) for _ in range(2)]
    alone = MlxBackend(model_at(mlx_model("stdlib-6m")), ALONE)
    yield {"two": Engine(ranks, drafts[0], config=CONFIG), "one": Engine(alone, drafts[1], config=ALONE)}
    for each in (*drafts, alone):
        each.free()


def answers(engine: Engine, proposer: str, temperature: float) -> list[list[int]]:
    asked = [
        request(prompt, proposer=proposer, temperature=temperature, seed=5, max_tokens=24, exactness="strict")
        for prompt in PROMPTS
    ]
    sequences: list[Sequence] = [engine.submit(each) for each in asked]
    run_all(engine, sequences)
    assert [each.error for each in sequences] == [None] * len(sequences)
    return [answer(each) for each in sequences]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_drafts_change_no_token(engines: dict[str, Engine], temperature: float) -> None:
    plain = answers(engines["two"], "none", temperature)
    for proposer in ("prompt-lookup", "draft", "auto"):
        assert answers(engines["two"], proposer, temperature) == plain, proposer


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_ranks_say_what_one_process_says(engines: dict[str, Engine]) -> None:
    two, one = answers(engines["two"], "draft", 0.0), answers(engines["one"], "none", 0.0)
    backend = engines["one"].target
    for prompt, own, other in zip(PROMPTS, two, one, strict=True):
        same = next((i for i, pair in enumerate(zip(own, other, strict=False)) if len({*pair}) > 1), None)
        if same is None:
            assert own == other
            continue
        sequence = backend.open()
        tokens = [*backend.vocabulary.encode(prompt, special=False), *other[:same]]
        row = backend.forward([Span(sequence, tokens, 1)]).rows(0, 1)[0]
        backend.close(sequence)
        assert top_margin(row) < TOLERANCE


def test_without_the_daemon_nodes_are_refused_before_a_model_is_loaded() -> None:
    with pytest.raises(InvalidOptions, match="in the daemon only"):
        load(mlx_model("stdlib-6m"), draft="none", nodes=("local",))


def test_a_rank_that_the_others_do_not_reach_is_ended() -> None:
    program = """from localspec.backends.mlx import native
from localspec.ranks.follower import free_port
native.CONNECT_S = 1
native.ring(0, [[free_port("127.0.0.1")], [free_port("127.0.0.1")]])"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == -signal.SIGALRM


def test_a_node_that_others_cannot_reach_is_refused() -> None:
    config = EngineConfig(nodes=("local", "mac-b"))
    with pytest.raises(InvalidOptions, match="cannot reach the node 'local'"):
        open_over_nodes(model_at(mlx_model("stdlib-6m")), config, None, lambda error: None)


def test_a_number_of_heads_that_does_not_divide_is_refused_before_a_node_is_asked() -> None:
    model = model_at(mlx_model("stdlib-1m"))
    with pytest.raises(ModelInvalid, match="num_key_value_heads = 1, not divisible by 2 machines"):
        open_over_nodes(model, CONFIG, None, lambda error: None)
