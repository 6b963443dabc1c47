"""SIGINT waits for the end of a step or a load. No signal is sent: its handler is called."""

from __future__ import annotations

import signal
from collections.abc import Callable
from collections.abc import Sequence as Seq
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from localspec.backends.base import Span
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.engine.engine import Engine
from localspec.engine.sequence import Sequence
from localspec.models.catalogue import BUNDLED_DRAFT, bundled_model
from localspec.models.model import model_at
from localspec.process import delay_interrupts
from localspec.protocol.requests import EngineConfig, Request, Result
from tests.toy import ToyBackend, ToyLogits, markov


def handler() -> Callable[[int, FrameType | None], Any]:
    found = signal.getsignal(signal.SIGINT)
    assert callable(found)
    return found


def interrupt() -> None:
    """Do what Python does at a SIGINT."""
    handler()(signal.SIGINT, None)


def test_it_comes_at_the_end_of_the_block() -> None:
    before, reached = handler(), []
    with pytest.raises(KeyboardInterrupt), delay_interrupts() as interrupted:
        assert not interrupted()
        interrupt()
        assert interrupted()
        reached.append(True)
    assert reached and handler() is before
    with delay_interrupts() as interrupted:
        pass
    assert not interrupted() and handler() is before


def test_a_second_one_ends_the_process() -> None:
    """By the system's own action, which does not wait for Python."""
    with pytest.raises(KeyboardInterrupt), delay_interrupts():
        interrupt()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def test_a_program_with_a_handler_of_its_own_keeps_it() -> None:
    before, came = handler(), []
    own = signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        with delay_interrupts() as interrupted:
            interrupt()
            interrupt()
            assert interrupted() and not came
        assert came == [True]
        with delay_interrupts():
            signal.signal(signal.SIGINT, before)
        assert handler() is before
    finally:
        signal.signal(signal.SIGINT, own)


def test_an_inner_block_hands_it_to_the_outer_one() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), delay_interrupts() as outer:
        with delay_interrupts():
            interrupt()
        reached.append(outer())
    assert reached == [True]


def test_another_thread_leaves_the_handler_alone() -> None:
    before = handler()

    def enter() -> tuple[bool, bool]:
        with delay_interrupts() as interrupted:
            return handler() is before, interrupted()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(enter).result() == (True, False)


class Interrupted(ToyBackend):
    """Is interrupted in the middle of its n-th forward."""

    left = 0

    def forward(self, batch: Seq[Span]) -> ToyLogits:
        self.left -= 1
        if self.left == 0:
            interrupt()
        return super().forward(batch)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_step_ends_and_its_request_is_cancelled(n: int) -> None:
    """In the prompt, in the first round, in a later one."""
    expected = Engine(ToyBackend(markov())).generate("abc", temperature=0.0, max_tokens=20).finish()
    model, before = Interrupted(markov()), handler()
    engine = Engine(model)
    stream = engine.generate("abc", temperature=0.0, max_tokens=20)
    model.left = n
    with pytest.raises(KeyboardInterrupt):
        stream.finish()
    assert handler() is before
    end = stream._sequence.events[-1]
    assert isinstance(end, Result) and end.finish_reason == "cancelled"
    assert expected.text.startswith(end.text)
    assert not engine.step(), "no request is left"
    assert model.open_sequences == len(engine._prefixes.kept)
    assert engine.generate("abc", temperature=0.0, max_tokens=20).finish().text == expected.text


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_load_ends_early_by_an_interrupt_or_an_error_of_its_progress(error: type[BaseException]) -> None:
    fractions: list[float] = []

    def progress(fraction: float) -> None:
        fractions.append(fraction)
        if error is ValueError:
            raise error
        interrupt()

    config = EngineConfig(n_ctx=256, parallel=1, threads=1)
    with pytest.raises(error):
        LlamaCppBackend(model_at(bundled_model(BUNDLED_DRAFT)), config, progress=progress)
    assert len(fractions) == 1 and fractions[0] < 1


def test_a_request_that_is_interrupted_while_it_is_queued_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(ToyBackend(markov()))
    submit = engine.submit

    def interrupted(request: Request) -> Sequence:
        interrupt()
        return submit(request)

    monkeypatch.setattr(engine, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.generate("abc", temperature=0.0, max_tokens=20)
    engine.step()
    assert not engine._scheduler.busy
