"""Tests of every backend. Subclass :class:`BackendConformance` as ``Test…`` and define ``make``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from localspec.backends.base import Backend, Logits, Rows, Span
from localspec.errors import EngineBusy, EngineError


def feed(backend: Backend, sequence: int, tokens: list[int], rows: int = 1) -> Logits:
    return backend.forward([Span(sequence, tokens, rows)])


def go_back(backend: Backend, sequence: int, tokens: list[int], length: int) -> None:
    """Roll back to ``length`` of ``tokens``; what the backend could not keep is fed again."""
    reachable = backend.reach(sequence, length)
    assert backend.truncate(sequence, length) == backend.length(sequence) == reachable <= length
    if reachable < length:
        feed(backend, sequence, tokens[reachable:length], rows=0)


class BackendConformance:
    """``tolerance`` is how far logits of one position may differ between forwards of different width;
    ``far`` is a length at which windows have moved on."""

    tolerance = 0.0
    far = 60

    @classmethod
    def make(cls) -> Backend:
        raise NotImplementedError

    def text(self, backend: Backend) -> list[int]:
        """Some tokens that mean something to the model, at least 60."""
        return backend.vocabulary.encode("def fib(n):\n    return n if n < 2 else " * 12, special=False)

    def keeps(self, backend: Backend) -> bool:
        """Return True if the backend can roll back a dozen tokens and more."""
        return True

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls) -> Iterator[Backend]:
        backend = cls.make()
        yield backend
        backend.free()

    @pytest.fixture
    def backend(self, shared: Backend) -> Iterator[Backend]:
        """A backend with all its sequences closed again afterwards."""
        yield shared
        for sequence in range(shared.capabilities.max_sequences):
            try:
                shared.close(sequence)
            except (KeyError, EngineError):
                continue

    def close_to(self, one: Rows, other: Rows) -> bool:
        return one.shape == other.shape and float(np.abs(one - other).max()) <= self.tolerance

    def test_open_sequences_are_distinct_and_limited(self, backend: Backend) -> None:
        n = backend.capabilities.max_sequences
        assert len({backend.open() for _ in range(n)}) == n
        with pytest.raises(EngineBusy):
            backend.open()

    def test_a_closed_sequence_can_be_opened_again(self, backend: Backend) -> None:
        sequence = backend.open()
        feed(backend, sequence, self.text(backend)[:5])
        backend.close(sequence)
        again = backend.open()
        assert backend.length(again) == 0

    def test_rows_are_given_for_the_last_tokens_asked(self, backend: Backend) -> None:
        tokens = self.text(backend)[:8]
        every = feed(backend, backend.open(), tokens, rows=8).rows(0, 8)
        last = feed(backend, backend.open(), tokens, rows=3).rows(0, 3)
        assert every.dtype == np.float32 and every.shape == (8, backend.vocabulary.size)
        assert self.close_to(every[5:], last)

    def test_rows_are_a_copy(self, backend: Backend) -> None:
        sequence = backend.open()
        before = feed(backend, sequence, self.text(backend)[:4]).rows(0, 1)
        kept = before.copy()
        feed(backend, sequence, self.text(backend)[4:9])
        assert np.array_equal(before, kept)

    def test_argmax_and_margins_agree_with_the_rows(self, backend: Backend) -> None:
        logits = feed(backend, backend.open(), self.text(backend)[:12], rows=12)
        rows = logits.rows(0, 12)
        assert list(logits.argmax()) == rows.argmax(axis=-1).tolist()
        assert [logits.choice(i) for i in range(12)] == rows.argmax(axis=-1).tolist()
        ordered = np.sort(rows, axis=-1)
        assert np.allclose(logits.margins(), ordered[:, -1] - ordered[:, -2])

    def test_batched_verify_equals_sequential_decode(self, backend: Backend) -> None:
        """One forward over k+1 tokens gives the rows that k+1 forwards of one token give."""
        tokens = self.text(backend)
        wide, narrow = backend.open(), backend.open()
        feed(backend, wide, tokens[:20]), feed(backend, narrow, tokens[:20])
        at_once = feed(backend, wide, tokens[20:26], rows=6).rows(0, 6)
        one_by_one = np.concatenate([feed(backend, narrow, [t]).rows(0, 1) for t in tokens[20:26]])
        assert self.close_to(at_once, one_by_one)

    @pytest.mark.parametrize("chunk", [2, 3, 7, 16])
    def test_chunked_prefill_equals_prefill_at_once(self, backend: Backend, chunk: int) -> None:
        tokens = self.text(backend)[:42]
        whole = feed(backend, backend.open(), tokens).rows(0, 1)
        sequence = backend.open()
        for start in range(0, len(tokens), chunk):
            logits = feed(backend, sequence, tokens[start : start + chunk])
        assert self.close_to(logits.rows(0, 1), whole)

    @pytest.mark.parametrize("depth", [1, 4, 19])
    def test_truncate_forgets_exactly_the_tail(self, backend: Backend, depth: int) -> None:
        tokens = self.text(backend)[:30]
        sequence = backend.open()
        expected = feed(backend, sequence, tokens, rows=5).rows(0, 5)
        assert backend.reach(sequence, 25) == 25 or not self.keeps(backend)
        go_back(backend, sequence, tokens, 25)
        feed(backend, sequence, list(reversed(tokens))[:depth])
        go_back(backend, sequence, tokens, 25)
        assert backend.length(sequence) == 25
        assert self.close_to(feed(backend, sequence, tokens[25:], rows=5).rows(0, 5), expected)

    def test_truncate_to_nothing_and_to_the_same_length(self, backend: Backend) -> None:
        sequence = backend.open()
        feed(backend, sequence, self.text(backend)[:6])
        backend.truncate(sequence, 6)
        assert backend.length(sequence) == 6
        backend.truncate(sequence, 0)
        assert backend.length(sequence) == 0

    def test_truncate_beyond_the_end_is_an_error(self, backend: Backend) -> None:
        sequence = backend.open()
        feed(backend, sequence, self.text(backend)[:3])
        with pytest.raises(EngineError):
            backend.truncate(sequence, 4)

    def test_a_fork_shares_the_prefix_and_then_goes_its_own_way(self, backend: Backend) -> None:
        tokens = self.text(backend)[:24]
        original = backend.open()
        feed(backend, original, tokens[:20])
        copy = backend.fork(original, 16)
        rest = [*tokens[backend.length(copy) : 16], *tokens[:9]]
        feed(backend, copy, rest)
        alone = backend.open()
        feed(backend, alone, tokens[:20])
        one = feed(backend, original, tokens[20:]).rows(0, 1)
        assert self.close_to(one, feed(backend, alone, tokens[20:]).rows(0, 1))
        backend.close(original)
        assert backend.length(copy) == 25

    def test_a_saved_sequence_goes_on_as_if_nothing_had_happened(self, backend: Backend) -> None:
        if not backend.capabilities.saves:
            pytest.skip("this backend cannot save a sequence")
        tokens = self.text(backend)[:40]
        sequence, neighbour = backend.open(), backend.open()
        feed(backend, sequence, tokens[:30], 0)
        state = backend.save(sequence)
        expected = feed(backend, sequence, tokens[30:], 10).rows(0, 10)
        feed(backend, neighbour, tokens[5:25], 0)
        backend.close(sequence)
        copy = backend.restore(state)
        assert backend.length(copy) == 30
        assert np.array_equal(feed(backend, copy, tokens[30:], 10).rows(0, 10), expected)
        kept = backend.truncate(copy, 12)
        assert kept == 12 or (kept < 12 and not self.keeps(backend))
        again = backend.restore(state)
        assert np.array_equal(feed(backend, again, tokens[30:], 10).rows(0, 10), expected)

    def test_bytes_that_are_no_sequence_are_refused_and_nothing_is_left_open(self, backend: Backend) -> None:
        if not backend.capabilities.saves:
            pytest.skip("this backend cannot save a sequence")
        sequence = backend.open()
        feed(backend, sequence, self.text(backend)[:20], 0)
        state = backend.save(sequence)
        backend.close(sequence)
        for damaged in (bytearray(), state[:3], state[: len(state) // 2], bytearray(b"\xff" * 40)):
            with pytest.raises(EngineError):
                backend.restore(damaged)
        opened = [backend.open() for _ in range(backend.capabilities.max_sequences)]
        assert len(set(opened)) == backend.capabilities.max_sequences

    def test_a_ragged_batch_equals_each_sequence_alone(self, backend: Backend) -> None:
        tokens = self.text(backend)
        parts = [(tokens[:10], 1), (tokens[5:20], 4), (tokens[30:33], 3)]
        spans = [Span(backend.open(), part, rows) for part, rows in parts]
        together = backend.forward(spans).rows(0, 8)
        for sequence, *_ in spans:
            backend.close(sequence)
        alone = np.concatenate([feed(backend, backend.open(), p, rows=r).rows(0, r) for p, r in parts])
        assert self.close_to(together, alone)

    def test_sequences_roll_back_each_by_its_own_amount(self, backend: Backend) -> None:
        tokens = self.text(backend)
        one, two = backend.open(), backend.open()
        backend.forward([Span(one, tokens[:10], 0), Span(two, tokens[:12], 0)])
        go_back(backend, one, tokens, 7)
        go_back(backend, two, tokens, 11)
        assert (backend.length(one), backend.length(two)) == (7, 11)

    def test_what_a_forward_appended_can_be_taken_back_in_every_round(self, backend: Backend) -> None:
        """Rejected tokens leave nothing behind, however often and at whatever length."""
        tokens = (self.text(backend) * 8)[: self.far + 60]
        sequence, plain = backend.open(), backend.open()
        for at in range(0, self.far, 100):
            piece = tokens[at : min(at + 100, self.far)]
            feed(backend, sequence, piece, rows=0), feed(backend, plain, piece, rows=0)
        for n in range(self.far, self.far + 42, 3):
            rollback = backend.rollback(sequence)
            wrong = [tokens[0]] * min(7, 7 if rollback is None else rollback)
            missing = tokens[backend.length(sequence) : n]
            feed(backend, sequence, [*missing, *tokens[n : n + 3], *wrong], rows=len(wrong) + 1)
            if wrong:
                backend.truncate(sequence, n + 3)
            expected = feed(backend, plain, tokens[n : n + 3]).rows(0, 1)
            again = backend.fork(sequence, min(n + 2, backend.length(sequence)))
            rest = tokens[backend.length(again) : n + 3]
            assert self.close_to(feed(backend, again, rest).rows(0, 1), expected)
            backend.close(again)

    def test_a_mark_can_be_come_back_to(self, backend: Backend) -> None:
        tokens = self.text(backend)
        sequence = backend.open()
        feed(backend, sequence, tokens[:20], rows=0)
        backend.mark(sequence)
        expected = feed(backend, sequence, tokens[20:30], rows=5).rows(0, 5)
        for wrong in (1, 4, 2):
            feed(backend, sequence, tokens[:wrong])
        kept = backend.truncate(sequence, 20)
        assert kept == 20 or not self.keeps(backend)
        assert self.close_to(feed(backend, sequence, tokens[kept:30], rows=5).rows(0, 5), expected)

    def test_neighbours_may_leave_and_others_take_their_places(self, backend: Backend) -> None:
        tokens = self.text(backend)
        texts = [tokens[i : i + 30] for i in (0, 7, 11, 2)]
        alone, expected = backend.open(), []
        for text in texts:
            backend.truncate(alone, 0)
            expected.append(feed(backend, alone, text).rows(0, 1))
        backend.close(alone)
        sequences = {i: backend.open() for i in range(3)}
        for i, sequence in sequences.items():
            feed(backend, sequence, texts[i][:20], rows=0)
        backend.close(sequences.pop(1))
        backend.forward([Span(sequences[i], texts[i][20:25], 0) for i in (0, 2)])
        sequences[3] = backend.open()
        feed(backend, sequences[3], texts[3][:28], rows=0)
        backend.close(sequences.pop(0))
        rows = backend.forward([Span(sequences[3], texts[3][28:], 1), Span(sequences[2], texts[2][25:], 1)])
        assert self.close_to(rows.rows(0, 2), np.concatenate([expected[3], expected[2]]))

    def test_a_forward_too_wide_appends_nothing(self, backend: Backend) -> None:
        sequence = backend.open()
        feed(backend, sequence, self.text(backend)[:4])
        too_many = [1] * (backend.capabilities.max_batch + 1)
        with pytest.raises(EngineError):
            feed(backend, sequence, too_many)
        assert backend.length(sequence) == 4
        feed(backend, sequence, self.text(backend)[4:6])

    def test_pieces_join_to_the_text_they_encode(self, backend: Backend) -> None:
        text = "def naïve(): return '🙂' # ok\n"
        tokens = backend.vocabulary.encode(text, special=False)
        assert b"".join(backend.vocabulary.piece(t) for t in tokens) == text.encode()

    def test_special_tokens_have_a_name_but_no_text(self, backend: Backend) -> None:
        vocabulary = backend.vocabulary
        assert vocabulary.end_tokens <= vocabulary.special_tokens
        for token in vocabulary.special_tokens:
            assert vocabulary.piece(token) == b"" and vocabulary.text_of(token)

    def test_special_text_is_read_as_such_only_when_asked(self, backend: Backend) -> None:
        vocabulary = backend.vocabulary
        token = min(vocabulary.end_tokens)
        name = vocabulary.text_of(token).decode()
        assert vocabulary.encode(name, special=True) == [token]
        assert token not in vocabulary.encode(name, special=False)
