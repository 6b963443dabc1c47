"""The edges of a request: where it ends, what it leaves behind, what fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Sequence as Seq
from types import FrameType

import pytest

from localspec.backends.base import Span
from localspec.engine.engine import Engine
from localspec.errors import EngineError, InvalidOptions, LocalspecError
from localspec.protocol.requests import Progress, Result
from tests.toy import ToyBackend, ToyLogits, markov
from tests.toys import answer, request, rested, run_all, scripted, small_markov, toy_engine

SONG = b"la la la la la la la la la. la la la!"


def talk(text: bytes, **options: object) -> tuple[Engine, Result]:
    """An engine that continues ``text`` after its first three bytes, and its answer."""
    engine = toy_engine(scripted(text))
    return engine, engine.generate(text[:3].decode(), temperature=0.0, **options).finish()


class TestEndings:
    def test_the_next_turn_finds_the_answer_in_the_cache(self) -> None:
        engine, first = talk(SONG, proposer="prompt-lookup")
        follow_up = SONG.decode() + " And again: "
        result = engine.generate(follow_up, max_tokens=1, temperature=0.0).finish()
        assert result.cached_tokens == len(SONG)

    def test_max_tokens_in_the_middle_of_a_round(self) -> None:
        for n in range(1, 12):
            _, result = talk(SONG, max_tokens=n, proposer="prompt-lookup", k=7)
            assert result.text == SONG[3 : 3 + n].decode()
            assert (result.completion_tokens, result.finish_reason) == (n, "length")

    def test_no_tokens_at_all_only_warm_the_cache(self) -> None:
        engine, result = talk(SONG, max_tokens=0)
        assert (result.text, result.completion_tokens, result.finish_reason) == ("", 0, "length")
        assert engine.generate("la la", max_tokens=1, temperature=0.0).finish().cached_tokens == 3

    @pytest.mark.parametrize("proposer", ["none", "prompt-lookup"])
    def test_a_full_context(self, proposer: str) -> None:
        """Speculation shrinks, then decoding goes on plainly, then the context is full."""
        engine = toy_engine(scripted(b"ab" * 40), n_ctx=32)
        result = engine.generate("ab", temperature=0.0, proposer=proposer, k=8).finish()
        assert result.finish_reason == "context_full"
        # 32 tokens fit; the 33rd is known without being fed.
        assert result.text == "ab" * 15 + "a"

    @pytest.mark.parametrize("k", [1, 2, 3, 8])
    def test_a_stop_string_over_rounds_and_tokens(self, k: int) -> None:
        _, result = talk(SONG, stop=("la. la",), proposer="prompt-lookup", k=k)
        assert result.text == "la la la la la la la " and result.finish_reason == "stop_string"

    def test_cancel_while_waiting_prefilling_and_decoding(self) -> None:
        engine = Engine(ToyBackend(markov(), n_ctx=600, max_sequences=1))
        decoding, waiting = (engine.submit(request("ab", max_tokens=500)) for _ in range(2))
        engine.step()
        assert decoding.prefilled and waiting.slot < 0
        for sequence in (waiting, decoding):
            engine.cancel(sequence.id)
        prefilling = engine.submit(request("x" * 590))
        engine.step()
        assert not prefilling.prefilled
        engine.cancel(prefilling.id)
        run_all(engine, [decoding, waiting, prefilling])
        for sequence in (decoding, waiting, prefilling):
            result = sequence.events[-1]
            assert isinstance(result, Result) and result.finish_reason == "cancelled"
        assert not engine.step()

    def test_cancelling_what_does_not_run_is_harmless(self) -> None:
        toy_engine(markov()).cancel(99)


class TestStream:
    def test_the_result_is_not_there_before_the_end(self) -> None:
        stream = toy_engine(scripted(SONG)).generate("la ", temperature=0.0)
        with pytest.raises(LocalspecError, match="not ended"):
            _ = stream.result

    def test_cancel_gives_a_result(self) -> None:
        stream = toy_engine(markov()).generate("ab", max_tokens=200)
        next(iter(stream))
        stream.cancel()
        assert stream.finish().finish_reason == "cancelled"

    def test_progress_of_a_long_prompt_is_reported(self) -> None:
        engine = toy_engine(markov(), n_ctx=2048)
        events = list(engine.generate("x" * 1500, max_tokens=1).events())
        noted = [event.fraction for event in events if isinstance(event, Progress)]
        assert noted == [*(n * 256 / 1500 for n in range(1, 6)), 1.0]
        assert all(
            (event.total, event.cached) == (1500, 0) for event in events if isinstance(event, Progress)
        )


def test_a_request_without_a_draft_model_is_served_beside_those_with_one() -> None:
    engine = Engine(ToyBackend(markov()), ToyBackend(markov()))
    drafted = engine.generate("abc", max_tokens=40, temperature=0.0, proposer="draft", k=4).finish()
    plain = engine.generate("abc", max_tokens=40, temperature=0.0, draft="none").finish()
    assert (drafted.draft, plain.draft) == ("toy", None) and plain.text == drafted.text
    assert drafted.stats.proposers["draft"].accepted and "draft" not in plain.stats.proposers
    with pytest.raises(InvalidOptions, match="draft"):
        engine.generate("abc", proposer="draft", draft="none")


def test_draft_models_are_added_and_dropped_while_others_draft() -> None:
    """Each for its own requests, in one round; what is learnt of each is its own."""
    target, one, other = ToyBackend(markov()), ToyBackend(markov()), ToyBackend(small_markov(3))
    other.description, other.model = "another toy", "other"
    engine = Engine(target, one)
    engine.add_draft(other, 7)
    asked = request("abc", max_tokens=40, temperature=0.0, proposer="draft", k=4)
    sequences = [engine.submit(asked, draft=number) for number in (0, 7)]
    sequences.append(engine.submit(request("abc", max_tokens=40, temperature=0.0), draft=None))
    left = engine.submit(asked, draft=7)
    engine.step()
    engine.cancel(left.id)
    engine.drop_draft(8)
    run_all(engine, sequences)
    results = [event for s in sequences if isinstance(event := s.events[-1], Result)]
    assert [result.draft for result in results] == ["toy", "other", None]
    assert len({result.text for result in results}) == 1
    rates = [engine.learning.calibration.by_position(f"draft {each.description}") for each in (one, other)]
    assert rates[0] is not rates[1]
    leaving = engine.submit(asked, draft=7)
    engine.step()
    engine.cancel(leaving.id)
    engine.drop_draft(7)
    assert leaving.finish == "cancelled" and not engine.step()
    with pytest.raises(InvalidOptions, match="draft"):
        engine.submit(asked, draft=7)
    rested(engine)


class TestRefusals:
    def test_an_unknown_option_names_the_nearest(self) -> None:
        with pytest.raises(InvalidOptions, match="'temperature'"):
            toy_engine(markov()).generate("x", temprature=1)

    def test_a_message_without_a_role(self) -> None:
        with pytest.raises(InvalidOptions, match="role"):
            toy_engine(markov()).chat([{"content": "x"}])


class TestFailures:
    def test_a_failing_target_ends_the_request_and_frees_its_cache(self) -> None:
        class Failing(ToyBackend):
            def forward(self, batch: Seq[Span]) -> ToyLogits:
                if len(self.forwards) == 4:
                    raise EngineError("device lost")
                return super().forward(batch)

        backend = Failing(markov())
        engine = Engine(backend)
        with pytest.raises(EngineError, match="device lost"):
            engine.generate("ab", temperature=0.0, max_tokens=50).finish()
        assert backend.open_sequences == 0 and not engine.step()

    def test_one_bad_sequence_does_not_end_its_neighbours(self) -> None:
        class Picky(ToyBackend):
            def forward(self, batch: Seq[Span]) -> ToyLogits:
                if any(span.sequence == 1 and self.length(1) > 6 for span in batch):
                    raise EngineError("sequence 1 is cursed")
                return super().forward(batch)

        engine = Engine(Picky(scripted(SONG, b"abcdefghijklmnopq")))
        good, bad = (engine.submit(request(p, temperature=0.0)) for p in ("la ", "abc"))
        run_all(engine, [good, bad])
        assert bytes(answer(good)) == SONG[3:]
        assert isinstance(bad.events[-1], EngineError)

    def test_a_cache_that_cannot_be_rolled_back_means_no_speculation_and_says_why(self) -> None:
        engine = Engine(ToyBackend(scripted(SONG), rollback=0))
        result = engine.generate("la ", temperature=0.0).finish()
        assert result.text == SONG[3:].decode()
        assert result.stats.drafted == 0 and "rolled back" in (result.stats.speculation_off_reason or "")

    def test_a_shallow_rollback_limits_the_draft(self) -> None:
        engine = Engine(ToyBackend(small_markov(3), rollback=3))
        result = engine.generate(
            "abcabc", temperature=0.0, exactness="fast", proposer="prompt-lookup", k=8, max_tokens=60
        ).finish()
        assert max(result.stats.k_histogram) == 2

    def test_a_state_that_goes_back_only_to_where_it_was_kept_gives_the_same_text(self) -> None:
        drafted = accepted = fed = needed = 0
        for seed in range(8):
            rule = small_markov(3, sharpness=3.0)
            options = {"temperature": 1.0, "seed": seed, "max_tokens": 60}
            plain = Engine(ToyBackend(rule)).generate("abcabcabc", **options, proposer="none").finish()
            target = ToyBackend(rule, rollback="replay")
            engine = Engine(target)
            result = engine.generate("abcabcabc", **options, proposer="prompt-lookup", k=8).finish()
            assert result.text == plain.text
            drafted, accepted = drafted + result.stats.drafted, accepted + result.stats.accepted
            fed += sum(len(span.tokens) for forward in target.forwards for span in forward)
            needed += result.prompt_tokens + result.stats.drafted + result.stats.rounds
        assert drafted > accepted > 0 and fed > needed


def test_what_waits_gets_an_error_and_nothing_new_is_taken() -> None:
    engine = Engine(ToyBackend(markov(), max_sequences=1))
    running, waiting = (engine.submit(request("ab", max_tokens=200)) for _ in range(2))
    engine.step()
    engine.close()
    engine.close()
    for sequence in (running, waiting):
        assert isinstance(sequence.events[-1], EngineError)
    with pytest.raises(EngineError, match="closed"):
        engine.generate("x")


def test_a_cancelled_request_does_not_wait_for_the_head_of_the_queue() -> None:
    engine = Engine(ToyBackend(markov(), n_ctx=600, max_sequences=1))
    engine.submit(request("ab", max_tokens=500))
    head, cancelled = engine.submit(request("cd")), engine.submit(request("ef"))
    engine.step()
    engine.cancel(cancelled.id)
    engine.step()
    assert isinstance(cancelled.events[-1], Result) and not head.events


class TestStats:
    def test_the_numbers_fit_together(self) -> None:
        result = talk(SONG, proposer="prompt-lookup", k=3)[1]
        stats = result.stats
        emitted = result.completion_tokens + 1 - 1  # with the end token, without the first one
        assert stats.tokens_per_round == emitted / stats.rounds
        assert sum(stats.k_histogram.values()) == stats.rounds
        assert sum(k * n for k, n in stats.k_histogram.items()) == stats.drafted
        assert stats.drafted == sum(share.drafted for share in stats.proposers.values())
        assert stats.accepted == sum(share.accepted for share in stats.proposers.values())
        assert stats.accepted + stats.rounds == emitted
        assert stats.acceptance_rate == stats.accepted / stats.drafted
        assert stats.ttft_s is not None and stats.decode_tokens_per_s is not None

    def test_plain_decoding_says_why(self) -> None:
        stats = talk(SONG, proposer="none")[1].stats
        assert stats.speculation_off_reason == "proposer is none"
        assert (stats.acceptance_rate, stats.tokens_per_round, stats.drafted) == (None, 1.0, 0)


def calls_of(do: Callable[[], object]) -> list[str]:
    """The names of the functions of engine and speculation that ``do`` calls."""
    found, ours = list[str](), ("localspec/engine/", "localspec/speculation/")

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and any(part in frame.f_code.co_filename for part in ours):
            found.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return found


def test_few_python_calls_lead_to_the_first_forward_and_make_a_round() -> None:
    """On a GPU a token takes a millisecond: Python's part of it must stay small."""
    engine, rounds = toy_engine(scripted(SONG * 8)), 16
    asked = request(SONG[:3].decode(), temperature=0.0, proposer="none")
    found = calls_of(lambda: (engine.submit(asked), engine.step()))
    assert len(found[: found.index("wrote")]) <= 54, found
    for _ in range(8):
        engine.step()
    found = calls_of(lambda: [engine.step() for _ in range(rounds)])
    assert len(found) <= 58 * rounds, len(found) / rounds
