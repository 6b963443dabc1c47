"""Completions that were answered serve the same request again, and text typed along them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.completion.gap import Gap
from localspec.daemon.suggestions import (
    COMPARED,
    KEPT,
    SHOWN,
    TAIL,
    TYPED,
    KnownAnswer,
    Query,
    SuggestionCache,
    hash_end,
)
from localspec.errors import Gone
from localspec.protocol.options import Options

QUERY = Query(Gap("x = ", "\nend", "python", "a.py"), Options(model="m"))


def known(*answers: tuple[Query, str]) -> SuggestionCache:
    suggestions = SuggestionCache()
    for query, text in answers:
        suggestions.keep(query, (text,))
    return suggestions


@pytest.mark.parametrize(
    "other",
    [{"prefix": "y = "}, {"suffix": "\nother"}, {"path": "b.py"}, {"language": None}, {"multiline": False}],
    ids=lambda other: next(iter(other)),
)
def test_whatever_differs_is_another_question(other: dict[str, Any]) -> None:
    gap = dataclasses.replace(QUERY.gap, **other)
    assert known((QUERY, "foo(1)")).find(dataclasses.replace(QUERY, gap=gap)) is None


def test_another_model_answers_another_question() -> None:
    assert known((QUERY, "foo(1)")).find(dataclasses.replace(QUERY, options=Options(model="n"))) is None


def test_what_is_typed_along_leaves_the_rest() -> None:
    suggestions = known((QUERY, "foo(1)"))
    assert suggestions.find(QUERY.after("fo")) == KnownAnswer(("o(1)",), "type-through")
    assert suggestions.find(QUERY.after("fa")) is None
    assert suggestions.find(QUERY.after("foo(1)")) is None, "nothing is left"


def test_the_end_of_a_long_prefix_finds_its_answer() -> None:
    end = "x" * COMPARED
    assert hash_end(f"{end}{end}{end}", 3 * COMPARED) == hash_end(f"{end}y{end}", 2 * COMPARED + 1)
    assert hash_end(f"{end}a", COMPARED + 1) != hash_end(f"{end}b", COMPARED + 1) != hash_end(end, COMPARED)


def test_of_several_the_longest_rest_wins() -> None:
    suggestions = known((QUERY, "foo(1)\nbar(2)"), (QUERY.after("fo"), "o"))
    assert suggestions.find(QUERY.after("fo")) == KnownAnswer(("o(1)\nbar(2)",), "type-through")


def test_all_items_that_go_on_so_are_kept() -> None:
    suggestions = SuggestionCache()
    suggestions.keep(QUERY, ("foo", "bar", "fob"))
    assert suggestions.find(QUERY.after("fo")) == KnownAnswer(("o", "b"), "type-through")


def test_a_known_single_answer_does_not_answer_a_request_for_more() -> None:
    suggestions, three = known((QUERY, "foo")), dataclasses.replace(QUERY, count=3)
    assert suggestions.find(three) is None and suggestions.find(three.after("f")) is not None
    suggestions.keep(three, ("foo", "bar"))
    assert suggestions.find(three) == suggestions.find(QUERY) == KnownAnswer(("foo", "bar"), "cache")


def test_that_there_is_nothing_to_say_is_known_too() -> None:
    suggestions = SuggestionCache()
    suggestions.keep(QUERY, ())
    assert suggestions.find(QUERY) == KnownAnswer((), "cache")
    assert suggestions.find(QUERY.after("f")) is None


def test_so_many_characters_may_have_been_typed() -> None:
    suggestions = known((QUERY, "a" * (TYPED + 10)))
    assert suggestions.find(QUERY.after("a" * TYPED)) == KnownAnswer(("a" * 10,), "type-through")
    assert suggestions.find(QUERY.after("a" * (TYPED + 1))) is None


def test_only_the_last_answers_and_items_are_kept() -> None:
    suggestions = known(*((QUERY.after(f"{n};"), "text") for n in range(KEPT + 1)))
    assert suggestions.find(QUERY.after("0;")) is None and suggestions.find(QUERY.after("1;")) is not None
    (first,) = suggestions.show(QUERY, ("x",))
    suggestions.show(QUERY, tuple(str(n) for n in range(SHOWN - 1)))
    assert suggestions.find_shown(first.id).text == "x"
    suggestions.show(QUERY, tuple(str(n) for n in range(SHOWN)))
    with pytest.raises(Gone):
        suggestions.find_shown(first.id)


@pytest.mark.parametrize(("remember", "held"), [(None, TAIL), (False, 0)])
def test_an_item_holds_an_end_of_its_file_or_nothing(remember: bool | None, held: int) -> None:
    suggestions, options = SuggestionCache(), Options(model="m", remember=remember)
    query = Query(dataclasses.replace(QUERY.gap, prefix="x" * 1_000_000), options)
    (item,) = suggestions.show(query, ("text",))
    shown = suggestions.find_shown(item.id)
    assert (len(shown.before), shown.text, shown.path) == (held, "text", "a.py")


@given(prefix=st.text(max_size=300), text=st.text(min_size=1, max_size=40), n=st.integers(0, 40))
def test_typing_along_any_text(prefix: str, text: str, n: int) -> None:
    query = dataclasses.replace(QUERY, gap=dataclasses.replace(QUERY.gap, prefix=prefix))
    found = known((query, text)).find(query.after(text[:n]))
    rest = text[n:]
    assert found == (KnownAnswer((rest,), "type-through" if n else "cache") if rest.strip() else found)
    assert rest.strip() or found is None or found.texts == ()


def test_what_comes_after_an_invoked_one_comes_by_itself() -> None:
    invoked = dataclasses.replace(QUERY, invoked=True)
    assert invoked.after("foo") == QUERY.after("foo")
