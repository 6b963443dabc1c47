"""Chat templates are untrusted programs: they render, or they fail within their limits."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localspec.errors import ModelInvalid
from localspec.models import template
from localspec.models.catalogue import BUNDLED_TARGET
from localspec.models.gguf import read_header
from localspec.models.template import CHATML, PLAIN, ChatTemplate, texts_of
from localspec.protocol.requests import Message, Tool, ToolCall
from tests.mlx_pair import mlx_model
from tests.models import ggufs
from tests.waiting import DEADLINE_S

CONVERSATION = (
    Message("system", "Be brief."),
    Message("user", "Hi"),
    Message("assistant", "Hello"),
    Message("user", "Bye"),
)
BUNDLED = read_header(ggufs.TARGET).metadata["tokenizer.chat_template"]


@pytest.fixture(autouse=True)
def ample_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that no test reaches on a slow machine; a virtual one counts time in which it is halted."""
    monkeypatch.setattr(template, "MAX_SECONDS", DEADLINE_S)


def render(source: str | None, *, bos: str = "", eos: str = "") -> str:
    return ChatTemplate(source, bos=bos, eos=eos).render(CONVERSATION)


def failure(source: str) -> str:
    """Render a template that is refused; return the error message."""
    with pytest.raises(ModelInvalid) as caught:
        render(source)
    assert "--raw" in caught.value.remedy
    return caught.value.message


def test_variables_stand_beside_the_templates_own_and_take_the_place_of_none() -> None:
    source = "{{ enable_thinking }} {{ bos_token }} {{ messages | length }}"
    variables = {"enable_thinking": False, "bos_token": "other", "messages": []}
    assert ChatTemplate(source, bos="<s>").render(CONVERSATION, variables) == "False <s> 4"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_a_turns_thoughts_have_the_name_that_the_template_has_for_them(name: str) -> None:
    turns = [Message("assistant", "a", thinking="hm"), Message("user", "b")]
    source = f"{{% for m in messages %}}{{% if m.{name} %}}<{{{{ m.{name} }}}}>{{% endif %}}{{% endfor %}}"
    assert ChatTemplate(source).render(turns) == "<hm>"


@pytest.mark.parametrize("source", [None, "", BUNDLED])
def test_chatml_is_the_bundled_template_and_the_fallback(source: str | None) -> None:
    assert render(source) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello<|im_end|>\n"
        "<|im_start|>user\nBye<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_message_is_never_a_template() -> None:
    assert "{{ 1 + 1 }}" in ChatTemplate(None).render([Message("user", "{{ 1 + 1 }}")])


def test_the_date_can_be_asked_for() -> None:
    assert render("{{ strftime_now('%Y') }}") == render("{{ date_string[-4:] }}") == time.strftime("%Y")


def test_loops_can_be_left_and_continued() -> None:
    source = "{% for i in range(9) %}{% if i == I %}{% X %}{% endif %}{{ i }}{% endfor %}"
    assert render(source.replace("I", "2").replace("X", "break")) == "01"
    assert render(source.replace("I", "1").replace("X", "continue")) == "02345678"


def test_what_is_safe_escapes_nothing_behind_it() -> None:
    assert render("{{ '<b>a &lt;' | striptags }}") == "a <"
    assert render("{{ '<' | safe }}{{ '<' }}{{ ('<' | safe) ~ '<' }}{{ ('<' | safe) + '<' }}") == "<<<<<<"


def test_json_is_as_transformers_and_llama_cpp_write_it() -> None:
    source = "{{ x | tojson }}|{{ x | tojson(indent=1) }}|{{ x | tojson(sort_keys=true) }}"
    rendered = ChatTemplate(source).render(CONVERSATION, {"x": {"b": "<é & 'ü'>", "a": [1, None]}})
    assert rendered == (
        """{"b": "<é & 'ü'>", "a": [1, null]}|{\n "b": "<é & 'ü'>",\n "a": [\n  1,\n  null\n ]\n}"""
        """|{"a": [1, null], "b": "<é & 'ü'>"}"""
    )


def test_what_is_to_be_trained_on_is_rendered_like_the_rest() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.role }} {% endgeneration %}{% endfor %}"
    assert render(source) == "system user assistant user "


ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.content }}]{% endfor %}"
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ALTERNATING, "[S\n\na\n\nb][c][d]"),
        ("{% if messages[0].role == 'system' %}[{{ messages[0].content }}]{% set messages = messages[1:] %}"
         "{% endif %}" + ALTERNATING, "[S][a\n\nb][c][d]"),
    ],
)  # fmt: skip
def test_what_a_template_refuses_is_joined(source: str, expected: str) -> None:
    turns = [Message("system", "S"), Message("user", "a"), Message("user", "b"), Message("assistant", "c")]
    assert ChatTemplate(source).render([*turns, Message("user", "d")]) == expected


def test_a_template_may_refuse_a_conversation() -> None:
    message = failure("{{ raise_exception('roles must alternate') }}")
    assert message == "the model's chat template failed: roles must alternate"


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}",
        "{{ messages",
        "{% nonsense %}",
        "{{ messages|nonsense }}",
        "{{ " + "9" * 5000 + " }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% for i in messages %}" * 30 + "{% endfor %}" * 30,
    ],
)
def test_broken_syntax_is_refused(source: str) -> None:
    assert failure(source).startswith("the model's chat template is broken: ")


@pytest.mark.parametrize(
    "source",
    ["{{ 1 // 0 }}", "{{ messages[99].role }}", "{{ nothing() }}", "{{ 1 + 'a' }}", "{% include 'other' %}"],
)
def test_any_error_of_a_template_is_the_models(source: str) -> None:
    assert failure(source).startswith("the model's chat template failed: ")


@pytest.mark.parametrize("source", ["{{ '\\ud800' }}", "{{ raise_exception('\\ud800') }}"])
def test_a_lone_surrogate_is_refused(source: str) -> None:
    chat = ChatTemplate("{% if messages[0].content == 'bad' %}" + source + "{% endif %}fine")
    with pytest.raises(ModelInvalid, match="not valid Unicode"):
        chat.render([Message("user", "bad")])
    assert chat.render(CONVERSATION) == "fine"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ (''|attr('__class__')).__mro__ }}",
        "{{ raise_exception.__globals__['time'] }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
    ],
)
def test_attribute_tricks_are_refused(source: str) -> None:
    assert "is unsafe" in failure(source)


@pytest.mark.parametrize("name", ["open", "eval", "__import__", "environment.compile"])
def test_nothing_of_python_is_in_reach(name: str) -> None:
    assert "is undefined" in failure(f"{{{{ {name}('1') }}}}")


def nested(depth: int, body: str = "", *, items: str = "r") -> str:
    loops = "".join(f"{{% for x{n} in {items} %}}" for n in range(depth))
    return "{% set r = range(99999) %}" + loops + body + "{% endfor %}" * depth


HOSTILE = {
    "a loop": nested(4),
    "a loop with a test": nested(1, items="r if false") * 999,
    "recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a power": "{% set n = 9 %}{{ n ** (n ** n) }}",
    "a long text": "{% set n = 9 %}{{ 'a' * n ** n * 99 }}",
    "a wide field": "{% set n = '{:1500000000}' %}{{ n.format(1) }}",
    "doubled texts": "{% set s = 'ab' %}" + "{% set s = s ~ s %}" * 40 + "{{ s }}",
    "doubled lists": "{% set s = ['a'] %}" + "{% set s = s + s %}" * 40 + "{{ s }}",
    "lists of lists": "{% set s = ['a'] %}" + "{% set s = [s, s] %}" * 60 + "{{ s | tojson }}",
    "many texts": "{% set n = namespace(x=[]) %}" + nested(2, "{% set n.x = [n.x, 'a' * x1] %}"),
    "a long output": nested(2, "{{ 'a' * 9999 }}"),
    "a long refusal": "{% set s = 'a' %}" + "{% set s = s ~ s %}" * 40 + "{{ raise_exception(s) }}",
}


LARGE = "{% set n = 300000000 %}{% set s = 'a' * n %}"


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_template_that_takes_too_much_ends_alone(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(template, "MAX_SECONDS", 0.5)
        assert re.search("too much memory|took more than 0.5 s", failure(source))
    failure(LARGE + "{{ 1 // 0 }}")
    assert render(LARGE + "fine") == "fine", "what an earlier template has held is free"


def test_a_long_rendering_is_refused() -> None:
    assert "longer than 8000000 characters" in failure("{{ 'a' * 9000000 }}")
    assert "longer than 100000 characters" in failure("a" * 100_001)


def test_threads_take_turns() -> None:
    chat = ChatTemplate(BUNDLED)
    with ThreadPoolExecutor(8) as pool:
        texts = pool.map(chat.render, [CONVERSATION] * 8)
    assert set(texts) == {chat.render(CONVERSATION)}


def test_thousands_of_messages_are_rendered() -> None:
    messages = [Message("user", f"{n} ") for n in range(20_000)]
    assert "19999 " in ChatTemplate(BUNDLED).render(messages)


CALLED = (
    Message("user", "hi"),
    Message("assistant", "", (ToolCall("1", "now", "{}"), ToolCall("2", "now", '{"zone": "UTC"}'))),
    Message("tool", "noon", (), "1"),
    Message("tool", "noon", (), "2"),
)
ANSWER_ONLY = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"


def test_results_of_calls_stay_apart_where_a_template_wants_neighbours_joined() -> None:
    said = "{% for m in messages %}[{{ m.role }}{{ ' ' ~ m.name if m.name }}]{{ m.content }}{% endfor %}"
    messages = (Message("system", "be"), *CALLED)
    text = ChatTemplate(ANSWER_ONLY + said).render(messages)
    assert text == "[user]be\n\nhi[assistant][tool now]noon[tool now]noon"


def test_results_are_part_of_the_turn_that_called_where_a_template_reads_them_there() -> None:
    said = (
        "{% for m in messages %}[{{ m.role }}]{% for r in m['tool_responses'] or [] %}"
        "{{ r.name }}={{ r.response }};{% endfor %}{% endfor %}"
    )
    assert ChatTemplate(said).render(CALLED) == "[user][assistant]now=noon;now=noon;"


def test_arguments_are_objects_or_texts_as_the_template_takes_them() -> None:
    loop = "{% for m in messages %}{% for c in m.tool_calls or [] %}ARGS{% endfor %}{% endfor %}"
    for arguments in ("{{ c.function.arguments | tojson }};", "{{ c.function.arguments + ';' }}"):
        text = ChatTemplate(loop.replace("ARGS", arguments)).render(CALLED)
        assert text == '{};{"zone": "UTC"};'


def test_a_tool_has_properties_though_it_has_no_parameters() -> None:
    said = "{% for t in tools %}{{ t.function.parameters.properties.items() | list }}{% endfor %}"
    assert ChatTemplate(said).render(CALLED[:1], tools=[Tool("now")]) == "[]"


@pytest.mark.parametrize("format", ["gguf", "mlx"])
def test_both_formats_of_a_model_have_their_texts(format: str) -> None:
    path = ggufs.TARGET if format == "gguf" else mlx_model(BUNDLED_TARGET)
    texts = texts_of(path)
    assert texts["eos_token"] == "<|im_end|>"
    assert texts["bos_token"] == ("<|endoftext|>" if format == "gguf" else "")
    assert "<|im_start|>" in texts["chat_template"] and texts["model_ftype"] in ("F16", "BF16")


def test_a_file_says_little_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(ggufs.gguf([ggufs.string("tokenizer.ggml.model", "llama")]))
    assert list(texts_of(path).values())[1:] == ["", "", PLAIN]
    path.write_bytes(ggufs.gguf([ggufs.strings("tokenizer.ggml.tokens", ["<|im_start|>"])]))
    assert texts_of(path)["chat_template"] == CHATML
    path.write_bytes(ggufs.gguf([ggufs.uint32("tokenizer.ggml.eos_token_id", 9)]))
    assert texts_of(path)["eos_token"] == "", "there is no such token"
