"""Prefix reuse by the next request (turns, edits, forks, keystrokes), and eviction for room."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace

import pytest

from localspec.engine.engine import Engine
from localspec.engine.sequence import Sequence
from localspec.protocol.options import Options
from localspec.protocol.requests import EngineConfig, Request, Result, TextPrompt, TokenPrompt
from tests.toy import ToyBackend, ToyVocabulary, markov
from tests.toys import request, run_all, share_always

LONG = "once upon a time there was a cache that remembered all that it was said by anyone; "


def ask(engine: Engine, text: str, source: str = "run", **options: object) -> Result:
    """The result of a plain prompt; ``source`` is that of the request."""
    said = {"temperature": 0.0, "max_tokens": 2, **options}
    request = Request(prompt=TextPrompt(text), options=Options(**said), source=source)  # type: ignore[arg-type]
    sequence = engine.submit(request)
    run_all(engine, [sequence])
    return result_of(sequence)


def result_of(sequence: Sequence) -> Result:
    last = sequence.events[-1]
    assert isinstance(last, Result)
    return last


def toy(**settings: object) -> Engine:
    return Engine(ToyBackend(markov(), **settings))  # type: ignore[arg-type]


@pytest.fixture
def engine() -> Engine:
    return toy()


class TestWhatIsSpared:
    def test_an_edit_in_the_middle_spares_what_stands_before_it(self, engine: Engine) -> None:
        ask(engine, LONG + "the end")
        assert ask(engine, LONG[:50] + "EDITED" + LONG[50:]).cached_tokens == 50

    def test_a_fork_of_a_chat_leaves_the_chat_its_cache(self, engine: Engine) -> None:
        whole = LONG * 3
        ask(engine, whole, "chat:one")
        fork = ask(engine, LONG + "and then something else", "chat:two")
        assert fork.cached_tokens >= len(LONG)
        assert ask(engine, whole + "and on", "chat:one").cached_tokens >= len(whole)

    @pytest.mark.parametrize(("shared", "copied"), [(5, 0), (20, 20)])
    def test_a_chat_copies_a_system_prompt_and_leaves_the_others_alone(
        self, shared: int, copied: int
    ) -> None:
        engine = toy(max_sequences=4)
        whole = LONG * 2
        ask(engine, whole, "chat:one")
        assert ask(engine, whole[:shared] + "?", "chat:two").cached_tokens == copied
        assert ask(engine, whole + "!", "chat:one").cached_tokens >= len(whole)

    def test_a_request_copies_what_a_running_one_has_read(self, engine: Engine) -> None:
        running = engine.submit(Request(prompt=TextPrompt(LONG), options=Options(max_tokens=200)))
        for _ in range(5):
            engine.step()
        result = ask(engine, LONG + "is what I say, too")
        assert result.cached_tokens >= len(LONG)
        run_all(engine, [running])

    def test_a_cancelled_prompt_leaves_what_was_read(self) -> None:
        engine = toy(n_ctx=2048)
        sequence = engine.submit(Request(prompt=TextPrompt("x" * 1000), options=Options(max_tokens=2)))
        engine.step()
        engine.cancel(sequence.id)
        run_all(engine, [sequence])
        assert ask(engine, "x" * 1000).cached_tokens == 256

    def test_a_keystroke_feeds_what_stands_behind_it(self) -> None:
        engine = toy(n_ctx=2048)
        text, suffix = LONG * 4, "\n    return memory\n"
        cold = engine.complete(text, suffix, max_tokens=4)
        warm = engine.complete(text + "d", suffix, max_tokens=4)
        assert cold.cached_tokens == 0
        assert warm.prompt_tokens - warm.cached_tokens == len("d" + suffix) + 2

    def test_a_strict_request_takes_over_whole_pieces(self) -> None:
        engine = toy(n_ctx=2048)
        text = LONG * 4
        engine.complete(text, "", max_tokens=4)
        warm = engine.complete(text + "def", "", max_tokens=4, exactness="strict")
        assert warm.cached_tokens == 256 < engine.complete(text + "de", "", max_tokens=4).cached_tokens

    def test_a_long_answer_does_not_replace_a_prompt_that_lends_more(self) -> None:
        """Cells of an answer are not those of a prompt, where that counts."""

        def letters(context: Seq[int]) -> list[float]:
            return [float(i == 97 + sum(context[-2:]) % 26) for i in range(ToyVocabulary.size)]

        engine = Engine(ToyBackend(letters, n_ctx=2048, noise=0.001), config=EngineConfig(prefill_chunk=32))
        short = LONG[:40]
        long = short + ask(engine, short, "chat:one", max_tokens=160).text
        engine.forget("chat:one")
        ask(engine, long, "chat:one")
        answer = ask(engine, short, "chat:two", max_tokens=200)
        assert answer.text.startswith(long[40:])
        assert ask(engine, long + "?", "chat:one", exactness="strict").cached_tokens == 192

    def test_cells_of_shared_rounds_are_not_exact_where_batches_round_otherwise(self) -> None:
        backend = ToyBackend(markov(), n_ctx=1024)
        backend.capabilities = replace(backend.capabilities, exact_batches=False)
        engine = share_always(Engine(backend))
        running = [engine.submit(request(LONG + end, temperature=0.0, max_tokens=20)) for end in "ab"]
        run_all(engine, running)
        said = running[0].tokens
        assert running[0].exact < len(said) - 1
        again = engine.submit(Request(prompt=TokenPrompt(tuple(said)), options=Options(temperature=0.0)))
        engine.step()
        assert again.cached == len(said) - 1 and again.exact == again.canonical == 0


class TestRoom:
    def test_a_long_talk_survives_short_requests_between_its_turns(self) -> None:
        """As of one over HTTP, whose requests are all of one source."""
        engine = toy(max_sequences=1, n_ctx=2048)
        for n in range(3):
            talk = LONG * (n + 6)
            assert ask(engine, talk).cached_tokens >= (len(LONG * (n + 5)) if n else 0)
            for start in (n * "x", LONG[:70], "tags", LONG[5:75]):
                ask(engine, f"{start}: {LONG[:60]} a title for this?")

    def test_what_is_set_aside_is_forgotten_with_its_source(self) -> None:
        engine = toy(max_sequences=1)
        ask(engine, LONG, "chat:one")
        ask(engine, "a title", "run")
        engine.forget("chat:one")
        assert ask(engine, LONG, "chat:one").cached_tokens == 0

    def test_what_is_short_goes_before_what_is_long(self) -> None:
        engine = toy(max_sequences=3)
        ask(engine, LONG * 4, "chat:long")
        for n in range(6):
            ask(engine, f"{n} is a short question", f"run:{n}")
        assert ask(engine, LONG * 4 + "?", "chat:long").cached_tokens >= len(LONG * 4)

    def test_what_is_long_and_never_used_goes_in_the_end(self) -> None:
        engine = toy(max_sequences=3)
        ask(engine, LONG * 4, "chat:long")
        for n in range(40):
            ask(engine, f"{n:02}{LONG}", f"run:{n}")
        assert ask(engine, LONG * 4 + "?", "chat:long").cached_tokens == 0

    def test_a_start_of_something_longer_is_not_kept_beside_it(self, engine: Engine) -> None:
        for n in range(1, 5):
            ask(engine, LONG * n, "chat:one")
        assert isinstance(engine.target, ToyBackend) and engine.target.open_sequences == 1
