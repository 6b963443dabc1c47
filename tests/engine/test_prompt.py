"""From prompts to tokens: what is kept when not all fits."""

from __future__ import annotations

import json
import re

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from localspec.backends.base import any_of
from localspec.engine.prompt import GUARD, Markup, PromptEncoder, arguments_of
from localspec.errors import ContextExceeded, InvalidOptions, from_dict
from localspec.protocol.requests import (
    ChatPrompt,
    FimPrompt,
    Message,
    Prompt,
    TextPrompt,
    TokenPrompt,
    Tool,
    ToolCall,
)
from tests.toy import END, FIM_MIDDLE, FIM_PREFIX, FIM_SUFFIX, ToyVocabulary

ENCODER = PromptEncoder(ToyVocabulary(), 100)


def chat(*turns: tuple[str, str]) -> ChatPrompt:
    return ChatPrompt(tuple(Message(role, content) for role, content in turns))  # type: ignore[arg-type]


def text(tokens: list[int]) -> str:
    return bytes(token for token in tokens if token < 256).decode()


def test_a_chat_that_fits_is_whole() -> None:
    encoded = ENCODER.encode(chat(("system", "be kind"), ("user", "hi")), 10)
    assert text(encoded.tokens) == "system: be kinduser: hi" and encoded.dropped == 0


def test_a_long_chat_drops_its_oldest_turn_pairs_and_keeps_the_system_prompt() -> None:
    turns = [("system", "S")]
    for n in range(6):
        turns += [("user", f"question {n}"), ("assistant", f"answer {n}")]
    encoded = ENCODER.encode(chat(*turns, ("user", "last")), 10)
    assert text(encoded.tokens) == "system: Suser: question 5assistant: answer 5user: last"
    assert encoded.dropped == 10 and len(encoded.tokens) <= 90


@pytest.mark.parametrize("prefilled", [False, True])
def test_the_messages_that_have_no_answer_are_not_earlier(prefilled: bool) -> None:
    begun = (Message("assistant", "Well"),) * prefilled
    first, encoder = chat(("system", "S"), ("user", "one " * 99)), PromptEncoder(ToyVocabulary(), 4096)
    results = Message("assistant", ""), *(Message("tool", f"{n} " * 99) for n in range(3))
    second = ChatPrompt((*first.messages, *results, *begun), prefilled=prefilled)
    third = ChatPrompt((*second.messages[:6], Message("assistant", "A"), Message("user", "last"), *begun))
    third = replace(third, prefilled=prefilled)
    assert encoder.encode(ChatPrompt((*first.messages, *begun), prefilled=prefilled), 10).earlier == 0
    for prompt, new, old in ((second, "0 0", "one"), (third, "last", "0 0")):
        encoded = encoder.encode(prompt, 10)
        parts = encoded.tokens[: encoded.earlier], encoded.tokens[encoded.earlier :]
        before, after = map(text, parts)
        assert new in after and new not in before and before.count(old) > after.count(old)


class Counting(ToyVocabulary):
    """A vocabulary that records the length of each text that it encodes."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def encode(self, text: str, *, special: bool) -> list[int]:
        self.asked.append(len(text))
        return list(text.encode())


def test_a_very_long_chat_is_cut_in_few_encodings_and_none_of_what_cannot_fit() -> None:
    turns = [turn for n in range(1000) for turn in (("user", f"q{n}"), ("assistant", f"a{n}"))]
    vocabulary = Counting()
    encoded = PromptEncoder(vocabulary, 100).encode(chat(*turns, ("user", "last")), 10)
    assert len(encoded.tokens) <= 90 and encoded.dropped > 1900
    assert len(vocabulary.asked) <= 12 and max(vocabulary.asked) <= 12_800


def pair(number: int, result: str) -> tuple[Message, Message]:
    """A call and its result."""
    call = ToolCall(str(number), "now", "{}")
    return Message("assistant", f"call {number}", (call,)), Message("tool", result, (), call.id)


def test_the_oldest_calls_behind_a_question_are_dropped_with_their_results() -> None:
    calls = [message for number in range(60) for message in pair(number, "late")]
    prompt = ChatPrompt((Message("user", "before"), Message("user", "when?"), *calls))
    encoded = PromptEncoder(ToyVocabulary(), 300).encode(prompt, 10)
    shown = text(encoded.tokens)
    assert shown.startswith("user: when?assistant: call 58\n<tool_call>") and shown.count("call 5") == 2
    assert shown.count("<tool_response>\nlate\n") == 2 and encoded.dropped == 117


def test_a_result_that_does_not_fit_loses_its_middle_and_the_question_nothing() -> None:
    large, encoder = "".join(map(str, range(2000))), PromptEncoder(ToyVocabulary(), 400)
    prompt = ChatPrompt((Message("user", "when?"), *pair(0, large)))
    shown = text(encoder.encode(prompt, 10).tokens)
    result = shown.partition("<tool_response>\n")[2].removesuffix("\n</tool_response>")
    head, left_out, tail = re.split(r"\n\[([\d,]+) characters are left out here\]\n", result)
    assert shown.startswith("user: when?assistant: call 0") and len(head) > 50 < len(tail)
    assert large.startswith(head) and large.endswith(tail)
    assert len(head) + int(left_out.replace(",", "")) + len(tail) == len(large)
    with pytest.raises(ContextExceeded):  # the user's own text
        encoder.encode(ChatPrompt((Message("user", large), *pair(0, large))), 10)
    encoded = encoder.encode(ChatPrompt((*pair(0, "old"), *pair(1, "x" * 9_000_000))), 10)
    assert encoded.dropped == 2 and encoded.earlier > 0  # longer than a template may make it


@pytest.mark.parametrize("prompt", [TextPrompt("x" * 12_801), chat(("user", "x" * 12_801))])
def test_a_text_far_too_long_to_fit_is_refused_unread(prompt: Prompt) -> None:
    vocabulary = Counting()
    with pytest.raises(
        ContextExceeded, match=r"^the prompt has at least 10[1-9] tokens, the context"
    ) as refused:
        PromptEncoder(vocabulary, 100).encode(prompt, 10)
    assert int(refused.value.details["prompt_tokens"]) > int(refused.value.details["n_ctx"]) == 100
    assert not vocabulary.asked


def test_an_empty_conversation_is_refused() -> None:
    with pytest.raises(InvalidOptions):
        ENCODER.encode(ChatPrompt(()), None)


def test_half_a_character_is_read_as_none() -> None:
    assert text(ENCODER.encode(chat(("user", "a\ud83db")), 10).tokens) == "user: a\ufffdb"
    call = ToolCall("1", "say", r'{"text": "\ud83d \ud83d\ude00 \\\\ud83d"}')
    assert call.object == {"text": "\ufffd \U0001f600 \\\\ud83d"}


def test_all_texts_of_a_chat_are_guarded() -> None:
    call = ToolCall("<|end|>1", "<|end|>2", r'{"<|end|>3": ["\u003c|end|>4"]}')
    said = Message("assistant", "<|end|>5", (call,), thinking="<|end|>A")
    messages = (said, Message("tool", "<|end|>6", (), "<|end|>1"))
    tool = Tool("<|end|>7", "<|end|>8", {"properties": {"<|end|>9": {}}})
    prompt = ChatPrompt(messages, variables={"v": "<|end|>0"}, tools=(tool,))
    texts = json.dumps(to_builtins(Markup(ToyVocabulary()).guarded_chat(prompt)), ensure_ascii=False)
    assert texts.count(GUARD) == 12 and "<|" not in texts
    deep = ToolCall("1", "x", "[" * 99_999)
    assert arguments_of(deep) == {"arguments": "[" * 99_999}


def test_special_text_in_a_raw_prompt_is_special() -> None:
    assert ENCODER.encode(TextPrompt("a<|end|>b"), None).tokens == [97, 256, 98]


def test_special_text_in_code_is_only_text() -> None:
    tokens = ENCODER.encode(FimPrompt("<|end|>", ""), None).tokens
    assert tokens == [FIM_PREFIX, *b"<|end|>", FIM_SUFFIX, FIM_MIDDLE]


def test_a_completion_keeps_what_is_near_the_cursor() -> None:
    encoded = ENCODER.encode(FimPrompt("p" * 300 + "P", "S" + "s" * 300), 20)
    tokens = encoded.tokens
    suffix = tokens[tokens.index(FIM_SUFFIX) + 1 : -1]
    prefix = tokens[1 : tokens.index(FIM_SUFFIX)]
    assert text(prefix).endswith("P") and text(suffix).startswith("S")
    assert len(tokens) == 80 and len(prefix) > 2 * len(suffix)


def test_a_short_prefix_leaves_its_room_to_the_suffix() -> None:
    tokens = ENCODER.encode(FimPrompt("p", "s" * 300), 20).tokens
    assert len(tokens) == 80


def test_a_completion_ends_at_any_special_token() -> None:
    assert ENCODER.encode(FimPrompt("a", "b"), None).end_tokens == ToyVocabulary.special_tokens


def test_a_chat_that_is_not_to_be_cut_is_refused_with_its_numbers() -> None:
    turns = [turn for n in range(9) for turn in (("user", f"question {n}"), ("assistant", f"answer {n}"))]
    with pytest.raises(ContextExceeded) as refused:
        ENCODER.encode(chat(*turns, ("user", "last")), 10, cut=False)
    details = refused.value.details
    assert int(details["prompt_tokens"]) > int(details["n_ctx"]) == 100
    assert from_dict(refused.value.as_dict()).details == details


def test_tokens_are_continued_as_they_are() -> None:
    assert ENCODER.encode(TokenPrompt((97, 256, 98)), None).tokens == [97, 256, 98]
    for unknown in (ToyVocabulary.size, -1):
        with pytest.raises(InvalidOptions, match=f"the model has no token {unknown}"):
            ENCODER.encode(TokenPrompt((97, unknown)), None)
    with pytest.raises(InvalidOptions, match="the prompt is empty"):
        ENCODER.encode(TokenPrompt(()), None)


def test_the_answer_goes_on_after_its_beginning() -> None:
    asked = chat(("user", "hi"))
    begun = ChatPrompt((*asked.messages, Message("assistant", "Well, ")), prefilled=True)
    plain = ENCODER.encode(asked, 10).tokens
    assert ENCODER.encode(begun, 10).tokens == [*plain, *b"Well, "]


def test_a_long_chat_with_a_begun_answer_is_cut_before_its_last_question() -> None:
    turns = [turn for n in range(9) for turn in (("user", f"question {n}"), ("assistant", f"answer {n}"))]
    begun = ChatPrompt(chat(*turns, ("user", "last"), ("assistant", "Well")).messages, prefilled=True)
    encoded = ENCODER.encode(begun, 10)
    assert text(encoded.tokens).endswith("user: lastWell") and encoded.dropped


@pytest.mark.parametrize(
    ("trained", "remedy"),
    [(None, "enlarge the context"), (200, "enlarge the context"), (100, "a model of more than 100 tokens")],
)
def test_the_remedy_for_a_long_prompt_is_one_that_the_model_permits(trained: int | None, remedy: str) -> None:
    encoder = PromptEncoder(ToyVocabulary(), 100, trained_ctx=trained)
    with pytest.raises(ContextExceeded) as longer:
        encoder.encode(TextPrompt("x" * 101), 10)
    assert remedy in longer.value.remedy


class Trimming(ToyVocabulary):
    """A vocabulary whose template alters contents as many do."""

    chat_template = "{% for m in messages %}{{ m.content | trim | replace('x', 'y') }}<|end|>{% endfor %}"


class Shown(ToyVocabulary):
    """A vocabulary whose turn marker stands for text, as those of gpt-oss do."""

    special_tokens = ToyVocabulary.special_tokens - {END}
    marks = frozenset({END})


@pytest.mark.parametrize(
    "content",
    [
        "a <|end|> b",
        "<|end|>",
        "<|end|><|end|>",
        "<<|end|>",
        "a<|middle|>\ufdd0<|end|",
        "\ufdd0<|en\ufdd0d|>",
    ],
)
@pytest.mark.parametrize(
    "vocabulary", [ToyVocabulary(), Trimming(), Shown()], ids=["as it is", "altered", "shown"]
)
def test_only_the_template_makes_control_tokens(content: str, vocabulary: ToyVocabulary) -> None:
    spelled = content.replace("\ufdd0", "\ufffd")
    encoder = PromptEncoder(vocabulary, 200)
    begun = ChatPrompt((*chat(("user", content)).messages, Message("assistant", content)), prefilled=True)
    head = "" if isinstance(vocabulary, Trimming) else "user: "
    assert encoder.encode(begun, 10).tokens == [*(head + spelled).encode(), END, *spelled.encode()]


def test_variables_of_a_template_are_contents_too() -> None:
    class Showing(ToyVocabulary):
        chat_template = "{{ tools[0].name }}<|end|>"

    prompt = ChatPrompt(chat(("user", "hi")).messages, variables={"tools": [{"name": "<|end|>"}]})
    assert PromptEncoder(Showing(), 100).encode(prompt, 10).tokens == [*b"<|end|>", END]
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidOptions, match="nested too deep"):
        ENCODER.encode(ChatPrompt(prompt.messages, variables={"deep": deep}), 10)


def test_names_that_begin_alike_are_one_tree() -> None:
    """Of thousands each beginning would be tried at every character otherwise."""
    names = [*(f"<unused{n}>" for n in range(3000)), "<s>", "<start>", "<start>>"]
    pattern = any_of(sorted(names))
    assert pattern.count("unused") == 1
    found = re.findall(pattern, "<unused2999><unused3000><unused<s><start>>")
    assert found == ["<unused2999>", "<s>", "<start>>"]


def test_a_chat_that_spells_no_control_token_is_encoded_as_one_text() -> None:
    vocabulary = Counting()
    PromptEncoder(vocabulary, 100).encode(chat(("user", "hi"), ("assistant", "ho")), 10)
    assert len(vocabulary.asked) == 1


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("writes", [True, False])
def test_a_chat_begins_with_one_bos_by_the_tokenizer_or_by_the_template(adds: bool, writes: bool) -> None:
    class Beginning(ToyVocabulary):
        bos = END if adds else None
        bos_text = "<|end|>"
        chat_template = "{{ bos_token }}" * writes + "{{ messages[0].content }}"

    found = PromptEncoder(Beginning(), 100).encode(chat(("user", "hi")), 10).tokens
    assert found == [END] * (adds or writes) + [*b"hi"]


@pytest.mark.parametrize(
    ("beginning", "text"),
    [
        ("Sure, here", "<think>\n\n</think>\n\nSure, here"),
        ("<think>\nI know", "<think>\nI know"),
        ("<think>a</think>b", "<think>a</think>b"),
        ("a</think>b", "<think>\na</think>b"),
    ],
)
def test_a_prefilled_answer_is_no_part_of_a_thought_that_the_template_opens(
    beginning: str, text: str
) -> None:
    class Thinking(ToyVocabulary):
        chat_template = "{{ messages[0].content }}{{ '<think>\n' }}"

    prompt = ChatPrompt((Message("user", "hi"), Message("assistant", beginning)), prefilled=True)
    assert PromptEncoder(Thinking(), 100).encode(prompt, 10).tokens == [*b"hi", *text.encode()]


def test_a_base_model_reads_the_contents_alone() -> None:
    class Base(ToyVocabulary):
        chat_template = None

    encoder = PromptEncoder(Base(), 100)
    encoded = encoder.encode(chat(("system", "S"), ("user", "hi")), 10)
    assert encoded.tokens == [*b"S\n\nhi"] and encoded.untemplated
    begun = ChatPrompt((Message("user", "hi"), Message("assistant", "ho")), prefilled=True)
    assert encoder.encode(begun, 10).tokens == [*b"hi\n\nho"]
    assert not ENCODER.encode(chat(("user", "hi")), 10).untemplated
