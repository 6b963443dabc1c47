"""The fixed prompts, and how one turn follows from another."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

import msgspec
import pytest

from localspec.bench.workload import (
    CODE,
    WORKLOADS,
    Case,
    Turn,
    load_workload,
    quick,
    request_of,
    usable_code,
)
from localspec.engine.engine import Engine
from localspec.engine.load import load
from localspec.engine.prompt import PromptEncoder
from localspec.errors import InvalidOptions
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, FimPrompt, Message, Request, TextPrompt

OWN = ("edit-short", "edit-long", "fim", "chat", "story")
EDITS = ("edit-short", "edit-long")
CONTEXT = 1900
"""tokens of prompt and answer, well within the bundled pair's 2,048"""
CODE_BEFORE = "def f(path):\n    return open(path)\n"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with load("bundled", draft="none", proposer="none", n_ctx=2048, parallel=1, threads=1) as engine:
        yield engine


def all_cases() -> list[Case]:
    return [case for name in OWN for case in load_workload(name)]


def editing(code: str = CODE_BEFORE) -> Turn:
    prompt = ChatPrompt((Message("user", f"Rename `path` to `name`:\n```python\n{CODE}```"),))
    return Turn(prompt, Options(temperature=0.0), code)


def content(request: Request) -> str:
    assert isinstance(request.prompt, ChatPrompt)
    return request.prompt.messages[-1].content


# --- the data ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cases", "turns", "most"),
    [
        ("edit-short", 8, 2, 256),
        ("edit-long", 4, 4, 600),
        ("fim", 12, 1, 64),
        ("chat", 8, 1, 128),
        ("story", 6, 1, 160),
    ],
)
def test_the_workloads_have_their_sizes(name: str, cases: int, turns: int, most: int) -> None:
    loaded = load_workload(name)
    assert len(loaded) == cases
    assert {len(case.turns) for case in loaded} == {turns}
    assert {turn.options.max_tokens for case in loaded for turn in case.turns} == {most}
    assert {case.workload for case in loaded} == {name}


def test_every_workload_loads_and_says_why() -> None:
    assert tuple(WORKLOADS) == OWN
    for name, why in WORKLOADS.items():
        assert why and "\n" not in why
        assert load_workload(name)


def test_cases_have_names_of_their_own() -> None:
    names = [case.name for case in all_cases()]
    assert len(set(names)) == len(names)


def test_no_two_prompts_are_the_same() -> None:
    prompts = [msgspec.json.encode(turn.prompt) for case in all_cases() for turn in case.turns]
    coded = {msgspec.json.encode(request_of(t).prompt) for case in all_cases() for t in case.turns}
    assert len(coded) == len(prompts)


@pytest.mark.parametrize("name", EDITS)
def test_edits_are_greedy_and_know_their_code(name: str) -> None:
    shortest, longest = {"edit-short": (200, 600), "edit-long": (900, 2000)}[name]
    for case in load_workload(name):
        for turn in case.turns:
            assert turn.options.temperature == 0
            first_of_conversation = isinstance(turn.prompt, ChatPrompt) and CODE not in str(turn.prompt)
            assert bool(turn.code) != first_of_conversation
            if turn.code:
                assert turn.code.endswith("\n")
                # Renames make code a little longer or shorter than what was chosen.
                assert shortest * 0.8 <= len(turn.code) <= longest * 1.2
                compile(turn.code, case.name, "exec")


def test_long_edits_hold_one_message_and_short_ones_a_conversation() -> None:
    roles = {
        name: [[m.role for m in t.prompt.messages] for c in load_workload(name) for t in c.turns
               if isinstance(t.prompt, ChatPrompt)]
        for name in EDITS
    }  # fmt: skip
    assert all(messages == ["user"] for messages in roles["edit-long"])
    assert roles["edit-short"] == [["user"], ["user", "assistant", "user"]] * 8


def test_every_other_completion_has_other_files() -> None:
    cases = load_workload("fim")
    for i, case in enumerate(cases):
        prompt = case.turns[0].prompt
        assert isinstance(prompt, FimPrompt) and prompt.prefix and prompt.path
        assert len(prompt.extra) == 2 * (i % 2)
        assert prompt.path not in {file.path for file in prompt.extra}


def test_what_is_sampled_has_a_seed() -> None:
    chat = [case.turns[0].options for case in load_workload("chat")]
    story = [case.turns[0].options for case in load_workload("story")]
    assert [options.temperature for options in chat] == [0.0, 0.8] * 4
    assert {options.temperature for options in story} == {1.0}
    sampled = [options.seed for options in (*chat, *story) if options.temperature]
    assert None not in sampled and len(set(sampled)) == len(sampled)


def test_prompts_and_answers_fit_the_bundled_context(engine: Engine) -> None:
    encoder = PromptEncoder(engine.target.vocabulary, 100_000)
    for case in all_cases():
        for turn in case.turns:
            most = turn.options.max_tokens or 0
            assert len(encoder.encode(request_of(turn).prompt, most).tokens) + most <= CONTEXT, case.name


@pytest.mark.parametrize("name", ["edit-short", pytest.param("edit-long", marks=pytest.mark.slow)])
def test_the_bundled_target_can_do_the_edits(engine: Engine, name: str) -> None:
    """One case each: its answers end by themselves, are long enough to measure and can be edited on."""
    previous: str | None = None
    for turn in load_workload(name)[0].turns:
        result = engine.stream(request_of(turn, previous)).finish()
        assert result.finish_reason == "stop" and result.completion_tokens >= 64
        assert usable_code(result.text, turn.code or result.text) is not None
        previous = result.text


def test_the_licences_of_quoted_packages_are_kept() -> None:
    note = files("localspec.bench").joinpath("workloads", "LICENSES.md").read_text("utf-8")
    for case in all_cases():
        if case.workload in (*EDITS, "fim"):
            package = case.name.partition(" ")[2].partition(".")[0]
            assert f"\n## {package} " in note
    assert note.count("THE SOFTWARE IS PROVIDED") + note.count("THIS SOFTWARE IS PROVIDED") == note.count(
        "\n## "
    )


# --- a quick run ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORKLOADS)
def test_quick_takes_two_turns(name: str) -> None:
    cases = quick(load_workload(name))
    assert sum(len(case.turns) for case in cases) == 2
    assert cases[0].turns[0] == load_workload(name)[0].turns[0]


def test_quick_of_little_is_all_of_it() -> None:
    one = load_workload("story")[:1]
    assert quick(one) == one
    assert quick(()) == ()


def test_a_workload_that_is_not_there() -> None:
    with pytest.raises(InvalidOptions, match="edit-short"):
        load_workload("edit-shrt")


# --- from one turn to the next ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("```python\nx = 1\ny = 2\n```", "x = 1\ny = 2\n"),
        ("```\nx = 1\ny = 2\n```", "x = 1\ny = 2\n"),
        ("Here it is:\n```python\nx = 1\ny = 2\n```\nDone.", "x = 1\ny = 2\n"),
        ("```python\nx = 1\ny = 2\n```\n```python\nz = 3\nz = 3\n```", "x = 1\ny = 2\n"),
        ("```python\nx = '```'\ny = 2\n```", "x = '```'\ny = 2\n"),
        ("```python\nx = 1\ny = 2\n", None),  # not closed
        ("x = 1\ny = 2\n", None),  # no block
        ("", None),
        ("```python\nx\n```", None),  # much shorter than what was expected
        ("```python\n" + "x = 1\n" * 9 + "```", None),  # much longer
    ],
)
def test_which_code_of_an_answer_is_edited_next(answer: str, code: str | None) -> None:
    assert usable_code(answer, "x = 0\ny = 2\n") == code


def test_a_turn_edits_the_last_answers_code() -> None:
    said = "```python\ndef g(path):\n    return open(path)\n```"
    asked = content(request_of(editing(), said))
    assert asked == "Rename `path` to `name`:\n```python\ndef g(path):\n    return open(path)\n```"


@pytest.mark.parametrize("previous", [None, "", "I cannot do that.", "```python\nx\n```"])
def test_without_a_usable_answer_the_turns_own_code_is_edited(previous: str | None) -> None:
    assert f"```python\n{CODE_BEFORE}```" in content(request_of(editing(), previous))


def test_braces_in_code_are_just_text() -> None:
    code = 'x = f"{code}" + "{0}"\n'
    assert content(request_of(editing(code))).endswith(f"```python\n{code}```")


def test_a_turn_without_code_is_sent_as_it_is() -> None:
    prompts = (TextPrompt(CODE), FimPrompt(CODE, CODE), ChatPrompt((Message("user", CODE),)))
    for prompt in prompts:
        turn = Turn(prompt, Options(seed=1))
        assert request_of(turn, "```python\nx\n```") == Request(prompt=prompt, options=Options(seed=1))


def test_all_messages_of_a_conversation_show_the_same_code() -> None:
    turn = load_workload("edit-short")[0].turns[1]
    said = f"```python\n{turn.code.replace('return', 'raise')}```"
    prompt = request_of(turn, said).prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages[1].content == said
    assert CODE not in "".join(message.content for message in prompt.messages)
