"""Each family's markup by a template and a text of its form: history, calls in an answer, their grammar."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from msgspec.structs import replace

from localspec.engine.prompt import Markup
from localspec.errors import InvalidOptions
from localspec.models.template import ChatTemplate
from localspec.protocol.requests import ChatPrompt, Message, Tool, ToolCall
from localspec.tools.families import (
    BARE,
    HERMES,
    MOST_CALLS,
    Form,
    ToolFamily,
    family_of,
    find_thought,
    turns_for,
)
from localspec.tools.grammar import AnswerMarkup, answer_grammar
from localspec.tools.parser import Parser
from tests.toy import ToyVocabulary

FIELDS = {"city": {"type": "string"}, "days": {"type": "integer"}}
WEATHER = Tool("weather", "Tell it", {"type": "object", "properties": FIELDS, "required": [*FIELDS]})
TOOLS = (WEATHER, Tool("now"))
MADE = [("weather", {"city": 'Pa"ris', "days": 2}), ("now", {})]
CALLS = tuple(ToolCall(f"call_abcdef12{i}", name, json.dumps(made)) for i, (name, made) in enumerate(MADE))
ASKED = ChatPrompt((Message("user", "hi"),), tools=TOOLS)
QUOTED = '{"city": "Pa\\"ris", "days": 2}'
SAID = f'{{"name": "weather", "arguments": {QUOTED}}}'
COMMAND = "<|START_THINKING|>Hm<|END_THINKING|><|START_RESPONSE|>Hi<|END_RESPONSE|>"


class Row(NamedTuple):
    """``source``: a template's text of the call ``c`` with the arguments ``a``; ``said``: the calls of MADE
    as a model writes them."""

    source: str
    said: str
    opens: str = ""
    between: str = ""
    closes: str = ""
    control: str = r"(?!)"
    """matches the marks that are control tokens"""

    @property
    def template(self) -> str:
        return (
            "{% if tools %}{{ tools | length }} tools {% endif %}{% for m in messages %}[{{ m.role }}]"
            f"{{{{ m.content }}}}{{% if m.tool_calls %}}{self.opens}{{% for d in m.tool_calls %}}"
            "{% set c = d.function %}{% set a = c.arguments %}" + self.source + "{% if not loop.last %}{{ "
            f"{self.between!r} }}}}{{% endif %}}{{% endfor %}}{{{{ {self.closes!r} }}}}"
            "{% endif %}{% endfor %}"
        )


def elements(opens: str, closes: str) -> str:
    """A template's loop over arguments; ``k`` stands for the key."""
    return f"{{% for k, v in a.items() %}}{opens}{{{{ v }}}}{{{{ {closes!r} }}}}{{% endfor %}}"


def bare(quote: str) -> str:
    text = f"{{% if v is string %}}{quote}{{{{ v }}}}{quote}{{% else %}}{{{{ v }}}}{{% endif %}}"
    return f"{{% for k, v in a.items() %}}{{{{ k }}}}:{text}{{{{ ',' if not loop.last }}}}{{% endfor %}}"


OBJECT = '{"name": "{{ c.name }}", "arguments": {{ a | tojson }}}'
LISTED = f'{{"name": "weather", "arguments": {QUOTED}}}, {{"name": "now", "arguments": {{}}}}'
ROWS = {
    "hermes": Row(
        f"<tool_call>{{{{ '\\n' }}}}{OBJECT}{{{{ '\\n' }}}}</tool_call>",
        f'<tool_call>\n{{"name": "weather", "arguments": {QUOTED}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        between="\n",
    ),
    "qwen-coder": Row(
        "<tool_call>{{ '\\n' }}<function={{ c.name }}>{{ '\\n' }}"
        + elements("<parameter={{ k }}>{{ '\\n' }}", "\n</parameter>\n")
        + "</function>{{ '\\n' }}</tool_call>",
        '<tool_call>\n<function=weather>\n<parameter=city>\nPa"ris\n</parameter>\n<parameter=days>\n2\n'
        "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
        between="\n",
    ),
    "seed": Row(
        "<seed:tool_call>{{ '\\n' }}<function={{ c.name }}>{{ '\\n' }}"
        + elements("<parameter={{ k }}>", "</parameter>\n")
        + "</function>{{ '\\n' }}</seed:tool_call>",
        '<seed:tool_call>\n<function=weather>\n<parameter=city>Pa"ris</parameter>\n<parameter=days>2</parameter>\n'
        "</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
        between="\n",
        control="</?seed:tool_call>",
    ),
    "minimax": Row(
        "<invoke name=\"{{ c.name }}\">{{ '\\n' }}"
        + elements('<parameter name="{{ k }}">', "</parameter>\n")
        + "</invoke>",
        '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Pa"ris</parameter>\n'
        '<parameter name="days">2</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n'
        "</minimax:tool_call>",
        opens="<minimax:tool_call>{{ '\\n' }}",
        between="\n",
        closes="\n</minimax:tool_call>",
        control="</?minimax:tool_call>",
    ),
    "glm": Row(
        "<tool_call>{{ c.name }}{{ '\\n' }}"
        + elements("<arg_key>{{ k }}</arg_key>{{ '\\n' }}<arg_value>", "</arg_value>\n")
        + "</tool_call>",
        '<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Pa"ris</arg_value>\n<arg_key>days</arg_key>\n'
        "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
        between="\n",
        control="</?(?:tool_call|arg_key|arg_value)>",
    ),
    "kimi": Row(
        "<|tool_call_begin|>functions.{{ c.name }}:{{ loop.index0 }}<|tool_call_argument_begin|>"
        "{{ a | tojson }}<|tool_call_end|>",
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{QUOTED}"
        "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>",
        opens="<|tool_calls_section_begin|>",
        closes="<|tool_calls_section_end|>",
        control=r"<\|\w+\|>",
    ),
    "deepseek": Row(
        "{{ '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + c.name + '\\n```json\\n' + a"
        " + '\\n```<｜tool▁call▁end｜>' }}",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{QUOTED}\n```"
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        opens="<｜tool▁calls▁begin｜>",
        between="\n",
        closes="<｜tool▁calls▁end｜>",
        control="<｜[^｜]+｜>",
    ),
    "deepseek-3.1": Row(
        "{{ '<｜tool▁call▁begin｜>' + c.name + '<｜tool▁sep｜>' + a + '<｜tool▁call▁end｜>' }}",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{QUOTED}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        opens="<｜tool▁calls▁begin｜>",
        closes="<｜tool▁calls▁end｜>",
        control="<｜[^｜]+｜>",
    ),
    "mistral": Row(
        "[TOOL_CALLS]{{ c.name }}[ARGS]{{ a | tojson }}",
        f"[TOOL_CALLS]weather[ARGS]{QUOTED}[TOOL_CALLS]now[ARGS]{{}}",
        control=r"\[[A-Z_]+\]",
    ),
    "mistral-list": Row(OBJECT, f"[TOOL_CALLS][{LISTED}]", "[TOOL_CALLS][", ", ", "]", r"\[[A-Z_]+\]"),
    "command": Row(
        '    {"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ c.name }}", '
        '"parameters": {{ a | tojson }}}',
        f'<|START_ACTION|>[\n    {{"tool_call_id": "0", "tool_name": "weather", "parameters": {QUOTED}}},\n'
        '    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
        opens="<|START_ACTION|>[{{ '\\n' }}",
        between=",\n",
        closes="\n]<|END_ACTION|>",
        control=r"<\|\w+\|>",
    ),
    "gemma-4": Row(
        '<|tool_call>call:{{ c.name }}{{ "{" }}' + bare('<|"|>') + "}<tool_call|>",
        '<|tool_call>call:weather{city:<|"|>Pa"ris<|"|>,days:2}<tool_call|><|tool_call>call:now{}<tool_call|>',
        control=r'<\|tool_call>|<tool_call\|>|<\|"\|>',
    ),
    "functiongemma": Row(
        '<start_function_call>call:{{ c.name }}{{ "{" }}' + bare("<escape>") + "}<end_function_call>",
        '<start_function_call>call:weather{city:<escape>Pa"ris<escape>,days:2}<end_function_call>'
        "<start_function_call>call:now{}<end_function_call>",
        control="<[a-z_]+>",
    ),
    "granite": Row(OBJECT, f"<|tool_call|>[{LISTED}]", "<|tool_call|>[", ", ", "]", r"<\|tool_call\|>"),
    "phi": Row(
        OBJECT,
        f"<|tool_call|>[{LISTED}]<|/tool_call|>",
        "<|tool_call|>[",
        ", ",
        "]<|/tool_call|>",
        r"<\|/?\w+\|>",
    ),
    "nemotron": Row(OBJECT, f"<TOOLCALL>[{LISTED}]</TOOLCALL>", "<TOOLCALL>[", ", ", "]</TOOLCALL>"),
    "llama": Row(
        '{# ipython #}{"name": "{{ c.name }}", "parameters": {{ a | tojson }}}',
        f'{{"name": "weather", "parameters": {QUOTED}}}; {{"name": "now", "parameters": {{}}}}',
        between="; ",
    ),
    "functions": Row(
        "<function={{ c.name }}>{{ a | tojson }}</function>",
        f"<function=weather>{QUOTED}</function>\n<function=now>{{}}</function>",
        between="\n",
    ),
}
each_family = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


def form_of(template: str, tools: tuple[Tool, ...] = TOOLS, **given: bool) -> Form:
    return Form(family_of(template) or HERMES, tools, find_thought(template), **given)


def read(form: Form, text: str, size: int) -> tuple[str, str, list[tuple[str, object]]]:
    """The thoughts, the answer and the calls in a text that comes in pieces of ``size``."""
    parser = Parser(form)
    pieces = [piece for at in range(0, len(text), size) for piece in parser.feed(text[at : at + size])]
    pieces += parser.finish()
    assert sum(piece.source for piece in pieces) == len(text)
    ids = {call.id for call in parser.calls}
    assert len(ids) == len(parser.calls) and all(re.fullmatch(r"call_\w{9}", id) for id in ids)
    calls = [(c.name, json.loads(c.arguments)) for c in parser.calls]
    return parser.join_texts("thinking"), parser.join_texts("answer"), calls


@each_family
def test_a_text_that_was_cut_shows_no_markup(row: Row) -> None:
    for text in ("if a <", "if a <b", "if a\n```", *(row.said[:end] for end in range(2, len(row.said)))):
        parser = Parser(form_of(row.template))
        pieces = [*parser.feed(text), *parser.finish(cut=True)]
        assert sum(piece.source for piece in pieces) == len(text)
        assert parser.join_texts("answer") == (text if text.startswith("if") else "")
        whole = "</function>" in text and row is ROWS["qwen-coder"]
        assert not whole or json.loads(parser.calls[0].arguments) == MADE[0][1]


@each_family
def test_the_template_gets_calls_and_results(row: Row) -> None:
    history = (ASKED.messages[0], Message("assistant", "", CALLS), Message("tool", "18", (), CALLS[0].id))
    said = turns_for(ChatPrompt(history, tools=TOOLS), family_of(row.template))
    text = ChatTemplate(row.template).render(said.messages, tools=said.tools)
    assert text == f"2 tools [user]hi[assistant]{row.said}[tool]18"


@each_family
def test_calls_are_read_wherever_the_text_is_cut(row: Row) -> None:
    form = form_of(row.template)
    before = "" if "ipython" in row.template else "I look.\n\n"
    for size in range(1, 12):
        assert read(form, before + row.said, size) == ("", before.rstrip(), MADE)


@each_family
def test_what_only_begins_like_a_call_is_text(row: Row) -> None:
    form = form_of(row.template)
    begun = form.family.starts[0].partition("@")[0]
    for text in (begun, f"{begun}!, is how they begin", f"a {begun} b"):
        for size in (1, 5, 100):
            assert read(form, text, size)[1] == text


class Bytes:
    eos_token_id, bos_token_id = 256, None

    def __init__(self, names: Iterable[str]) -> None:
        self.tokens = [*(bytes([byte]) for byte in range(256)), b"<END>", *(name.encode() for name in names)]
        self.special_token_ids = list(range(256, len(self.tokens)))

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


def accepts(
    template: str, control: str, text: str, *, opened: bool = False, answer: str | None = None, **asked: Any
) -> bool:
    """True if the grammar of an answer with TOOLS takes ``text`` whole, and may end there."""
    form = form_of(template, asked.get("tools", TOOLS), opened=opened)
    tokens = {name: 257 + i for i, name in enumerate(sorted(set(re.findall(control, form.marks))))}
    names = {token: name.encode() for name, token in tokens.items()}
    marked = AnswerMarkup(form, names, frozenset(("<|call|>",)), replace(ASKED, **asked))
    grammar = answer_grammar(marked, answer) or ""
    matcher = LLMatcher(LLTokenizer(TokenizerWrapper(Bytes(tokens)), eos_token=[256]), grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    parts = re.split(f"({control})", text)
    ids = [id for part in parts for id in ([tokens[part]] if part in tokens else part.encode())]
    return matcher.validate_tokens(ids) == len(ids) and matcher.consume_tokens(ids) and matcher.is_accepting()


@each_family
def test_the_grammar_takes_the_calls_that_the_tools_allow(row: Row) -> None:
    takes = partial(accepts, row.template, row.control)
    assert takes(row.said), "both calls"
    assert takes("no call"), "an answer"
    assert not takes("no call", tool_choice="required") and takes(row.said, tool_choice="required")
    assert not takes(row.said.replace("weather", "weathers")), "another tool"
    assert not takes(re.sub(r"\b2\b", "two", row.said)), "an argument of another type"
    assert not takes(row.said, tool="now"), "a call of another tool than the one named"
    assert not takes(row.said, parallel_tool_calls=False), "two calls where one is possible"
    assert not takes(row.said + "."), "text behind the calls"


ODD = ["\n", " s ", *'$filter @type first_name c# a:b x>y q" </ { , nä \\ null'.replace("_", " ").split(" ")]
MARKS = ["\n</parameter>", "</parameter>", "</arg_value>", "<escape", '<|"|']
MARKS += ["<tool_call|>", "</arg_key", ">", "a"]


def written(family: ToolFamily, arguments: dict[str, Any]) -> str:
    (opens, closes), quote = family.tags, family.quote
    said = json.dumps(arguments, ensure_ascii=False)
    if opens or quote:
        texts = {
            k: f"{quote}{v}{quote}" if isinstance(v, str) else json.dumps(v) for k, v in arguments.items()
        }
        said = "".join(opens.replace("$", key) + text + closes for key, text in texts.items())
    if quote:
        keys = {key: key if BARE.fullmatch(key) else f"{quote}{key}{quote}" for key in arguments}
        said = f"{{{','.join(f'{keys[key]}:{texts[key]}' for key in sorted(arguments))}}}"
    head, tail = (each[0].replace("@", "weather").replace("#", "1") for each in (family.heads, family.tails))
    return family.opens + head + said + tail + family.closes


@each_family
def test_arguments_of_any_name_and_text_are_read_as_the_grammar_has_them_written(row: Row) -> None:
    family, draw = family_of(row.template) or HERMES, random.Random(7)
    ends = family.tags[1] or family.quote or "never"
    for _ in range(25):
        names = sorted({"".join(draw.choices(ODD, k=draw.choice((1, 1, 2)))) for _ in range(4)})
        texts = {name: "".join(draw.choices(ODD + MARKS, k=draw.randrange(5))) for name in names}
        given: dict[str, Any] = {
            k: v for k, v in texts.items() if family.carries(k) and (v + ends).find(ends) == len(v)
        }
        given |= {"n": None, "o": [1.5], "r": draw.choice(("c#", "d"))}
        properties: dict[str, Any] = {key: {"type": "string"} for key in given}
        properties |= {"n": {"type": ["string", "null"]}, "o": {"type": "array", "items": {}}}
        properties |= {"r": {"enum": ["c#", "d"]}, f'">"</arg_key>{family.quote}': {"type": "string"}}
        tools = (Tool("weather", "", {"properties": properties, "required": list(given)}),)
        said = written(family, given)
        for size in (1, 7, 10_000):
            assert read(form_of(row.template, tools), said, size)[2] == [("weather", given)]
        typed = any(re.search(row.control, str(text)) for text in given.values())
        assert typed or accepts(row.template, row.control, said, tools=tools, tool_choice="required")


@each_family
def test_what_may_become_markup_is_held_back_in_bounds(row: Row) -> None:
    form = form_of(row.template)
    head = form.family.starts[0].partition("@")[0]
    for begun, letter in (("", " "), ("", "<"), ("", "`"), (head, " "), (head, "x"), ("<think>", " ")):
        text = begun + 9000 * letter
        parser, held, examined = Parser(form), 0, 0
        for piece in text:
            held += 1 - sum(piece.source for piece in parser.feed(piece))
            examined += held
        assert examined <= 300 * len(text)


@each_family
def test_a_history_with_a_cut_call_is_given_to_every_template(row: Row) -> None:
    cut = (ToolCall("c1", repr(row), '{"city": "Par'), ToolCall("c2", "now", ""))
    history = (ASKED.messages[0], Message("assistant", "", cut), Message("tool", "18", (), "c2"))
    said = turns_for(ChatPrompt(history, tools=TOOLS), family_of(row.template))
    said = Markup(ToyVocabulary()).guarded_chat(said)
    assert "Par" in ChatTemplate(row.template).render(said.messages, tools=said.tools)


def test_an_answer_has_a_number_of_calls_at_most() -> None:
    row, call = ROWS["hermes"], '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert accepts(row.template, row.control, "\n".join([call] * MOST_CALLS))
    assert not accepts(row.template, row.control, "\n".join([call] * (MOST_CALLS + 1)))
    bare = '{"name": "now", "arguments": {}}\n' * (MOST_CALLS + 3)
    assert read(form_of(row.template), bare, 7) == ("", "", [("now", {})] * MOST_CALLS)


def test_a_named_tool_must_be_one_of_the_tools() -> None:
    with pytest.raises(InvalidOptions, match="no tool other"):
        answer_grammar(AnswerMarkup(Form(HERMES, TOOLS), {}, frozenset(), replace(ASKED, tool="other")), None)


HARMONY = "{{ tools }}<|start|>assistant<|channel|>analysis<|message|>"
COMMENT = "<|channel|>commentary to=functions.weather"


@pytest.mark.parametrize(
    "call",
    [
        f"{COMMENT} <|constrain|>json<|message|>{QUOTED}",
        f"{COMMENT} json<|message|>{QUOTED}",
        f"{COMMENT}<|message|>{QUOTED}",
        f" to=functions.weather<|channel|>commentary <|constrain|>json<|message|>{QUOTED}",
    ],
)
def test_harmony_has_thoughts_calls_and_answers_in_channels(call: str) -> None:
    form = form_of(HARMONY)
    thought = "<|channel|>analysis<|message|>I see.<|end|><|start|>assistant"
    said = "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant"
    for size in range(1, 30, 3):
        assert read(form, f"{thought}{call}", size) == ("I see.", "", MADE[:1])
        assert read(form, f"{thought}{said}{call}", size) == ("I see.", "Wait.", MADE[:1])
        assert read(form, f"{thought}<|channel|>final<|message|>Hi.", size) == ("I see.", "Hi.", [])


def test_the_grammar_of_harmony_ends_with_the_token_behind_a_call() -> None:
    call = f"{COMMENT} <|constrain|>json<|message|>{QUOTED}"
    thought = "<|channel|>analysis<|message|>I see.<|end|><|start|>assistant"
    final = "<|channel|>final<|message|>Hi."
    marks = r"<\|(?!call)\w+\|>"
    assert accepts(HARMONY, marks, thought + call) and accepts(HARMONY, marks, thought + final)
    assert not accepts(HARMONY, marks, thought + final, tool_choice="required")
    assert not accepts(HARMONY, marks, f"{call}<|start|>assistant{call}")


def test_a_template_without_tools_gets_them_as_text() -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    history = (*ASKED.messages, Message("assistant", "", CALLS[1:]), Message("tool", "noon", (), CALLS[1].id))
    said = turns_for(replace(ASKED, messages=history), family_of(template))
    text = ChatTemplate(template).render(said.messages, tools=said.tools)
    written = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert text.endswith(f"[user]hi[assistant]{written}[user]<tool_response>\nnoon\n</tool_response>")
    assert text.startswith("[system]") and '{"name": "weather", "description": "Tell it"' in text
    assert read(form_of(template), written, 3) == ("", "", MADE[1:])


def test_ids_have_the_length_that_mistrals_templates_demand() -> None:
    history = (Message("assistant", "", CALLS), Message("tool", "18", (), "7"))
    said = turns_for(replace(ASKED, messages=history), family_of(ROWS["mistral"].template)).messages
    assert [call.id for call in said[0].tool_calls] == ["abcdef120", "abcdef121"]
    assert said[1].tool_call_id == "000000007"


@pytest.mark.parametrize(
    ("mark", "text", "thinking", "answer"),
    [
        ("<think>", "<think>\nHm.\n\nSo.\n</think>\n\nHi <think>.", "Hm.\n\nSo.", "Hi <think>."),
        ("<think>", "  Hi", "", "  Hi"),
        ("<think>", "<think>Hm \n", "Hm \n", ""),
        ("[/THINK]", "[THINK]Hm[/THINK]Hi", "Hm", "Hi"),
        ("<|channel>", "<|channel>thought\nHm<channel|>Hi", "Hm", "Hi"),
        ("<|START_ACTION|><|START_THINKING|>tools", COMMAND, "Hm", "Hi"),
    ],
)
def test_thoughts_are_not_the_answer(mark: str, text: str, thinking: str, answer: str) -> None:
    form = form_of(mark.replace("<|channel>", "<|channel>thought\n"))._replace(tools=())
    for size in range(1, 20):
        assert read(form, text, size) == (thinking, answer, [])


def test_a_thought_that_the_prompt_began_ends_at_its_mark() -> None:
    form, call = form_of("<think>", opened=True), ROWS["hermes"].said
    for size in range(1, 20):
        assert read(form, f"Hm <tool_call>.\n</think>\n\n{call}", size) == ("Hm <tool_call>.", "", MADE)
    assert accepts("<think>", r"(?!)", f"Hm.</think>\n\n{call}", opened=True, tool_choice="required")


def test_the_grammar_lets_a_model_think_before_it_must_call() -> None:
    for control in (r"(?!)", "</?think>", "</?think>|</?tool_call>"):
        text = f"<think>\nHm.\n</think>\n\n{ROWS['hermes'].said}"
        assert accepts("<think><tool_call>tools", control, text, tool_choice="required")
        assert accepts("<think><tool_call>tools", control, text)
        assert accepts("<think><tool_call>tools", control, "<think>Hm.</think>Hi")


def test_an_answer_of_a_grammar_stands_behind_thoughts_and_beside_calls() -> None:
    for template in ("<think><tool_call>tools", 'ipython "parameters" <think> tools'):
        for control in (r"(?!)", "</?think>"):
            takes = partial(accepts, template, control, answer="%llguidance {}\nstart: A\nA: /[0-9]+/")
            assert takes("12") and takes("<think>Hm.</think>\n\n12") and not takes("x")
            name = "llama" if "ipython" in template else "hermes"
            assert takes(ROWS[name].said) and not takes("12", tool="now")


@pytest.mark.parametrize("form", ["```json\n%s\n```", "<tools>%s</tools>", "%s", "{%s}", "{%s\n}}\n```"])
def test_the_marks_of_small_models_are_calls_of_tools_alone(form: str) -> None:
    hermes = form_of(ROWS["hermes"].template)
    for size in (1, 4, 100):
        call = form % json.dumps({"name": "weather", "arguments": MADE[0][1]}, indent=2)
        assert read(hermes, call, size) == ("", "", MADE[:1])
        assert read(hermes, other := call.replace("weather", "other"), size) == ("", other, [])


@pytest.mark.parametrize("form", ["So:\n```json\n%s\n```", "<tools>%s}\n</tools>", "%s", "{%s}", "\n%s\n%s"])
def test_calls_without_the_mark_keep_to_the_tools_too(form: str) -> None:
    def takes(call: str) -> bool:
        return accepts(ROWS["hermes"].template, r"(?!)", form.replace("%s", call))

    call = f'{{\n"name" :"weather","arguments": {QUOTED}}}' if form.count("%s") == 1 else SAID
    assert takes(call) and not takes(call.replace("2", '"2"')) and not takes(call.replace("days", "day"))
    assert takes(call.replace("weather", "other") + "."), "it is text"


def test_the_other_heads_of_a_family_are_held_to_the_tools() -> None:
    takes = partial(accepts, ROWS["llama"].template, r"<\|\w+\|>")
    call = f'{{"type": "function", "name": "weather", "parameters": {QUOTED}}}'
    assert takes(call) and takes(f"<function=weather>{QUOTED}</function>")
    assert not takes(call.replace("2", '"2"')) and takes("no call")
