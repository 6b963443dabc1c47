"""Strict answers of models that go back to marks alone write nothing anew twice."""

from __future__ import annotations

from localspec.backends.toy import ToyBackend
from localspec.engine.engine import Engine
from tests.hostile import family
from tests.toys import answer, request, run_all, small_markov

LENGTH = 60


class OneMark(ToyBackend):
    """A backend that keeps no second mark."""

    def mark(self, sequence: int, *, beside: bool = False) -> None:
        if not beside:
            super().mark(sequence)


def noisy(kind: type[ToyBackend]) -> ToyBackend:
    target = kind(small_markov(3), rollback="replay")
    target.make_noisy(0.02)
    return target


def strict_answer(kind: type[ToyBackend]) -> tuple[list[int], int]:
    """The answer under drafts that are right, and how many of its tokens were written anew."""
    plain, target = Engine(noisy(kind), None), noisy(kind)
    truth = plain.submit(request("abcab", proposer="none", max_tokens=LENGTH))
    run_all(plain, [truth])
    oracle = family(answer(truth), size=target.vocabulary.size, end=256, prompt_length=truth.prompt_length)[
        -1
    ]
    engine = Engine(target, None, proposers=[oracle])
    sequence = engine.submit(request("abcab", proposer="none", k=3, max_tokens=LENGTH))
    sequence.proposer = oracle.name
    run_all(engine, [sequence])
    assert answer(sequence) == answer(truth)
    return answer(sequence), sequence.stats.replayed_tokens


def test_what_was_written_anew_is_marked() -> None:
    marked, once = strict_answer(ToyBackend)
    unmarked, again = strict_answer(OneMark)
    assert marked == unmarked
    assert 0 < once <= len(marked) + len("abcab") < again
