"""The draft model: its cache follows the context through rejections, and it drafts its own greedy text."""

from __future__ import annotations

import json
import random

import pytest

from localspec.errors import EngineError
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.proposer import Proposer
from localspec.speculation.sampling import SamplingParams
from tests.conformance.proposer import GREEDY, WARM, ProposerConformance, ask
from tests.toy import ToyBackend, ToyVocabulary, markov
from tests.toys import small_markov

SIZE = ToyVocabulary.size


class TestDraftModel(ProposerConformance):
    vocabulary_size = SIZE

    def make(self) -> Proposer:
        return DraftModel(ToyBackend(small_markov(2)), SIZE)


def greedy_continuation(backend: ToyBackend, context: list[int], k: int) -> list[int]:
    said = list(context)
    for _ in range(k):
        logits = list(backend.rule(said))
        said.append(logits.index(max(logits)))
    return said[len(context) :]


def test_it_drafts_what_the_draft_model_would_say() -> None:
    backend = ToyBackend(markov(seed=5))
    draft = DraftModel(backend, SIZE).propose([ask([10, 20, 30], 5)])[0]
    assert list(draft.tokens) == greedy_continuation(backend, [10, 20, 30], 5)
    assert draft.q is None and draft.source == "draft"


@pytest.mark.parametrize("accepted", range(5))
def test_the_cache_is_right_after_any_number_of_accepted_tokens(accepted: int) -> None:
    """After full acceptance the last draft token was never fed; after less, the tail must go."""
    backend = ToyBackend(markov(seed=6))
    proposer, context = DraftModel(backend, SIZE), [1, 2, 3]
    first = proposer.propose([ask(context, 4)])[0]
    context += [*first.tokens[:accepted], 77]
    second = proposer.propose([ask(context, 4)])[0]
    assert list(second.tokens) == greedy_continuation(backend, context, 4)
    assert backend.tokens(0) == [*context, *second.tokens[:-1]]


def test_nothing_is_fed_twice() -> None:
    backend = ToyBackend(markov(seed=6))
    proposer, context = DraftModel(backend, SIZE), list(range(30))
    for _ in range(10):
        draft = proposer.propose([ask(context, 3)])[0]
        context += [*draft.tokens, 5]
    fed = sum(len(span.tokens) for batch in backend.forwards for span in batch)
    # The prompt once; then, each round, the token before the bonus, the bonus and two drafts.
    assert fed == 30 + 2 + 9 * 4


def test_a_context_changed_by_other_proposers_is_caught_up_with() -> None:
    backend, rng = ToyBackend(small_markov(1)), random.Random(3)
    proposer, context = DraftModel(backend, SIZE), [97, 98]
    for _ in range(40):
        if rng.random() < 0.5:
            draft = proposer.propose([ask(context, rng.randrange(1, 5))])[0]
            assert list(draft.tokens) == greedy_continuation(backend, context, len(draft.tokens))
            context += draft.tokens[: rng.randrange(len(draft.tokens) + 1)]
        context += [97 + rng.randrange(6) for _ in range(rng.randrange(1, 4))]


def test_a_long_prompt_is_fed_in_chunks() -> None:
    """A chunk a round: other requests in the batch do not wait for all of it."""
    backend = ToyBackend(markov(), n_ctx=3000)
    proposer, context = DraftModel(backend, SIZE), [7] * 700
    drafts = []
    for _ in range(3):
        drafts += proposer.propose([ask(context, 2)])
        context.append(7)
    assert [bool(draft.tokens) for draft in drafts] == [False, False, True]
    assert "reading the context" in drafts[0].reason
    widths = [sum(len(span.tokens) for span in batch) for batch in backend.forwards]
    assert widths == [256, 256, 190, 1]


def test_a_draft_of_a_shorter_context_is_off_beyond_it() -> None:
    proposer = DraftModel(ToyBackend(markov(), n_ctx=16), SIZE)
    assert len(proposer.propose([ask([1] * 14, 4)])[0].tokens) == 2
    assert proposer.propose([ask([1] * 16, 4)])[0].tokens == ()
    assert proposer.propose([ask([1] * 40, 4)])[0].tokens == ()


def test_ids_above_the_smaller_vocabulary_are_never_drafted() -> None:
    def rule(context: object) -> list[float]:
        return [float(token) for token in range(SIZE)]

    assert DraftModel(ToyBackend(rule), 100).propose([ask([1], 3)])[0].tokens == (99, 99, 99)


def test_sequences_of_a_batch_draft_together() -> None:
    backend = ToyBackend(markov())
    asks = [ask([1, 2], 4, request=1), ask([3], 2, request=2), ask([4, 5, 6], 0, request=3)]
    drafts = DraftModel(backend, SIZE).propose(asks)
    assert [len(d.tokens) for d in drafts] == [4, 2, 0]
    assert [len(batch) for batch in backend.forwards] == [2, 2, 1, 1]


def test_the_next_request_begins_with_what_the_last_one_left() -> None:
    backend = ToyBackend(markov())
    proposer, text = DraftModel(backend, SIZE), list(range(100))
    proposer.propose([ask(text, 2, request=1)])
    proposer.stop(1)
    fed = len(backend.forwards)
    longer = [*text, 5, 6]
    draft = proposer.propose([ask(longer, 2, request=2)])[0]
    assert list(draft.tokens) == greedy_continuation(backend, longer, 2)
    assert [len(span.tokens) for batch in backend.forwards[fed:] for span in batch] == [2, 1]


def test_a_text_that_shares_nothing_begins_anew() -> None:
    backend = ToyBackend(markov())
    proposer = DraftModel(backend, SIZE)
    proposer.propose([ask([1, 2, 3], 2, request=1)])
    proposer.stop(1)
    draft = proposer.propose([ask([9, 8, 7], 2, request=2)])[0]
    assert list(draft.tokens) == greedy_continuation(backend, [9, 8, 7], 2)


def test_idle_sequences_give_way_to_requests() -> None:
    backend = ToyBackend(markov(), max_sequences=2)
    proposer = DraftModel(backend, SIZE)
    for request in range(10):
        proposer.propose([ask([request, 2], 2, request=request)])
        proposer.propose([ask([request, 3], 2, request=100 + request)])
        assert backend.open_sequences <= 2
        proposer.stop(request)
        proposer.stop(100 + request)
    assert backend.open_sequences <= 2


def test_tokens_that_the_draft_model_does_not_have_switch_it_off() -> None:
    backend = ToyBackend(markov())
    proposer, context = DraftModel(backend, SIZE + 50), [1, 2, SIZE + 3]
    assert proposer.propose([ask(context, 2)])[0].tokens == ()
    known = [1, 2]
    assert proposer.propose([ask(known, 2, request=2)])[0].tokens
    known.append(SIZE + 3)
    assert proposer.propose([ask(known, 2, request=2)])[0].tokens == ()


class Strict:
    """A gate that passes so many tokens and records its calls."""

    def __init__(self, admitted: int) -> None:
        self.left = admitted
        self.evidence: list[int] = []

    def goes_on(self) -> bool:
        return self.left > 0

    def admits(self, evidence: int) -> bool:
        self.evidence.append(evidence)
        self.left -= 1
        return self.left >= 0


@pytest.mark.parametrize("admitted", range(4))
@pytest.mark.parametrize("params", [GREEDY, WARM])
def test_a_gate_ends_the_draft_before_a_token_is_sampled(admitted: int, params: SamplingParams) -> None:
    backend, gate = ToyBackend(small_markov(2)), Strict(admitted)
    proposer = DraftModel(backend, SIZE)
    context = [97, 98]
    draft = proposer.propose([ask(context, 6, params=params)._replace(gate=gate)])[0]
    assert len(draft.tokens) == admitted == len(draft.evidence)
    # What it was asked is what it says of each token; where it ends, no further row is computed.
    assert tuple(gate.evidence[:admitted]) == draft.evidence
    assert len(backend.forwards) == max(admitted, 1)


def test_the_cache_is_right_after_a_draft_that_was_ended() -> None:
    backend = ToyBackend(markov(seed=6))
    proposer, context = DraftModel(backend, SIZE), [1, 2, 3]
    for admitted in (0, 2, 0, 1, 3, 0):
        proposer.propose([ask(context, 4)._replace(gate=Strict(admitted))])
        context.append(50 + admitted)
    assert list(proposer.propose([ask(context, 4)])[0].tokens) == greedy_continuation(backend, context, 4)


def test_costs_are_learnt() -> None:
    proposer = DraftModel(ToyBackend(markov()), SIZE)
    asked = ask([1, 2, 3], 4)
    proposer.propose([asked])
    assert proposer.costs.knows(1, 3)
    assert 0 < proposer.price(asked, 1) < proposer.price(asked, 4)


def test_a_failure_in_the_middle_leaves_a_cache_that_can_go_on() -> None:
    class Failing(ToyBackend):
        fail = False

        def forward(self, batch):  # type: ignore[no-untyped-def]
            if self.fail and len(self.forwards) % 3 == 2:
                raise EngineError("out of memory")
            return super().forward(batch)

    backend = Failing(markov(seed=8))
    proposer, context = DraftModel(backend, SIZE), [1, 2, 3]
    proposer.propose([ask(context, 4)])
    backend.fail = True
    context += [9]
    with pytest.raises(EngineError):
        proposer.propose([ask(context, 4)])
    backend.fail = False
    again = proposer.propose([ask(context, 4)])[0]
    assert list(again.tokens) == greedy_continuation(backend, context, 4)


def even_costs() -> CostCurve:
    """A forward takes a second for each token."""
    costs = CostCurve()
    for _ in range(5):
        for width in range(1, 60):
            costs.observe(width, 0, float(width))
    return costs


@pytest.mark.parametrize("accepted", range(5))
def test_tokens_that_were_accepted_are_not_priced_as_missing(accepted: int) -> None:
    """Of its own draft the model has fed all but the last token: that and the newest are to come."""
    costs = even_costs()
    proposer, context = DraftModel(ToyBackend(markov(seed=6)), SIZE, costs), [1, 2, 3]
    known = costs.state()
    first = proposer.propose([ask(context, 4)])[0]
    context += [*first.tokens[:accepted], 77]
    costs.restore(json.loads(json.dumps(known)))
    behind = 2 if accepted == 4 else 1
    assert proposer.catch_up(ask(context, 4)) == pytest.approx(behind - 1.0)
    assert proposer.price(ask(context, 4), 1) == pytest.approx(float(behind))


def test_what_an_ended_request_left_is_not_priced_as_missing() -> None:
    """The next turn of a chat begins with the last one's text."""
    costs = even_costs()
    proposer, context = DraftModel(ToyBackend(markov(seed=6)), SIZE, costs), list(range(50))
    known = costs.state()
    proposer.propose([ask(context, 4)])
    proposer.stop(1)
    costs.restore(json.loads(json.dumps(known)))
    assert proposer.catch_up(ask([*context, 7, 8, 9], 4, request=2)) == pytest.approx(3.0, abs=1.0)
    assert proposer.catch_up(ask([99] * 53, 4, request=3)) == pytest.approx(52.0)


def test_choosing_from_rows_is_part_of_the_price_of_drafting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling takes time for every drafted token, and is not what a forward takes."""
    costs = even_costs()
    proposer, context = DraftModel(ToyBackend(markov(seed=6)), SIZE, costs), [1, 2, 3]
    request = ask(context, 3, params=WARM)
    distribution, hands = request.sampler.distribution, [0.0]

    def slow(*args: object) -> object:
        hands[0] += 0.5
        return distribution(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("localspec.speculation.draft_model.time.perf_counter", lambda: hands[0])
    monkeypatch.setattr(request.sampler, "distribution", slow)
    known = costs.state()
    proposer.propose([request])
    assert costs.state() == known
    assert proposer.price(request, 3) - proposer.price(request, 2) == pytest.approx(1.5)
