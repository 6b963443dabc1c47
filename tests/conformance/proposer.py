"""Tests of every proposer. Subclass :class:`ProposerConformance` and define ``make``."""

from __future__ import annotations

import random

from localspec.speculation.noise import Noise
from localspec.speculation.proposer import Ask, Draft, Proposer
from localspec.speculation.sampling import Sampler, SamplingParams

GREEDY = SamplingParams()
WARM = SamplingParams(temperature=0.8)


def ask(
    context: list[int], k: int, *, request: int = 1, params: SamplingParams = GREEDY, seed: int = 0
) -> Ask:
    return Ask(request, context, k, Sampler(params, Noise(seed), seeded=False))


class ProposerConformance:
    """The promises that the engine relies on."""

    vocabulary_size = 256

    def make(self) -> Proposer:
        raise NotImplementedError

    def one(self, proposer: Proposer, request: Ask) -> Draft:
        return proposer.propose([request])[0]

    def test_there_is_a_draft_for_every_ask(self) -> None:
        proposer = self.make()
        asks = [ask([1, 2, 3, 1, 2], k, request=k) for k in range(4)]
        assert len(proposer.propose(asks)) == 4

    def test_no_ask_no_draft(self) -> None:
        assert self.make().propose([]) == []

    def test_never_longer_than_asked(self) -> None:
        proposer = self.make()
        for k in (0, 1, 2, 7, 20):
            assert len(self.one(proposer, ask([7, 8, 9] * 5, k)).tokens) <= k

    def test_a_context_of_one_token(self) -> None:
        assert all(0 <= t < self.vocabulary_size for t in self.one(self.make(), ask([5], 4)).tokens)

    def test_the_context_is_not_changed(self) -> None:
        context = [1, 2, 3, 1, 2]
        self.one(self.make(), ask(context, 4))
        assert context == [1, 2, 3, 1, 2]

    def test_the_offer_depends_on_the_context_and_not_on_the_way_there(self) -> None:
        """Growing token by token, through rejected drafts, ends where a fresh start does."""
        rng = random.Random(4)
        text = [rng.randrange(6) for _ in range(60)]
        grown, context = self.make(), text[:3]
        for token in text[3:]:
            self.one(grown, ask(context, rng.randrange(5)))
            context.append(token)
        fresh = self.one(self.make(), ask(list(text), 4))
        assert self.one(grown, ask(context, 4)).tokens == fresh.tokens

    def test_requests_do_not_see_each_other(self) -> None:
        proposer = self.make()
        one, other = [1, 2, 3, 4, 1, 2], [9, 8, 9, 8, 9]
        together = proposer.propose([ask(one, 3, request=1), ask(other, 3, request=2)])
        alone = [self.one(self.make(), ask(one, 3)), self.one(self.make(), ask(other, 3))]
        assert [d.tokens for d in together] == [d.tokens for d in alone]

    def test_stop_is_welcome_at_any_time(self) -> None:
        proposer = self.make()
        proposer.stop(1)
        self.one(proposer, ask([1, 2, 1], 2))
        proposer.stop(1)
        proposer.stop(1)
        self.one(proposer, ask([3, 4, 3], 2))

    def test_q_comes_with_every_token_or_not_at_all(self) -> None:
        draft = self.one(self.make(), ask([1, 2, 3, 1, 2], 4, params=WARM))
        assert draft.q is None or len(draft.q) == len(draft.tokens)
