"""A backend that fails between two requests' forwards costs one of them, never the engine."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from pathlib import Path

import pytest

from localspec.backends.base import Logits, Rounding, Span, set_rounding
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.engine.engine import Engine
from localspec.engine.learning import Learning
from localspec.engine.prefixes import Saved
from localspec.engine.sequence import Sequence
from localspec.errors import EngineError
from localspec.models.model import model_at
from localspec.protocol.options import Options
from localspec.protocol.requests import EngineConfig, Priority, Request, Result, TextPrompt
from tests.backends.test_llama_hybrid import model
from tests.toy import ToyBackend, ToyVocabulary, markov
from tests.toys import request, rested, run_all, share_always

TALE = "what is read here is read again and again, with another end each time it is read. "


class Frail(ToyBackend):
    """Fails at what is named in ``broken``."""

    broken = ""

    def truncate(self, sequence: int, length: int) -> int:
        self._fail("truncate")
        return super().truncate(sequence, length)

    def save(self, sequence: int) -> bytearray:
        self._fail("save")
        return super().save(sequence)

    def _fail(self, what: str) -> None:
        if what == self.broken:
            raise EngineError(f"{what} failed")


def frail(*, max_sequences: int, saved: Saved | None = None) -> tuple[Frail, Engine]:
    backend = Frail(markov(), n_ctx=1024, max_sequences=max_sequences)
    return backend, Engine(backend, learning=Learning(backend, chats=saved))


def asked(text: str, source: str = "run", priority: Priority = "chat", max_tokens: int = 3) -> Request:
    options = Options(max_tokens=max_tokens, temperature=0.0, proposer="none")
    return Request(prompt=TextPrompt(text), options=options, source=source, priority=priority)


def tell(engine: Engine, text: str, source: str = "run") -> Sequence:
    sequence = engine.submit(asked(text, source))
    run_all(engine, [sequence])
    return sequence


def test_a_cut_that_failed_leaves_nothing_open() -> None:
    backend, engine = frail(max_sequences=2)
    tell(engine, TALE + "one")
    assert backend.open_sequences == 1
    backend.broken = "truncate"
    failed = tell(engine, TALE + "two")
    assert isinstance(failed.events[-1], EngineError)
    assert backend.open_sequences == 0
    backend.broken = ""
    assert isinstance(tell(engine, TALE + "three").events[-1], Result)


def test_a_chat_that_cannot_be_saved_is_not_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend, engine = frail(max_sequences=2, saved=Saved(tmp_path, "toy", 1 << 20))
    backend.broken = "save"
    tell(engine, TALE * 2, "chat:one")
    rested(engine)
    assert not list(tmp_path.iterdir()) and caplog.text.count("save failed") == 1
    engine.close()


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_chat_that_is_forgotten_before_its_answer_ends_leaves_nothing(tmp_path: Path, steps: int) -> None:
    """A chat forgotten before its answer ends is neither kept nor written."""
    backend, engine = frail(max_sequences=2, saved=Saved(tmp_path, "toy", 1 << 20))
    chat = engine.submit(asked(TALE * 2, "chat:one", max_tokens=20))
    for _ in range(steps):
        engine.step()
    engine.cancel(chat.id)
    engine.forget("chat:one")
    run_all(engine, [chat])
    assert backend.open_sequences == 0
    engine.close()
    assert not list(tmp_path.iterdir())


def test_a_request_that_was_never_admitted_was_queued_all_the_time() -> None:
    _, engine = frail(max_sequences=1)
    first = engine.submit(asked(TALE, max_tokens=20))
    for _ in range(4):
        engine.step()
    second = engine.submit(asked(TALE))
    engine.step()
    engine.cancel(second.id)
    run_all(engine, [first, second])
    result = second.events[-1]
    assert isinstance(result, Result) and result.stats.queued_s > 0


def spoilt(context: list[int]) -> list[float]:
    """A model whose logits are no numbers once it has read a z."""
    if ord("z") in context:
        return [float("nan")] * ToyVocabulary.size
    return list(markov()(context))


@pytest.mark.parametrize("cuts", [{}, {"top_p": 0.9}, {"top_k": 5, "min_p": 0.01}, {"temperature": 0.0}])
def test_rows_without_a_number_end_their_own_request(cuts: dict[str, float]) -> None:
    """Also in a round that others share; their texts stay what they are."""

    def engine() -> Engine:
        target = ToyBackend(spoilt, n_ctx=256)  # type: ignore[arg-type]
        return share_always(Engine(target))

    run_all(one := engine(), [good := one.submit(request("abc", max_tokens=30, **cuts))])
    both = engine()
    fine = both.submit(request("abc", max_tokens=30, **cuts))
    while len(fine.tokens) < len(good.tokens) - 25:
        both.step()
    bad = both.submit(request("abd", max_tokens=30, **cuts))
    while not bad.prefilled:
        both.step()
    bad.tokens[-1] = ord("z")  # the answer's newest token, not read yet
    run_all(both, [fine, bad])
    assert isinstance(bad.error, EngineError) and "no valid number" in bad.error.message
    assert fine.error is None and fine.tokens == good.tokens


@pytest.mark.parametrize("hole", [float("nan"), float("-inf")])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_what_is_no_number_is_never_said(hole: float, temperature: float, noise: float) -> None:
    """Wherever it stands in a row: the text is that of a model that gives it no chance."""

    def holed(value: float) -> list[int]:
        def rule(context: list[int]) -> list[float]:
            row = list(markov()(context))
            row[sum(context) % len(row)] = row[max(range(len(row)), key=row.__getitem__)] = value
            return row

        engine = Engine(ToyBackend(rule, n_ctx=256, noise=noise))  # type: ignore[arg-type]
        asked = request("abcabcabc", max_tokens=40, temperature=temperature, seed=1, proposer="prompt-lookup")
        run_all(engine, [sequence := engine.submit(asked)])
        assert sequence.error is None
        return sequence.tokens

    assert holed(hole) == holed(-1e9)


def test_what_is_fed_again_behind_a_failed_batch_is_not_called_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recurrent state goes back to its mark; what it misses is fed at once, which rounds otherwise."""
    config = EngineConfig(n_ctx=512, parallel=2, threads=1)
    target = LlamaCppBackend(model_at(model("qwen35")), config)
    set_rounding(target, Rounding(exact_width=8, exact_batches=True))
    forward, left = target.forward, dict[int, int]()

    def fail_once(batch: Seq[Span]) -> Logits:
        if len(batch) == 1 or left:
            return forward(batch)
        try:
            return forward([batch[0], batch[1]._replace(tokens=[target.vocabulary.size])])
        finally:
            left.update({span.sequence: target.length(span.sequence) for span in batch})

    with share_always(Engine(target, config=config)) as engine:
        asks = [request(TALE + end, temperature=0.0, proposer="none", max_tokens=60) for end in "ab"]
        running = [engine.submit(ask) for ask in asks]
        while any(len(sequence.tokens) < sequence.prompt_length + 40 for sequence in running):
            engine.step()
        before = {sequence.slot: sequence.exact for sequence in running}
        monkeypatch.setattr(target, "forward", fail_once)
        engine.step()
        assert left, "the round was shared"
        for sequence in running:
            assert sequence.error is None and sequence.exact <= left[sequence.slot] < before[sequence.slot]


def test_a_stream_whose_request_is_gone_says_so() -> None:
    engine = Engine(ToyBackend(markov()))
    stream = engine.generate("abc", temperature=0.0)
    engine._scheduler.waiting.clear()
    with pytest.raises(EngineError, match="ended without a result for this request"):
        stream.finish()
