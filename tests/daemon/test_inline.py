"""Inline completions: known ones are returned at once, and others wait for the next keystroke."""

from __future__ import annotations

import dataclasses
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.daemon.daemon import (
    GAP_S,
    GAPS,
    KEPT,
    LONGEST_S,
    PAUSE_S,
    SHOWN,
    TAIL,
    TYPED,
    Found,
    Pace,
    Query,
    Suggestions,
)
from localspec.errors import Gone
from localspec.protocol.options import Options
from tests.daemon.harness import Raw

QUERY = Query("x = ", "\nend", "a.py", "python", True, Options(model="m"))


def known(*answers: tuple[Query, str]) -> Suggestions:
    suggestions = Suggestions()
    for query, text in answers:
        suggestions.keep(query, (text,))
    return suggestions


def test_the_same_question_has_the_same_answer() -> None:
    assert known((QUERY, "foo(1)")).find(QUERY) == Found(("foo(1)",), "cache")


@pytest.mark.parametrize(
    "other",
    [
        {"prefix": "y = "},
        {"suffix": "\nother"},
        {"path": "b.py"},
        {"language": None},
        {"multiline": False},
        {"options": Options(model="n")},
    ],
    ids=lambda other: next(iter(other)),
)
def test_whatever_differs_is_another_question(other: dict[str, object]) -> None:
    assert known((QUERY, "foo(1)")).find(dataclasses.replace(QUERY, **other)) is None  # type: ignore[arg-type]


def test_what_is_typed_along_leaves_the_rest() -> None:
    suggestions = known((QUERY, "foo(1)"))
    assert suggestions.find(QUERY.after("fo")) == Found(("o(1)",), "type-through")
    assert suggestions.find(QUERY.after("fa")) is None
    assert suggestions.find(QUERY.after("foo(1)")) is None, "nothing is left"


def test_of_several_the_longest_rest_wins() -> None:
    suggestions = known((QUERY, "foo(1)\nbar(2)"), (QUERY.after("fo"), "o"))
    assert suggestions.find(QUERY.after("fo")) == Found(("o(1)\nbar(2)",), "type-through")


def test_all_items_that_go_on_so_are_kept() -> None:
    suggestions = Suggestions()
    suggestions.keep(QUERY, ("foo", "bar", "fob"))
    assert suggestions.find(QUERY.after("fo")) == Found(("o", "b"), "type-through")


def test_a_known_single_answer_does_not_answer_a_request_for_more() -> None:
    suggestions, three = known((QUERY, "foo")), dataclasses.replace(QUERY, count=3)
    assert suggestions.find(three) is None and suggestions.find(three.after("f")) is not None
    suggestions.keep(three, ("foo", "bar"))
    assert suggestions.find(three) == suggestions.find(QUERY) == Found(("foo", "bar"), "cache")


def test_that_there_is_nothing_to_say_is_known_too() -> None:
    suggestions = Suggestions()
    suggestions.keep(QUERY, ())
    assert suggestions.find(QUERY) == Found((), "cache")
    assert suggestions.find(QUERY.after("f")) is None


def test_so_many_characters_may_have_been_typed() -> None:
    suggestions = known((QUERY, "a" * (TYPED + 10)))
    assert suggestions.find(QUERY.after("a" * TYPED)) == Found(("a" * 10,), "type-through")
    assert suggestions.find(QUERY.after("a" * (TYPED + 1))) is None


def test_only_the_last_answers_and_items_are_kept() -> None:
    suggestions = known(*((QUERY.after(f"{n};"), "text") for n in range(KEPT + 1)))
    assert suggestions.find(QUERY.after("0;")) is None and suggestions.find(QUERY.after("1;")) is not None
    (first,) = suggestions.show(QUERY, ("x",))
    suggestions.show(QUERY, tuple(str(n) for n in range(SHOWN - 1)))
    assert suggestions.shown(first.id).text == "x"
    suggestions.show(QUERY, tuple(str(n) for n in range(SHOWN)))
    with pytest.raises(Gone):
        suggestions.shown(first.id)


@pytest.mark.parametrize(("remember", "held"), [(None, TAIL), (False, 0)])
def test_an_item_holds_an_end_of_its_file_or_nothing(remember: bool | None, held: int) -> None:
    suggestions, options = Suggestions(), Options(model="m", remember=remember)
    query = dataclasses.replace(QUERY, prefix="x" * 1_000_000, options=options)
    (item,) = suggestions.show(query, ("text",))
    shown = suggestions.shown(item.id)
    assert (len(shown.before), shown.text, shown.path) == (held, "text", "a.py")


@given(prefix=st.text(max_size=300), text=st.text(min_size=1, max_size=40), n=st.integers(0, 40))
def test_typing_along_any_text(prefix: str, text: str, n: int) -> None:
    query = dataclasses.replace(QUERY, prefix=prefix)
    found = known((query, text)).find(query.after(text[:n]))
    rest = text[n:]
    assert found == (Found((rest,), "type-through" if n else "cache") if rest.strip() else found)
    assert rest.strip() or found is None or found.texts == ()


def test_what_comes_after_an_invoked_one_comes_by_itself() -> None:
    invoked = dataclasses.replace(QUERY, invoked=True)
    assert invoked.after("foo") == QUERY.after("foo")


def typing(gap: float, answer: float, keys: int = 60) -> Pace:
    """A user who types a key each ``gap``, on a model that answers in ``answer``."""
    pace = Pace()
    for key in range(keys):
        pace.requested(key * gap)
        pace.answered(answer, whole=True)
    return pace


def test_at_first_nothing_waits() -> None:
    assert Pace().wait == 0


@pytest.mark.parametrize("answer", [0.0, 0.02, 0.149])
def test_an_answer_that_comes_between_two_keys_is_begun_at_once(answer: float) -> None:
    assert typing(0.15, answer).wait == 0


def test_a_slower_one_waits_the_longer_the_longer_it_takes() -> None:
    waits = [typing(0.15, answer).wait for answer in (0.15, 0.2, 0.25, 0.3, 5.0)]
    assert waits == sorted(waits) and waits[0] == pytest.approx(0, abs=0.001)
    assert waits[1] == pytest.approx(0.05, abs=0.01)
    assert waits[-1] == pytest.approx(GAPS * 0.15, rel=0.01)


def test_a_slow_typist_waits_for_no_longer_than_a_pause() -> None:
    assert typing(0.5, 5.0).wait == LONGEST_S


def test_a_pause_is_no_typing() -> None:
    thoughtful = Pace()
    for second in range(100):
        thoughtful.requested(second * 2 * PAUSE_S)
    thoughtful.answered(100.0, whole=True)
    fresh = Pace()
    fresh.answered(100.0, whole=True)
    assert thoughtful.wait == fresh.wait <= GAPS * GAP_S


def test_what_was_given_up_tells_how_long_it_takes_at_least() -> None:
    pace = typing(0.15, 0.0)
    pace.answered(0.01, whole=False)
    assert pace.wait == 0
    pace.answered(0.4, whole=False)
    waited = pace.wait
    assert waited > 0.2
    pace.answered(0.001, whole=False)
    assert pace.wait == waited, "one that was given up early says nothing"


def test_a_model_that_has_to_be_loaded_first_is_not_slow_for_long() -> None:
    pace = typing(0.15, 0.05)
    pace.answered(60.0, whole=True)
    for _ in range(10):
        pace.answered(0.05, whole=True)
    assert pace.wait == 0


@pytest.mark.slow
async def test_while_a_question_waits_a_newer_one_spares_the_model(client: Raw) -> None:

    async def ask(id: int, prefix: str, **more: object) -> None:
        await client.ask(id, "completion/inline", prefix=prefix, suffix="", path="pace.py", **more)

    async def at_work() -> bool:
        status = await client.result("status", "daemon/status")
        return any(model["running"] for model in status["models"])

    async def at_work_when_replaced(id: int, after_s: float) -> bool:
        await ask(id, f"{id}\nstall")
        began, start = False, time.monotonic()
        while time.monotonic() - start < after_s:
            began = began or await at_work()
        await ask(id + 1, f"newer {id}", trigger="invoked")
        assert (await client.response(id))["result"]["result"]["finish_reason"] == "cancelled"
        assert (await client.response(id + 1))["result"]["items"]
        return began

    await ask(1, "loaded")
    assert (await client.response(1))["result"]["items"]
    assert await at_work_when_replaced(2, after_s=1.0), "the first is begun at once"
    # This model is known to be slow now. A machine that sleeps in between is given another chance.
    assert any([not await at_work_when_replaced(id, after_s=0.1) for id in range(4, 14, 2)])
    # A request with a short deadline does not wait until it.
    await ask(20, "20\nword", max_ms=250)
    assert (await client.response(20))["result"]["items"]
