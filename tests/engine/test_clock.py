"""The account of a round: what it saved is real time, what a proposer is judged by is what forwards usually
take. Time stands still here but for what a test lets pass."""

from __future__ import annotations

import pytest

from localspec.engine import round as module
from localspec.engine.engine import Engine
from localspec.engine.round import PlayedRound, RoundClock
from localspec.engine.sequence import Emitted, Sequence
from localspec.speculation.costs import CostCurve
from localspec.speculation.proposer import NOTHING, Draft
from tests.toy import markov
from tests.toys import request, toy_engine

MS = {1: 10.0, 2: 12.0, 4: 20.0, 5: 25.0}
LONG = 1500
"""tokens of context: a bucket of its own in the cost curve"""


class Hands:
    """A clock whose hands are moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def pass_ms(self, ms: float) -> None:
        self.now += ms / 1000


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(module, "time", hands)
    return hands


@pytest.fixture
def engine() -> Engine:
    return toy_engine(markov(), n_ctx=4096)


def bucket(slower: float = 1.0) -> dict[str, object]:
    level = slower * MS[1] / 1000
    ratios = {str(width): ms / MS[1] for width, ms in MS.items()}
    return {"level": level, "per_token": 0.0, "ratios": ratios, "seen": {width: 9 for width in ratios}}


def known_costs(*, long: float = 3.0) -> CostCurve:
    """Every width of :data:`MS` is known; behind a long context all take ``long`` times as long."""
    curve = CostCurve()
    curve.restore({"0": bucket(), "1": bucket(long)})
    return curve


def play(sequence: Sequence, proposed: int, accepted: int) -> PlayedRound:
    """Play a round on a sequence: it gains the accepted tokens and one of the target's own."""
    before = len(sequence.tokens)
    draft = Draft(tuple([97] * proposed), "memory") if proposed else NOTHING
    emitted = sequence.extend(Emitted((97,) * (accepted + 1), accepted + 1, "memory"), exact=True)
    sequence.account.count_round(draft, accepted, emitted, 0.0)
    return PlayedRound(sequence, draft, accepted, before, emitted)


def saved(sequence: Sequence) -> float | None:
    return sequence.account.close(1, priced=True).time_saved_s


def savings(sequence: Sequence) -> tuple[float, float]:
    return sequence.account.savings


def forwarded_clock(
    hands: Hands, width: int, forward_ms: float, *, propose_ms: float = 0.0, costs: CostCurve | None = None
) -> RoundClock:
    """The clock of a round whose forward has been computed."""
    clock = RoundClock(costs or known_costs())
    hands.pass_ms(propose_ms)
    clock.proposed = hands.now
    hands.pass_ms(forward_ms)
    clock.forwarded, clock.width = hands.now, width
    return clock


def test_a_round_saves_the_plain_forwards_it_stood_for(hands: Hands, engine: Engine) -> None:
    """Three tokens in 1 + 20 + 4 ms, where plain decoding takes 10 ms for each."""
    sequence = engine.submit(request("abc"))
    clock = forwarded_clock(hands, 4, 20, propose_ms=1)
    played = play(sequence, 3, 2)
    hands.pass_ms(4)
    clock.end_round([played])
    assert saved(sequence) == pytest.approx(0.030 - 0.025)
    assert savings(sequence) == pytest.approx((0.030 - 0.020, 0.020))


@pytest.mark.parametrize("forward_ms", [10, 80])
def test_a_plain_round_saves_nothing_and_pays_for_looking(
    hands: Hands, engine: Engine, forward_ms: float
) -> None:
    """On a machine that is busy with something else, too: no request speculated."""
    sequence = engine.submit(request("abc"))
    clock = forwarded_clock(hands, 1, forward_ms, propose_ms=2)
    clock.end_round([play(sequence, 0, 0)])
    assert saved(sequence) == pytest.approx(-0.002)
    won, spent = savings(sequence)
    assert won == pytest.approx(0.0) and spent >= 0.010


def test_a_forward_that_was_held_up_says_nothing_of_the_draft(hands: Hands, engine: Engine) -> None:
    sequence = engine.submit(request("abc"))
    forwarded_clock(hands, 4, 10_000).end_round([play(sequence, 3, 3)])
    won, spent = savings(sequence)
    assert saved(sequence) is None
    assert won > 0.015 and 0.020 <= spent < 0.024


def test_in_a_batch_everybody_waits_for_everybodys_drafts(hands: Hands, engine: Engine) -> None:
    """Plain decoding is a forward two wide here; the neighbour without a draft waits for one of five."""
    drafts, plain = (engine.submit(request("abc")) for _ in range(2))
    forwarded_clock(hands, 5, 25).end_round([play(drafts, 3, 3), play(plain, 0, 0)])
    assert saved(drafts) == pytest.approx(4 * 0.012 - 0.025)
    assert saved(plain) == pytest.approx(0.012 - 0.025)
    assert savings(plain) == pytest.approx((0.012 - 0.025, 0.025))


def test_a_batch_is_priced_at_its_longest_context_and_teaches_nothing(hands: Hands, engine: Engine) -> None:
    """A forward over two texts predicts little about one that is two tokens wide."""
    short, long = engine.submit(request("abc")), engine.submit(request("x" * LONG))
    costs = known_costs(long=3.0)
    forwarded_clock(hands, 4, 72, costs=costs).end_round([play(short, 0, 0), play(long, 1, 0)])
    for sequence in (short, long):
        assert saved(sequence) == pytest.approx(3 * 0.012 - 0.072)
    assert costs.seconds(4, LONG) == pytest.approx(0.060)
    assert costs.seconds(4, 3) == pytest.approx(0.020)


def test_a_round_teaches_about_contexts_like_its_own(hands: Hands, engine: Engine) -> None:
    sequence, costs = engine.submit(request("x" * LONG)), known_costs(long=3.0)
    forwarded_clock(hands, 1, 50, costs=costs).end_round([play(sequence, 0, 0)])
    assert costs.seconds(1, LONG) > 1.02 * 0.030
    assert costs.seconds(1, 3) == pytest.approx(0.010)


def test_choosing_tokens_is_no_part_of_the_forward(hands: Hands, engine: Engine) -> None:
    """Sampling from a row takes as long with any proposer: 5 ms for each of four tokens here."""
    sequence, costs = engine.submit(request("abc")), known_costs()
    for _ in range(30):
        clock = forwarded_clock(hands, 4, 20, costs=costs)
        hands.pass_ms(20)
        clock.choosing = (hands.now - clock.forwarded) / 4
        clock.end_round([play(sequence, 3, 3)])
    assert costs.seconds(4) == pytest.approx(0.020)
    assert savings(sequence) == pytest.approx((30 * (0.040 - 0.020), 30 * 0.020))
    # Plain decoding would have taken 10 ms and 5 for each token.
    assert saved(sequence) == pytest.approx(30 * (4 * 0.015 - 0.040))


def test_the_time_of_sampling_is_not_learnt_as_the_forwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real round: choosing takes 30 ms, and what a forward costs stays what it takes."""
    hands = Hands()
    monkeypatch.setattr(module, "time", hands)
    engine = toy_engine(markov(), n_ctx=4096)
    sequence = engine.submit(request("abc", max_tokens=8, seed=1, temperature=0.7, proposer="none"))
    forward, choose = engine.target.forward, sequence.sampler.pick

    def slow_forward(batch: object) -> object:
        hands.pass_ms(10)
        return forward(batch)  # type: ignore[arg-type]

    def slow_choose(*args: object, **kwargs: object) -> object:
        hands.pass_ms(30)
        return choose(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.target, "forward", slow_forward)
    monkeypatch.setattr(sequence.sampler, "pick", slow_choose)
    while not sequence.ended:
        engine.step()
    assert engine.learning.costs.seconds(1, 10) == pytest.approx(0.010)


def test_a_change_of_the_width_is_a_loss_of_the_round_that_makes_it(hands: Hands, engine: Engine) -> None:
    """Also of the plain round behind a draft; behind a prompt plain decoding would make one, too."""
    first = {str(width): 2 * ms / 1000 for width, ms in MS.items()}
    costs, lost = CostCurve(settling=2), []
    costs.restore({"0": bucket() | {"first": first}})
    for width, last in ((1, 1), (1, 4), (4, 1), (4, 0)):
        sequence, costs.last = engine.submit(request("abc")), last
        forwarded_clock(hands, width, 2 * MS[width], costs=costs).end_round([play(sequence, width - 1, 0)])
        lost.append(savings(sequence)[0])
    assert lost == pytest.approx([0.0, -2 * 0.010, -0.010 - 2 * 0.020, -0.010])
