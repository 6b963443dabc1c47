"""The controller chooses the proposer and the draft length of each round for the most tokens per second.

A round with k draft tokens costs c(k+1) seconds instead of c(1), and gains the expected number of them that
are accepted. Both are learnt here: costs from every forward (:mod:`.costs`), and the accuracy of proposers
from the text itself: the probability that a proposer's tokens are right, given how sure it was of them. For
that, each offered draft is compared with the text that follows, whether it is verified or not; so cheap
proposers need no trial rounds, and only a draft model does.

One proposer's draft is verified per round. Two as branches of a tree would gain nothing even if the tree were
free: on recorded answers the second was the better one in at most 0.4 % of the rounds.

The aim is vLLM's adaptive verification (https://github.com/vllm-project/vllm, pull request 52228): the most
probable positions are admitted while expected tokens per second rise.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, NamedTuple

from localspec.speculation.costs import CostCurve
from localspec.speculation.proposer import NOTHING, Ask, Draft, Proposer, nothing
from localspec.speculation.switching import Switching

BUCKETS = 16
START = 0.7
"""probability that a drafted token is right where nothing is known"""
PRIOR = 8.0
"""weight of the prior, in tokens"""
SHARE = 6.0
"""the most that a request's tokens of one evidence weigh together, in tokens: a long text is one sample"""
MEMORY = 200.0
"""weight of all requests in one evidence, in tokens: older requests fade"""
FADE = 0.02
"""share by which averages return to the prior with each request that compared no token: a draft model that
was of no use is not called, and could not show that it is of use for other texts"""
CAUTION = -0.2
"""log-odds of a request's tokens, relative to the average request, before any was compared"""
STEP = 0.5
"""change of a request's log-odds by a token that was right against all odds"""


@dataclass(slots=True)
class _Local:
    """The record of one request: a shift of all log-odds, and its counts by evidence."""

    shift: float = CAUTION
    factor: float = math.exp(CAUTION)
    """factor of the odds: the shift's exponential"""
    right: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)
    tried: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)


_NEW = _Local()


class Survival:
    """The probability that a drafted token is right once all before it were, by its evidence.

    Per evidence it keeps the average over past requests, and per request one shift of the log-odds, because
    texts differ more than evidence does: in one that repeats itself every match is worth more. The
    shift is the intercept of a logistic regression, learnt token by token, each moving it by the same share
    of its surprise: texts change, so that the hundredth counts for as much as the first.
    """

    def __init__(self, prior: Sequence[float]) -> None:
        self._prior = [PRIOR * prior[min(i, len(prior) - 1)] for i in range(BUCKETS)]
        self._right, self._all = [*self._prior], [PRIOR] * BUCKETS
        self._requests: defaultdict[int, _Local] = defaultdict(_Local)

    def rate(self, request: int, evidence: int) -> float:
        """The probability that a token with this evidence is right."""
        return self._rate(evidence, self._requests.get(request, _NEW).factor)

    def _rate(self, evidence: int, factor: float) -> float:
        right, tried = self._right[evidence], self._all[evidence]
        # A quarter of a token is added on both sides: no average is certain.
        odds = (right + 0.25) / (tried - right + 0.25) * factor
        return odds / (1.0 + odds)

    def curve(self, request: int, evidence: Sequence[int]) -> list[float]:
        """The probability that the first 1, 2, … tokens of a draft are all right."""
        factor = self._requests.get(request, _NEW).factor
        known: dict[int, float] = {}
        curve, alive = [], 1.0
        for bucket in evidence:
            rate = known.get(bucket)
            if rate is None:
                rate = known[bucket] = self._rate(bucket, factor)
            alive *= rate
            curve.append(alive)
        return curve

    def learn(self, request: int, evidence: int, *, right: bool) -> None:
        local = self._requests[request]
        local.right[evidence] += right
        local.tried[evidence] += 1.0
        expected = self._rate(evidence, local.factor)
        local.shift += STEP * (right - expected)
        local.factor = math.exp(local.shift)

    def stop(self, request: int) -> None:
        """Add the record of a request that has ended to the average; without one, the average fades."""
        local = self._requests.pop(request, None)
        if local is None:
            for i, right in enumerate(self._prior):
                self._right[i] += FADE * (right - self._right[i])
                self._all[i] += FADE * (PRIOR - self._all[i])
            return
        for i, tried in enumerate(local.tried):
            if not tried:
                continue
            weight = min(1.0, SHARE / tried)
            self._right[i] += weight * local.right[i]
            self._all[i] += weight * tried
            if self._all[i] > MEMORY:
                self._right[i] /= 2
                self._all[i] /= 2

    def state(self) -> dict[str, Any]:
        """The averages, as JSON can hold them."""
        return {"right": self._right, "all": self._all}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a :meth:`state`. Raises ValueError, KeyError or TypeError for anything else."""
        right, tried = [float(x) for x in state["right"]], [float(x) for x in state["all"]]
        if not len(right) == len(tried) == BUCKETS:
            raise ValueError(f"{BUCKETS} buckets are needed")
        if not all(0.0 <= r <= t < 1e6 and t > 0.0 for r, t in zip(right, tried, strict=True)):
            raise ValueError("more tokens right than tried")
        self._right, self._all = right, tried


class Calibration:
    """The survival tables of all proposers of an engine, shared by its controllers."""

    def __init__(self) -> None:
        self._tables: dict[str, Survival] = {}
        self._restored: dict[str, Mapping[str, Any]] = {}

    def by_evidence(self, proposer: str, prior: Sequence[float]) -> Survival:
        """The table of a proposer's tokens by their evidence."""
        table = self._tables.get(proposer)
        if table is None:
            table = self._tables[proposer] = Survival(prior)
            if proposer in self._restored:
                table.restore(self._restored[proposer])
        return table

    def by_position(self, proposer: str) -> Survival:
        """The table of a proposer's first, second, … tokens, for use before they are drafted."""
        return self.by_evidence(f"{proposer}, by position", (START,))

    def state(self) -> dict[str, Any]:
        return self._restored | {name: table.state() for name, table in self._tables.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a :meth:`state` for tables to come. Raises ValueError, KeyError or TypeError for anything
        else."""
        for values in state.values():
            Survival((START,)).restore(values)
        self._restored = dict(state)


CAUTIOUS_K = 4
"""longest draft while the costs of wider forwards are not known"""
MARGIN = 0.02
"""share by which a draft must promise more than plain decoding to be worth the risk"""
LOSS = 0.02
"""share of a request's time that speculation may lose"""
GRACE = 64
"""tokens that a request is assumed to have at least"""
STAKE = 0.35
"""share of what may still be lost that one draft may be expected to lose"""
SURE, UTMOST = 0.25, 3.0
"""SURE: plain forwards, changes to them included, that a draft may be expected to lose whatever was lost
before, so that nearly certain drafts are still made; UTMOST: times the allowed loss that no draft may exceed
if none of it is accepted"""
HOPELESS = 0.1
"""survival at which a draft token is not worth a place any more"""
DOUBT = 0.1
"""least probability that a draft does not pay: a text may leave what it copies all at once, though averages
over earlier texts promise nearly certain tokens"""
NOT_WORTH_DRAFTING = nothing("drafting would cost more than it saves")


@dataclass(slots=True)
class _Offer:
    """A draft that is compared with the text that follows."""

    draft: Draft
    start: int
    checked: int = 0


@dataclass(slots=True)
class _Request:
    offers: dict[str, _Offer] = field(default_factory=dict)
    drafting_s: float = 0.0
    """seconds spent by costly members"""


@dataclass(slots=True)
class _Plan:
    """The decision for one ask in this round: a draft at hand, or a costly member that is to make one."""

    ask: Ask
    draft: Draft = NOTHING
    survival: list[float] = field(default_factory=list)
    rate: float = 0.0
    """tokens per second expected with the draft"""
    outlook: list[tuple[Sequence[float], float, float]] = field(default_factory=list)
    """drafts, verified or not: see :meth:`.Switching.learn`"""
    member: Proposer | None = None


class _Prices(NamedTuple):
    """The cost of this round's forward: ``seconds[k]`` with k draft tokens for each of its requests, because
    all are computed as wide as the widest, and each waits for the whole forward."""

    seconds: Sequence[float]
    longest: int
    """the most draft tokens whose cost is known well enough"""
    again: Sequence[float] = ()
    """``again[n]``: extra seconds of a forward that must feed n tokens again, after a rollback that dropped
    more than the rejected ones; empty for backends that drop no more"""
    plain: float = 0.0
    """seconds of plain decoding where the width stays"""
    changes: Sequence[float] = ()
    """seconds that a change to each width costs; with them ``seconds`` are those of :class:`.Switching`"""

    @property
    def bar(self) -> float:
        """Tokens per second that drafts must promise, more than plain decoding gives."""
        return 1.0 / self.seconds[0] * (1.0 + MARGIN)

    def with_draft(self, member: Proposer, ask: Ask) -> list[float]:
        """Return ``seconds`` with the time that ``member`` takes to draft."""
        first = member.price(ask, 1)
        step = member.price(ask, 2) - first
        return [s + (first + (k - 1) * step) * (k > 0) for k, s in enumerate(self.seconds)]


class Controller(Proposer):
    """Chooses among ``members``, which are proposers, and the number of draft tokens to verify. In a round it
    learns from earlier offers, lets cheap members draft, calls a costly one where that promises more, and
    cuts all drafts to one length. ``clock`` returns seconds, and is used to time the members."""

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
        self._costs, self._switching = costs, Switching()
        self._survival = {each.name: calibration.by_evidence(each.learnt_as, each.prior) for each in members}
        self._calibrated = {each.name: calibration.by_position(each.learnt_as) for each in self._costly}
        self._requests: dict[int, _Request] = {}

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        if not asks:
            return []
        for ask in asks:
            offers = self._requests.setdefault(ask.request, _Request()).offers
            for source in [s for s, offer in offers.items() if self._compare(ask, s, offer)]:
                del offers[source]
        prices = self._prices(asks)
        asks = [ask._replace(k=min(ask.k, prices.longest)) for ask in asks]
        plans = [_Plan(ask) for ask in asks]
        self._offer(plans, prices)
        for member in self._costly:
            self._weigh(plans, member, prices)
            if drafting := [plan for plan in plans if plan.member is member]:
                self._draft(drafting, member, prices)
        if prices.changes:
            self._switching.learn(plans[0].outlook)
        elif not any(plan.draft.tokens for plan in plans):
            return [plan.draft for plan in plans]
        # One length for all, that of the most expected tokens per second; sampled drafts stay whole.
        curves = zip_longest(*(plan.survival for plan in plans), fillvalue=0.0)
        k, rate = best_length([sum(alive) / len(plans) for alive in curves], prices.seconds)
        length = k if rate > prices.bar else 0
        drafts = [plan.draft if plan.draft.q is not None else _shorten(plan.draft, length) for plan in plans]
        return [self._pad(drafts[0], plans[0])] if prices.changes else drafts

    def _pad(self, draft: Draft, plan: _Plan) -> Draft:
        """Widen the forward of ``draft`` where that costs no more in the end, by the rest of the plan's,
        then by tokens of no meaning. What it costs now must have been won."""
        width = len(draft.tokens) + 1
        wide, extra = self._switching.pad(width)
        if wide == width or wide - 1 > plan.ask.k or self._gain_of(plan.ask) < extra:
            return draft
        whole = draft if draft.q is not None else plan.draft.cut(wide - 1)
        return replace(whole, padding=wide - 1 - len(whole.tokens))

    # Learning from earlier offers.

    def _compare(self, ask: Ask, source: str, offer: _Offer) -> bool:
        """Learn from the offer's tokens that have a counterpart in the text; return True when the text has
        confirmed all of them, or refuted one."""
        survival, calibrated, draft = self._survival[source], self._calibrated.get(source), offer.draft
        end = min(len(draft.tokens), len(ask.context) - offer.start)
        while offer.checked < end:
            i = offer.checked
            right = draft.tokens[i] == ask.context[offer.start + i]
            survival.learn(ask.request, draft.evidence[i] if draft.evidence else 0, right=right)
            if calibrated is not None:
                calibrated.learn(ask.request, _position(i), right=right)
            if not right:
                return True
            offer.checked += 1
        return offer.checked == len(draft.tokens)

    def _follow(self, ask: Ask, draft: Draft) -> None:
        """Keep an offer until the text has confirmed or refuted it; one per proposer at a time, because
        overlapping ones would count the same tokens again and again."""
        offers = self._requests[ask.request].offers
        if draft.tokens and draft.source not in offers:
            offers[draft.source] = _Offer(draft, len(ask.context))

    # Evaluating drafts, at hand or to be made.

    def _prices(self, asks: Sequence[Ask]) -> _Prices:
        context, n = max(len(ask.context) for ask in asks), len(asks)
        longest = max(CAUTIOUS_K, 2 * self._costs.widest(context) // n)
        line, missing = self._costs.line(context), max(ask.missing for ask in asks)
        fed = n * (1 + missing)
        plain = line[n] if n < len(line) else self._costs.seconds(n, context)
        changes = self._costs.switches(context) if fed == 1 and not asks[0].replays else ()
        if changes:
            line = self._switching.price(line[: longest + 2], changes, self._costs.last)
        # No draft is longer than the known widths.
        seconds = line[fed::n] or [self._costs.seconds(fed, context)]
        again = [each - line[1] for each in line[1 + missing :]] if asks[0].replays else ()
        return _Prices(seconds, longest, again, plain, changes)

    def _offer(self, plans: Sequence[_Plan], prices: _Prices) -> None:
        """Let the cheap members draft; each plan gets the most promising draft."""
        for member in self._cheap:
            survival = self._survival[member.name]
            asks = [plan.ask._replace(gate=Fade(survival, plan.ask.request)) for plan in plans]
            for plan, draft in zip(plans, member.propose(asks), strict=True):
                if draft.tokens:
                    self._consider(plan, draft, prices)

    def _consider(self, plan: _Plan, draft: Draft, prices: _Prices) -> None:
        """Take the draft, which will be compared with the text, if it promises more than the one at hand."""
        self._follow(plan.ask, draft)
        evidence = draft.evidence or (0,) * len(draft.tokens)
        curve = self._survival[draft.source].curve(plan.ask.request, evidence)
        plan.outlook.append((curve, 0.0, 0.0))
        k, rate = self._best(plan.ask, curve, prices.seconds, prices)
        if rate > plan.rate:
            plan.draft, plan.survival, plan.rate = draft, curve[:k], rate

    def _best(
        self, ask: Ask, curve: Sequence[float], seconds: Sequence[float], prices: _Prices
    ) -> tuple[int, float]:
        """Return :func:`best_length` of a draft with this survival ``curve``, made in ``seconds``."""
        return best_length(curve, with_replay(curve, seconds, prices.again), *self._stakes(ask, prices))

    def _weigh(self, plans: Sequence[_Plan], member: Proposer, prices: _Prices) -> None:
        """Choose the costly ``member`` for the plans where it promises more than the draft at hand."""
        for plan in plans:
            ask = plan.ask
            if ask.k < 1:
                continue
            curve = self._calibrated[member.name].curve(ask.request, [_position(i) for i in range(ask.k)])
            _, rate = self._best(ask, curve, prices.with_draft(member, ask), prices)
            if prices.changes:
                first = member.price(ask, 1)
                plan.outlook.append((curve, first, member.price(ask, 2) - first))
            if rate > max(plan.rate, prices.bar):
                plan.member = member
            elif not plan.draft.tokens:
                plan.draft = NOT_WORTH_DRAFTING

    def _stakes(self, ask: Ask, prices: _Prices) -> tuple[float, float]:
        """By the request's own books, the seconds that a draft may be expected to lose, a share of what was
        saved and may be lost, so that not all of it is risked at once; and that it may lose at most."""
        won = self._gain_of(ask)
        allowed = LOSS * max(ask.savings.spent_s, GRACE * prices.plain)
        sure = SURE * (prices.plain + (prices.changes[1] if prices.changes else 0.0))
        return max(STAKE * (won + allowed), sure), won + UTMOST * allowed

    def _gain_of(self, ask: Ask) -> float:
        """The seconds that the request has won by speculation."""
        return ask.savings.saved_s - self._requests[ask.request].drafting_s

    # Calling costly members.

    def _draft(self, plans: Sequence[_Plan], member: Proposer, prices: _Prices) -> None:
        """Let ``member`` draft for ``plans``; each draft stops where going on is not worth it."""
        asks = [self._add_gate(plan, member, prices) for plan in plans]
        started = self._clock()
        drafts = member.propose(asks)
        took = self._clock() - started
        for plan, draft in zip(plans, drafts, strict=True):
            paid = max(took, member.price(plan.ask, max(len(draft.tokens), 1)))
            self._requests[plan.ask.request].drafting_s += paid
            if draft.q is not None:
                # Sampled: all that was drawn must be verified, or the text would be biased.
                self._follow(plan.ask, draft)
                plan.draft, plan.survival = draft, [1.0] * len(draft.tokens)
            elif draft.tokens:
                # The time of drafting is spent: of the two drafts the more promising one is verified.
                self._consider(plan, draft, prices)
            elif not plan.draft.tokens:
                plan.draft = draft

    def _add_gate(self, plan: _Plan, member: Proposer, prices: _Prices) -> Ask:
        ask, seconds = plan.ask, prices.with_draft(member, plan.ask)
        _, most = self._stakes(ask, prices)
        longest = max((k for k, each in enumerate(seconds) if each - seconds[0] <= most), default=0)
        places = [_position(i) for i in range(min(ask.k, longest) + 1)]
        survival, calibrated = self._survival[member.name], self._calibrated[member.name]
        curve = calibrated.curve(ask.request, places[:-1])
        gate = EarlyStop(
            rate=lambda evidence: survival.rate(ask.request, evidence),
            calibrated=[calibrated.rate(ask.request, place) for place in places],
            seconds=with_replay(curve, seconds, prices.again),
        )
        return ask._replace(gate=gate)

    # The other methods of a proposer.

    def observe(self, request: int, draft: Draft, accepted: int) -> None:
        for member in (*self._cheap, *self._costly):
            if member.name == draft.source:
                member.observe(request, draft, accepted)

    def stop(self, request: int) -> None:
        self._requests.pop(request, None)
        for survival in (*self._survival.values(), *self._calibrated.values()):
            survival.stop(request)
        for member in (*self._cheap, *self._costly):
            member.stop(request)


class Fade:
    """The gate of cheap members: ends a draft where its tokens are hardly ever right any more."""

    def __init__(self, survival: Survival, request: int) -> None:
        self._survival, self._request = survival, request
        self._alive = 1.0

    def admits(self, evidence: int) -> bool:
        self._alive *= self._survival.rate(self._request, evidence)
        return self._alive > HOPELESS

    def goes_on(self) -> bool:
        return self._alive > HOPELESS


class EarlyStop:
    """The gate of costly members: ends a draft where further tokens are not worth their time.

    ``rate`` is the probability that a token is right by its evidence; ``calibrated[i]`` that of token i
    while its evidence is not known; ``seconds[k]`` the time to draft and verify k tokens. A threshold on
    the probability of acceptance is optimal where that is known (SpecDec++, arXiv 2405.19715). This gate
    also allows for costs that rise in steps, by looking further ahead than the next token.
    """

    def __init__(
        self, *, rate: Callable[[int], float], calibrated: Sequence[float], seconds: Sequence[float]
    ) -> None:
        self._rate, self._calibrated, self._seconds = rate, calibrated, seconds
        self._alive = self._expected = 1.0
        self._k = 0

    def admits(self, evidence: int) -> bool:
        alive = self._alive * self._rate(evidence)
        if not self._pays(alive):
            return False
        self._alive, self._expected, self._k = alive, self._expected + alive, self._k + 1
        return True

    def goes_on(self) -> bool:
        return self._k + 1 < len(self._calibrated) and self._pays(self._alive * self._calibrated[self._k])

    def _pays(self, alive: float) -> bool:
        """Return True if another token, which survives with probability ``alive``, and tokens after it are
        expected to give more tokens per second than ending the draft here."""
        now = self._expected / self._seconds[self._k]
        expected = self._expected
        for k in range(self._k + 1, min(len(self._calibrated), len(self._seconds))):
            expected += alive
            if expected / self._seconds[k] > now:
                return True
            alive *= self._calibrated[k]
        return False


def _position(i: int) -> int:
    """The evidence of token i of a draft by its place alone; the last one repeats."""
    return min(i, BUCKETS - 1)


def _shorten(draft: Draft, k: int) -> Draft:
    if k or not draft.tokens:
        return draft.cut(k)
    return nothing(f"{draft.source} was not worth verifying")


def best_length(
    survival: Sequence[float], seconds: Sequence[float], stake: float = math.inf, most: float = math.inf
) -> tuple[int, float]:
    """Return the number of draft tokens with the most expected tokens per second, and that rate.

    ``survival[i]`` is the probability that draft token i is accepted, ``seconds[k]`` the time of a round with
    k of them; one more token comes out in any case. A length whose expected loss is more than ``stake``
    seconds, or whose greatest one is more than ``most``, is left out: with too few tokens accepted, the round
    takes longer than plain decoding would.
    """
    expected, plain = 1.0, seconds[0]
    best, best_rate = 0, 1.0 / plain
    for k, (alive, cost) in enumerate(zip(survival, seconds[1:], strict=False), 1):
        expected += alive
        if expected > best_rate * cost:
            extra = cost - seconds[0]
            even = max(math.ceil(extra / plain), 1)
            lost = 1.0 - survival[even - 1] if even <= k else 1.0
            if max(lost, DOUBT) * extra <= stake and extra <= max(most, 0.0):
                best, best_rate = k, expected / cost
    return best, best_rate


def with_replay(
    survival: Sequence[float], seconds: Sequence[float], again: Sequence[float]
) -> Sequence[float]:
    """Return ``seconds`` plus the expected cost of a draft that is not accepted in full: the newest token and
    the accepted ones are fed again. ``again[n]`` is that cost for n tokens; empty: none."""
    if not again:
        return seconds
    priced, expected = [seconds[0]], 1.0
    for alive, cost in zip(survival, seconds[1:], strict=False):
        priced.append(cost + (1.0 - alive) * again[min(round(expected), len(again) - 1)])
        expected += alive
    return priced
