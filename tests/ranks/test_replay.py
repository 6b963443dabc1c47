"""Another rank does what the first one does, whatever the engine does: on toy models, in one process."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Never

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.backends.base import Span
from localspec.engine.engine import Engine
from localspec.errors import EngineBusy, EngineError, LocalspecError, NodeLost
from localspec.protocol.frames import encode_frame
from localspec.protocol.requests import EngineConfig
from localspec.ranks import frames
from localspec.ranks.backend import Ranks
from localspec.ranks.follower import CHECKED, digest_of, replay
from localspec.ranks.frames import Choices, Frame
from localspec.ranks.peer import Peer
from tests.toy import ToyBackend
from tests.toys import answer, request, run_all, small_markov

CONFIG = EngineConfig(prefill_chunk=4)


class Share(ToyBackend):
    """A toy with the check that a rank has."""

    refused = False

    def check(self, batch: Sequence[Span]) -> None:
        if self.refused:
            raise EngineError("not possible")


class Direct(Peer):
    """A node that replays each frame as it is sent, on a toy of its own."""

    def __init__(self, seed: int) -> None:
        super().__init__("mac-b", io.BytesIO(), io.BytesIO())
        self.toy = ToyBackend(small_markov(seed), n_ctx=96)
        self.replayed: list[Frame] = []

    def send(self, *sent: Frame) -> None:
        for frame in sent:
            if isinstance(frame, Choices):
                self.choices = frame
            elif isinstance(frame, frames.Call):
                self.replayed.append(frame)
                received = frames.read(io.BytesIO(encode_frame(frame)))
                assert received is not None
                replay(self.toy, received, self)


def over_two(seed: int = 1, other: int = 1) -> tuple[Ranks, Direct, list[LocalspecError]]:
    """The first rank's backend with one node, whose toy has the seed ``other``, and the losses."""
    node, lost = Direct(other), list[LocalspecError]()
    return Ranks(Share(small_markov(seed), n_ctx=96), [node], lost.append), node, lost


@given(
    seed=st.integers(0, 20),
    prompts=st.lists(st.text(alphabet="abcdef", min_size=1, max_size=12), min_size=1, max_size=3),
    proposer=st.sampled_from(["none", "prompt-lookup", "draft", "auto"]),
    temperature=st.sampled_from([0.0, 0.9]),
)
def test_all_ranks_hold_the_same(seed: int, prompts: list[str], proposer: str, temperature: float) -> None:
    ranks, node, lost = over_two(seed, seed)
    draft = small_markov(seed + 1000)
    one = Engine(ToyBackend(small_markov(seed), n_ctx=96), ToyBackend(draft, n_ctx=96), config=CONFIG)
    two = Engine(ranks, ToyBackend(draft, n_ctx=96), config=CONFIG)
    texts = []
    for engine in (one, two):
        asked = [
            request(p, proposer=proposer, temperature=temperature, seed=7, max_tokens=40) for p in prompts
        ]
        sequences = [engine.submit(each) for each in asked]
        run_all(engine, sequences)
        texts.append([answer(each) for each in sequences])
    assert texts[0] == texts[1]
    assert not lost
    held = ranks._inner
    assert isinstance(held, ToyBackend)
    assert held._cache == node.toy._cache


def test_a_refused_call_is_not_replayed() -> None:
    ranks, node, _ = over_two()
    for _ in range(ranks.capabilities.max_sequences):
        ranks.open()
    done = list(node.replayed)
    with pytest.raises(EngineBusy):
        ranks.fork(0, 0)
    assert isinstance(ranks._inner, Share)
    ranks._inner.refused = True
    with pytest.raises(EngineError, match="not possible"):
        ranks.forward([Span(0, [1], 1)])
    assert node.replayed == done


def test_an_error_of_any_kind_in_a_forward_is_the_loss_of_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, _, lost = over_two()
    sequence = ranks.open()

    def failing(batch: Sequence[Span]) -> Never:
        raise RuntimeError("no memory")

    monkeypatch.setattr(ranks._inner, "forward", failing)
    with pytest.raises(NodeLost):
        ranks.forward([Span(sequence, [1], 1)])
    assert len(lost) == 1


def test_other_choices_are_the_loss_of_the_node() -> None:
    ranks, _, lost = over_two(1, 2)
    sequence = ranks.open()
    with pytest.raises(NodeLost, match="the ranks disagree: node mac-b chose other tokens"):
        for token in range(3 * CHECKED):
            ranks.forward([Span(sequence, [token % 6 + ord("a")], 1)])
    assert len(lost) == 1


def test_a_node_with_another_result_stops() -> None:
    node = Direct(1)
    with pytest.raises(EngineError, match="the ranks disagree"):
        replay(node.toy, frames.Change("open", [], 1), node)


def test_the_digest_depends_on_every_choice() -> None:
    assert len({digest_of(each) for each in ([], [1], [1, 2], [12], [2, 1])}) == 5
