"""The controller: who drafts, and how much, so that the most tokens come out per second.

Verifying k tokens costs c(k+1) instead of c(1), and buys the expected number of them that are right.
Both are learnt here: the costs from every forward (:mod:`.costs`), how often a proposer is right from
the text itself (:mod:`.survival`): what a proposer offered is compared with what was then said, whether
the offer was verified or not. Cheap proposers so never need to be tried out; only a draft model does.

One proposer's draft is verified a round. Two as branches of a tree would gain nothing even if the tree
were free: on the benchmark's answers the second is the better one in at most 0.4 % of the rounds
(``python -m assets.bench.several_proposers``).

The aim is vLLM's adaptive verification (https://github.com/vllm-project/vllm, pull request 52228):
the most probable positions are admitted while expected tokens per second rise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from localspec.speculation.costs import WIDE, CostCurve
from localspec.speculation.draft import NOTHING, Ask, Draft, nothing
from localspec.speculation.length import best_length, with_replay
from localspec.speculation.proposer import Proposer
from localspec.speculation.rewriting import Patience
from localspec.speculation.survival import BUCKETS, Calibration, Survival

CAUTIOUS_K = 4
"""longest draft while the costs of wider forwards are not known"""
MARGIN = 0.02
"""a draft must promise so much more than plain decoding, or it is not worth the risk"""
LOSS = 0.02
"""what speculation may cost a request, as a share of its time"""
GRACE = 64
"""a request is taken to be at least so many tokens long"""
STAKE = 0.35
"""of what may still be lost, the share that one draft may be expected to lose"""
CONTROL = 64
"""rounds after which a plain one is played, so that the cost of plain decoding stays known"""
RECONSIDER = 4
"""rounds until a draft model that promised less than plain decoding is weighed again: what makes it so
changes slowly, and weighing takes half a percent of a short round"""
PROBE = 0.005
"""share of a request's time that may go into trying out a draft model that does not look worth it"""

SURE, UTMOST = 0.25, 3.0
"""plain tokens that a draft may be expected to lose in any case, because what is nearly certain is not
left for an earlier misfortune; but not once so many times what may be lost is lost"""
HOPELESS = 0.1
"""survival under which no draft is worth a place"""
ASKING, SLOWER, PATIENT = 0.005, 1.02, 8
"""share of a plain round that asking for drafts in vain may take, how fast it is taken to grow, and how
often is asked in vain before a round is left out"""
CONTROL_ROUND = nothing("a plain round, to know its cost")
NOT_WORTH_DRAFTING = nothing("the draft model was not worth its time")
RESTING = nothing("nobody was asked: asking takes longer than it is worth here")
NOT_WORTH_REWRITING = nothing("near-ties would cost more than drafts save; not with exactness = fast")


@dataclass(slots=True)
class _Offer:
    """A draft that is being compared with the text."""

    draft: Draft
    start: int
    checked: int = 0
    stopped: int | None = None
    """where verification ended, if it was verified: a token that had to be decided again is no gain,
    though it turned out right"""


@dataclass(slots=True)
class _Request:
    """What the controller remembers of a request."""

    offers: dict[str, _Offer] = field(default_factory=dict)
    drafting_s: float = 0.0
    """spent on drafts that take time"""
    declined: dict[str, int] = field(default_factory=dict)
    """rounds until a member that did not look worth it is weighed again"""
    patience: Patience = field(default_factory=Patience)
    fruitless: int = 0
    """times that nobody had a draft, one after another"""
    rest: int = 0
    """rounds until anybody is asked again"""


@dataclass(slots=True)
class _Plan:
    """What to do for one ask this round: a draft at hand, or a member that is to be asked for one."""

    ask: Ask
    limit: int
    """draft tokens that may be verified"""
    draft: Draft = NOTHING
    survival: list[float] = field(default_factory=list)
    rate: float = 0.0
    """tokens per second that it promises"""
    member: Proposer | None = None


class _Prices(NamedTuple):
    """What this round's forward costs: ``seconds[k]`` with k draft tokens of each of ``n`` requests, because
    all are computed as wide as the widest, and each waits for the whole."""

    seconds: Sequence[float]
    n: int
    longest: int
    """draft tokens up to which that is known well enough"""
    fed: int
    """tokens of this forward without any draft"""
    alone: Sequence[float]
    """seconds of a forward of one request alone, by its width"""
    again: Sequence[float] = ()
    """where a rollback loses more than was drafted: what feeding so many tokens again costs"""

    @property
    def plain(self) -> float:
        """Tokens per second that a request gets from plain decoding."""
        return 1.0 / self.seconds[0]

    @property
    def bar(self) -> float:
        """Tokens per second that drafts must promise."""
        return self.plain * (1.0 + MARGIN)

    def with_draft(self, member: Proposer, ask: Ask) -> list[float]:
        """The same with the time that ``member`` takes to draft."""
        first = member.price(ask, 1)
        step = member.price(ask, 2) - first
        return [s + (first + (k - 1) * step) * (k > 0) for k, s in enumerate(self.seconds)]


class Controller(Proposer):
    """Chooses among ``members`` and how many tokens to verify; see the module.

    ``clock`` tells, in seconds, how long asking for drafts takes.
    """

    def __init__(
        self,
        members: Sequence[Proposer],
        costs: CostCurve,
        calibration: Calibration,
        *,
        name: str = "auto",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name, self._clock = name, clock
        self._cheap = [member for member in members if not member.costly]
        self._costly = [member for member in members if member.costly]
        self._costs = costs
        self._survival = {each.name: calibration.by_evidence(each.name, each.prior) for each in members}
        self._ahead = {member.name: calibration.by_position(member.name) for member in self._costly}
        self._requests: dict[int, _Request] = {}
        self._since_plain = 0
        self._asking_s = math.inf

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        if not asks:
            return []
        states = [self._requests.setdefault(ask.request, _Request()) for ask in asks]
        if all(state.rest > 0 for state in states):
            for state in states:
                state.rest -= 1
            return [RESTING for _ in asks]
        started = self._clock()
        drafts = self._choose(asks)
        if any(draft.tokens for draft in drafts):
            for state in states:
                state.fruitless = state.rest = 0
        elif drafts[0] is not CONTROL_ROUND:
            self._slow_down(states, self._clock() - started, max(len(ask.context) for ask in asks))
        return drafts

    def _slow_down(self, states: Sequence[_Request], took: float, context: int) -> None:
        """Nobody drafted, in vain: a model so small that asking is a burden is asked less and less often."""
        # What holds asking up only ever makes it slower: near to the fastest is what it takes.
        self._asking_s = min(took, self._asking_s * SLOWER)
        affordable = int(self._asking_s / (ASKING * self._costs.seconds(1, context)))
        for state in states:
            state.fruitless += 1
            state.rest = min(affordable, state.fruitless // PATIENT)

    def _choose(self, asks: Sequence[Ask]) -> list[Draft]:
        for ask in asks:
            self._learn(ask)
        if self._since_plain >= CONTROL:
            self._since_plain = 0
            return [CONTROL_ROUND for _ in asks]
        prices = self._prices(asks)
        asks = [ask._replace(k=min(ask.k, prices.longest)) for ask in asks]
        plans = [_Plan(ask, self._limit(ask, prices)) for ask in asks]
        self._offer(plans, prices)
        for member in self._costly:
            self._weigh(plans, member, prices)
            self._draft([plan for plan in plans if plan.member is member], member, prices)
        if not any(plan.draft.tokens for plan in plans):
            self._since_plain = 0
            return [plan.draft for plan in plans]
        drafts = self._cut(plans, prices)
        self._since_plain = self._since_plain + 1 if any(draft.tokens for draft in drafts) else 0
        return drafts

    # What came of earlier offers.

    def _learn(self, ask: Ask) -> None:
        """Compare what was offered with what has been said since."""
        state = self._requests[ask.request]
        settled = [s for s, offer in state.offers.items() if self._compare(ask, s, offer)]
        for source in settled:
            del state.offers[source]

    def _compare(self, ask: Ask, source: str, offer: _Offer) -> bool:
        """Whether the text has confirmed the whole offer, or refuted it."""
        survival, ahead, draft = self._survival[source], self._ahead.get(source), offer.draft
        end = min(len(draft.tokens), len(ask.context) - offer.start)
        while offer.checked < end:
            i = offer.checked
            right = draft.tokens[i] == ask.context[offer.start + i] and i != offer.stopped
            survival.learn(ask.request, draft.evidence[i] if draft.evidence else 0, right=right)
            if ahead is not None:
                ahead.learn(ask.request, _position(i), right=right)
            if not right:
                return True
            offer.checked += 1
        return offer.checked == len(draft.tokens)

    def _follow(self, ask: Ask, draft: Draft) -> None:
        """Remember an offer until the text has confirmed or refuted it; one per proposer at a time,
        because overlapping ones would count the same tokens again and again."""
        offers = self._requests[ask.request].offers
        if draft.tokens and draft.source not in offers:
            offers[draft.source] = _Offer(draft, len(ask.context))

    def _limit(self, ask: Ask, prices: _Prices) -> int:
        """How many draft tokens may be verified: few as long as more are not worth what near-ties would
        make of it."""
        state, rewriting = self._requests[ask.request], ask.rewriting
        if rewriting is None:
            return ask.k
        state.patience.advance(len(ask.context))
        if prices.fed > rewriting.width:
            return ask.k  # without drafts, too, the forward is wider than rounding allows
        # Cells are written anew for one request at a time, in forwards as wide as rounding allows.
        width = min(max(rewriting.width, 1 + ask.missing), WIDE)
        cell_s = prices.alone[width] / width
        if state.patience.over(rewriting, cell_s, answered=ask.answered, left=ask.left):
            return ask.k
        return min(ask.k, (rewriting.width - prices.fed) // prices.n)

    # What there is, and what it promises.

    def _prices(self, asks: Sequence[Ask]) -> _Prices:
        context, n = max(len(ask.context) for ask in asks), len(asks)
        longest = max(CAUTIOUS_K, 2 * self._costs.widest(context) // n)
        line, missing = self._costs.line(context), max(ask.missing for ask in asks)
        fed = n * (1 + missing)
        # Beyond what is known by width nothing is drafted.
        seconds = line[fed::n] or [self._costs.seconds(fed, context)]
        again = [each - line[1] for each in line[1 + missing :]] if asks[0].replays else ()
        return _Prices(seconds, n, longest, fed, line, again)

    def _offer(self, plans: Sequence[_Plan], prices: _Prices) -> None:
        """Ask those whose drafts cost next to nothing."""
        for member in self._cheap:
            survival = self._survival[member.name]
            asks = [plan.ask._replace(gate=Fade(survival, plan.ask.request)) for plan in plans]
            for plan, draft in zip(plans, member.propose(asks), strict=True):
                if not draft.tokens:
                    continue
                self._follow(plan.ask, draft)
                curve = self._curve(plan.ask, draft)
                k, rate = self._best(plan, curve, prices.seconds, prices)
                if rate > plan.rate:
                    plan.draft = draft.cut(plan.limit) if plan.limit else NOT_WORTH_REWRITING
                    plan.survival, plan.rate = curve[:k], rate

    def _best(
        self, plan: _Plan, curve: Sequence[float], seconds: Sequence[float], prices: _Prices
    ) -> tuple[int, float]:
        """:func:`best_length` within the plan's limit; what that holds back is counted."""
        stake = self._stake(plan.ask, prices)
        seconds = with_replay(curve, seconds, prices.again)
        k, rate = best_length(curve[: plan.limit], seconds, stake)
        if plan.ask.rewriting is not None and len(curve) > plan.limit:
            unlimited = best_length(curve, seconds, stake)[1]
            self._requests[plan.ask.request].patience.hold(1.0 / rate - 1.0 / unlimited)
        return k, rate

    def _curve(self, ask: Ask, draft: Draft) -> list[float]:
        evidence = draft.evidence or (0,) * len(draft.tokens)
        return self._survival[draft.source].curve(ask.request, evidence)

    def _weigh(self, plans: Sequence[_Plan], member: Proposer, prices: _Prices) -> None:
        """Choose a member whose drafts take time where it promises more than what is at hand."""
        for plan in plans:
            ask = plan.ask
            if ask.k < 1:
                continue
            waiting = self._requests[ask.request].declined
            if waiting.get(member.name, 0):
                waiting[member.name] -= 1
            else:
                rate = self._promise(plan, member, prices)
                pays = rate > max(plan.rate, prices.bar)
                if pays or (plan.limit and self._may_probe(ask, member)):
                    plan.member = member
                elif rate <= prices.bar and plan.limit == ask.k:
                    waiting[member.name] = RECONSIDER - 1
            if plan.member is not member and not plan.draft.tokens:
                plan.draft = NOT_WORTH_DRAFTING if plan.limit else NOT_WORTH_REWRITING

    def _promise(self, plan: _Plan, member: Proposer, prices: _Prices) -> float:
        """Tokens per second with the best draft that ``member`` could make."""
        ask = plan.ask
        places = [_position(i) for i in range(ask.k)]
        curve = self._ahead[member.name].curve(ask.request, places)
        return self._best(plan, curve, prices.with_draft(member, ask), prices)[1]

    def _stake(self, ask: Ask, prices: _Prices) -> float:
        """Seconds that a draft may be expected to lose: what was saved so far and what may be lost in
        any case are not risked all at once."""
        won, spent = ask.ledger
        won -= self._requests[ask.request].drafting_s
        token_s = 1.0 / prices.plain
        allowed = LOSS * max(spent, GRACE * token_s)
        floor = SURE * token_s if won > -UTMOST * allowed else 0.0
        return max(STAKE * (won + allowed), floor)

    def _may_probe(self, ask: Ask, member: Proposer) -> bool:
        """Whether a draft that does not look worth it may be paid for, to see whether that is still so;
        what the request has paid for drafting already counts."""
        price = member.price(ask, 1) + member.catch_up(ask)
        return self._requests[ask.request].drafting_s + price <= PROBE * ask.ledger.spent_s

    # Drafts that take time.

    def _draft(self, plans: Sequence[_Plan], member: Proposer, prices: _Prices) -> None:
        """Get them; each stops where going on is not worth it."""
        if not plans:
            return
        asks = [self._gated(plan, member, prices) for plan in plans]
        started = self._clock()
        drafts = member.propose(asks)
        took = self._clock() - started
        for plan, draft in zip(plans, drafts, strict=True):
            paid = max(took, member.price(plan.ask, max(len(draft.tokens), 1)))
            self._requests[plan.ask.request].drafting_s += paid
            self._follow(plan.ask, draft)
            if draft.q is not None:
                # Sampled: what was drawn must be verified, whatever it looks like now.
                plan.draft, plan.survival = draft, [1.0] * len(draft.tokens)
                continue
            if not draft.tokens:
                plan.draft = plan.draft if plan.draft.tokens else draft
                continue
            curve = self._curve(plan.ask, draft)
            seconds = with_replay(curve, prices.seconds, prices.again)
            k, rate = best_length(curve, seconds, self._stake(plan.ask, prices))
            # Drafting is paid for: the draft that promises more now is verified.
            if rate > plan.rate or not plan.draft.tokens:
                plan.draft, plan.survival, plan.rate = draft, curve[:k], rate

    def _gated(self, plan: _Plan, member: Proposer, prices: _Prices) -> Ask:
        ask, k = plan.ask, plan.limit
        request, survival, ahead = ask.request, self._survival[member.name], self._ahead[member.name]
        gate = EarlyStop(
            rate=lambda evidence: survival.rate(request, evidence),
            ahead=[ahead.rate(request, _position(i)) for i in range(k + 1)],
            seconds=with_replay(
                ahead.curve(request, [_position(i) for i in range(ask.k)]),
                prices.with_draft(member, ask),
                prices.again,
            ),
        )
        return ask._replace(k=k, gate=gate)

    # How much of it to verify.

    def _cut(self, plans: Sequence[_Plan], prices: _Prices) -> list[Draft]:
        """Cut all drafts to the one length with the most expected tokens per second over all requests; what
        was sampled is verified whole."""
        curves = zip_longest(*(plan.survival for plan in plans), fillvalue=0.0)
        k, rate = best_length([sum(alive) / len(plans) for alive in curves], prices.seconds)
        length = k if rate > prices.bar else 0
        return [plan.draft if plan.draft.q is not None else _shortened(plan.draft, length) for plan in plans]

    # The rest of a proposer.

    def observe(self, request: int, draft: Draft, accepted: int) -> None:
        state = self._requests.get(request)
        offer = state.offers.get(draft.source) if state is not None else None
        if (
            offer is not None
            and not offer.checked
            and offer.draft.tokens[: len(draft.tokens)] == draft.tokens
        ):
            offer.stopped = accepted if accepted < len(draft.tokens) else None
        for member in (*self._cheap, *self._costly):
            if member.name == draft.source:
                member.observe(request, draft, accepted)

    def stop(self, request: int) -> None:
        self._requests.pop(request, None)
        for survival in (*self._survival.values(), *self._ahead.values()):
            survival.stop(request)
        for member in (*self._cheap, *self._costly):
            member.stop(request)


class Fade:
    """Ends a draft that costs next to nothing where it is hardly ever right any more."""

    def __init__(self, survival: Survival, request: int) -> None:
        self._survival, self._request = survival, request
        self._alive = 1.0

    def admits(self, evidence: int) -> bool:
        self._alive *= self._survival.rate(self._request, evidence)
        return self._alive > HOPELESS

    def goes_on(self) -> bool:
        return self._alive > HOPELESS


class EarlyStop:
    """Ends a draft where what is still to come is not worth its time.

    ``rate`` is the probability that a token is right by its evidence; ``ahead[i]`` that of token i
    while its evidence is not known; ``seconds[k]`` what drafting and verifying k tokens take. Where
    acceptance is known a threshold on it is optimal (SpecDec++, arXiv 2405.19715); this one also knows
    that costs rise in steps, and looks beyond the next.
    """

    def __init__(
        self, *, rate: Callable[[int], float], ahead: Sequence[float], seconds: Sequence[float]
    ) -> None:
        self._rate, self._ahead, self._seconds = rate, ahead, seconds
        self._alive = self._expected = 1.0
        self._k = 0

    def admits(self, evidence: int) -> bool:
        alive = self._alive * self._rate(evidence)
        if not self._pays(alive):
            return False
        self._alive, self._expected, self._k = alive, self._expected + alive, self._k + 1
        return True

    def goes_on(self) -> bool:
        return self._k + 1 < len(self._ahead) and self._pays(self._alive * self._ahead[self._k])

    def _pays(self, alive: float) -> bool:
        """Whether more tokens per second are expected with another token, which survives so, and what
        may come after it, than if the draft ends here."""
        now = self._expected / self._seconds[self._k]
        expected = self._expected
        for k in range(self._k + 1, min(len(self._ahead), len(self._seconds))):
            expected += alive
            if expected / self._seconds[k] > now:
                return True
            alive *= self._ahead[k]
        return False


def _position(i: int) -> int:
    """The evidence of a token whose place in the draft is all that is known; the last one repeats."""
    return min(i, BUCKETS - 1)


def _shortened(draft: Draft, k: int) -> Draft:
    if k or not draft.tokens:
        return draft.cut(k)
    return nothing(f"{draft.source} was not worth verifying")
