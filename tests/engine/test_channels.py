"""A chat's text by channel: which delta has which text and which tokens, and what the result says."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from localspec.engine.engine import Engine, Stream
from localspec.engine.textstream import Channels
from localspec.errors import InvalidOptions
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, Delta, Message, Request, Token, Tool
from localspec.tools.families import FAMILIES, HERMES, MOST_CALLS, Form, ToolFamily
from localspec.tools.grammar import AnswerMarkup, answer_grammar
from tests.toy import ToyBackend, ToyVocabulary
from tests.toys import scripted

CALL = '<tool_call>\n{"name": "now", "arguments": {"zone": "UTC"}}\n</tool_call>'


class Thinker(ToyVocabulary):
    chat_template = f"{ToyVocabulary.chat_template}{{# tools <tool_call> <think> #}}"


def answered(said: str, *tools: Tool, **options: Any) -> Stream:
    engine = Engine(ToyBackend(scripted(b"user: hi" + said.encode()), vocabulary=Thinker(), n_ctx=1024))
    prompt = ChatPrompt((Message("user", "hi"),), tools=tools)
    return engine.stream(Request(prompt=prompt, options=Options(**options)))


def marked_by(form: Form) -> AnswerMarkup:
    return AnswerMarkup(form, {}, frozenset(), ChatPrompt((Message("user", "hi"),), tools=form.tools))


def split(form: Form, *texts: str) -> list[tuple[str, str, list[tuple[int, int]]]]:
    """Channel, text, and the id and characters of each token of the deltas; a token per text."""
    channels, deltas = Channels(marked_by(form)), []
    for id, text in enumerate(texts):
        delta = Delta(text, (Token(id, "target", len(text)),))
        deltas += channels.split(delta, ended=id == len(texts) - 1)
    return [(d.channel, d.text, [(t.id, t.chars) for t in d.tokens]) for d in deltas]


def test_tokens_of_markup_have_no_characters() -> None:
    form = Form(HERMES, thought=("<think>", "</think>"))
    assert split(form, "<think>", "Hm", ".", "</think>", "\n\n", "Hi", "!") == [
        ("answer", "", [(0, 0)]),
        ("thinking", "Hm", [(1, 2)]),
        ("thinking", ".", [(2, 1)]),
        ("answer", "", [(3, 0)]),
        ("answer", "", [(4, 0)]),
        ("answer", "Hi", [(5, 2)]),
        ("answer", "!", [(6, 1)]),
    ]


def test_a_token_belongs_to_the_delta_of_its_last_character() -> None:
    form = Form(HERMES, (Tool("now"),), ("<think>", "</think>"), opened=True)
    assert split(form, "a</think>b", ' <tool_call>{"name": "now", "arguments":{', "}}\n</tool_call>") == [
        ("thinking", "a", []),
        ("answer", "b", [(0, 1)]),
        ("call", "{", [(1, 1)]),
        ("call", "}", [(2, 1)]),
    ]


def test_a_text_without_marks_passes_as_it_comes() -> None:
    form = Form(HERMES, thought=("<think>", "</think>"))
    assert split(form, "Hi", " \n", "<think>") == [
        ("answer", "Hi", [(0, 2)]),
        ("answer", " \n", [(1, 2)]),
        ("answer", "<think>", [(2, 7)]),
    ]


def test_a_result_has_the_answer_the_thoughts_and_the_calls() -> None:
    result = answered(f"<think>Hm</think>\n\nWait.\n{CALL}", Tool("now")).finish()
    (call,) = result.tool_calls
    assert (result.thinking, result.text, result.finish_reason) == ("Hm", "Wait.", "tool_calls")
    assert (call.name, call.arguments) == ("now", '{"zone": "UTC"}')


def test_the_deltas_of_a_call_carry_its_id_and_its_arguments() -> None:
    stream = answered(CALL, Tool("now"))
    deltas = [delta for delta in stream if delta.text]
    assert {delta.channel for delta in deltas} == {"call"} and len(deltas) > 2
    assert "".join(delta.text for delta in deltas) == '{"zone": "UTC"}'
    (begun,) = {delta.call for delta in deltas}
    assert begun is not None and begun.id == stream.result.tool_calls[0].id and begun.index == 0
    assert sum(len(delta.tokens) for delta in answered(CALL, Tool("now"))) == len(CALL)


@pytest.mark.parametrize(
    ("said", "stop", "thinking", "text", "finish"),
    [
        ("<think>1. So.</think>It is. No.", ".", "1. So.", "It is", "stop_string"),
        ("<think>ab</think>cdab", "bc", "ab", "cdab", "stop"),
        ("<think>ab</think>cdab", "think>", "ab", "cdab", "stop"),
        ("<think>a</think>a <", "<", "a", "a ", "stop_string"),
        (f"A zone?\n{CALL}", "zone", "", "A ", "stop_string"),
        (f"Wait.\n{CALL}", "UTC", "", "Wait.", "tool_calls"),
    ],
)
def test_a_stop_string_ends_the_answer_alone(
    said: str, stop: str, thinking: str, text: str, finish: str
) -> None:
    stream = answered(said, Tool("now"), stop=(stop,), logprobs=True)
    deltas, result = list(stream), stream.result
    assert (result.thinking, result.text, result.finish_reason) == (thinking, text, finish)
    assert "".join(delta.text for delta in deltas if delta.channel == "answer") == text
    assert all(sum(token.chars for token in each.tokens) == len(each.text) for each in deltas)
    assert (result.stop_text == stop) == (finish == "stop_string")


def test_an_answer_ends_after_a_number_of_calls_in_any_markup() -> None:
    result = answered('{"name": "now", "arguments": {}}\n' * 20, Tool("now")).finish()
    assert len(result.tool_calls) == MOST_CALLS and result.finish_reason == "tool_calls"


def test_markup_of_calls_is_text_where_no_tools_were_given() -> None:
    assert answered(CALL).finish().text == CALL


@pytest.mark.parametrize(
    ("begun", "rest"), [("ye", "s"), ("<think>H</think>\nn", "o"), ("yes", ""), ("<think>H", "m</think>no")]
)
def test_a_form_holds_for_the_answer_with_its_beginning(begun: str, rest: str) -> None:
    engine = Engine(ToyBackend(scripted(f"user: hi{begun}m</think>no".encode()), vocabulary=Thinker()))
    messages = (Message("user", "hi"), Message("assistant", begun))
    options = Options(choice=("yes", "no"), temperature=0.0)
    result = engine.stream(Request(prompt=ChatPrompt(messages, True), options=options)).finish()
    thought = f"{result.thinking}</think>" if result.thinking else ""
    assert (thought + result.text, result.finish_reason) == (rest, "stop")


def test_a_beginning_that_does_not_match_the_form_is_refused() -> None:
    chat = ChatPrompt((Message("user", "hi"), Message("assistant", "x")), True)
    request = Request(prompt=chat, options=Options(choice=("yes",)))
    with pytest.raises(InvalidOptions, match="beginning of the answer does not match its form"):
        Engine(ToyBackend(vocabulary=Thinker())).submit(request)


def test_a_schema_that_the_grammar_cannot_follow_leaves_the_arguments_free() -> None:
    parameters = {"type": "object", "properties": {"zone": {"type": "string", "pattern": "^(?!x)U"}}}
    (call,) = answered(CALL, Tool("now", "", parameters)).finish().tool_calls
    assert call.arguments == '{"zone": "UTC"}'


SHAPES: list[Any] = [
    {"properties": {"zone": {"type": 5}}},
    {"properties": {"zone": {"type": "string", "enum": 5}}},
    {"properties": {"zone": {"type": "string", "enum": [1, None]}}},
    {"properties": {"zone": {"type": "array", "items": [{}]}}},
    {"properties": {"zone": "string"}, "required": 5},
    *({"properties": each} for each in ([1], None, {"zone": None})),
]


@pytest.mark.parametrize("parameters", SHAPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.known_by[0])
def test_no_parameters_fail_but_by_an_error_of_their_own(family: ToolFamily, parameters: Any) -> None:
    """A client may send any JSON as a schema; an exception would end the worker, with all requests."""
    form = Form(family, (Tool("now", "", parameters),))
    with suppress(InvalidOptions):
        answer_grammar(marked_by(form), None)
    opens, closes = family.tags
    call = f"{family.starts[0]}{opens}1{closes}{family.tails[0]}"
    split(form, call.replace("#", "1").replace("@", "now").replace("$", "zone"))


def test_the_tokens_of_a_chat_are_counted_without_its_grammar() -> None:
    """A grammar takes time: only that of an answer is compiled."""
    engine = Engine(ToyBackend(vocabulary=Thinker()))
    asked = Request(prompt=ChatPrompt((Message("user", "hi"),), tools=(Tool("now"),), tool="other"))
    assert engine.read(asked).tokens
    with pytest.raises(InvalidOptions, match="there is no tool other"):
        engine.encode(asked)


@pytest.mark.parametrize(
    "odd", [{"required": None}, {"properties": None}, {"properties": {"a": {"type": "strung"}}}], ids=str
)
def test_a_schema_that_is_refused_takes_no_other_tool_with_it(
    odd: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    tools = Tool("now", "", {"properties": {"zone": {"const": "UTC"}}}), Tool("odd", "", odd)
    result = answered(CALL.replace("UTC", "CET"), *tools)
    assert [call.arguments for call in result.finish().tool_calls] == ['{"zone": "UTC"}']
    assert caplog.messages == ["schemas of tools that are not followed: odd"]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.known_by[0])
def test_each_token_is_published_once_however_the_text_is_cut(family: ToolFamily) -> None:
    form = Form(family, (Tool("now"),), ("<think>", "</think>"))
    plain = "Wait: a < b.\n\nSo."
    call = f"{family.starts[0]}{{}}{family.tails[0]}".replace("@", "now").replace("#", "1")
    for text in (plain, f"<think>\nHm.\n</think>\n\n{plain}", f"<think>Hm.</think>{plain}\n{call}"):
        for size in range(1, 12):
            cuts = [text[at : at + size] for at in range(0, len(text), size)]
            deltas = split(form, *cuts)
            assert [id for _, _, tokens in deltas for id, _ in tokens] == list(range(len(cuts)))
            if text == plain:
                assert "".join(said for _, said, _ in deltas) == plain
                assert all(len(said) == sum(chars for _, chars in tokens) for _, said, tokens in deltas)
