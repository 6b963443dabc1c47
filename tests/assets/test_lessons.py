"""The lessons of the bundled pair's recipe: well-formed, right, repeatable, and apart from the tests."""

import json
import random
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import jinja2
import pytest

from assets.training import (
    chat,
    copying,
    corpus,
    edits,
    infill,
    library,
    next_edit,
    presets,
    questions,
    renames,
    tools,
    words,
)
from assets.training.evaluation.questions import held_back_questions, sentence_found
from assets.training.lessons import Lessons

ROOT = Path(__file__).resolve().parents[2]
RENAME_REQUEST = re.compile(r"(?:[Rr]ename|replace|name) `?(\w+)`? (?:to|with) `?(\w+)`?")
SOURCE = '''\
def fetch(path, timeout, retries):
    """Fetch path; give up after timeout seconds."""
    for attempt in range(retries):
        path_text = str(path)  # path_text and pathway are not path
        answer = open_path(path_text, timeout=timeout)
        if answer:
            return answer, attempt
    raise TimeoutError(path)
'''


@pytest.fixture(scope="module")
def entries() -> list[library.Entry]:
    return library.library_entries()


@pytest.fixture(scope="module")
def files() -> list[corpus.SourceFile]:
    return corpus.library_files(presets.SMOKE.files)


@pytest.fixture(scope="module")
def vocabulary(files: list[corpus.SourceFile]) -> list[str]:
    return words.common_words(file.text for file in files)


def exchanges(example: chat.Example) -> list[tuple[str, str]]:
    """Take a conversation apart again; fails where it is not what the template renders."""
    text = "".join(piece.text for piece in example)
    turns = re.findall(r"<\|im_start\|>(system|user|assistant)\n(.*?)<\|im_end\|>\n", text, re.DOTALL)
    assert "".join(chat.format_turn(role, content) for role, content in turns) == text
    spoken = [turn for turn in turns if turn[0] != "system"]
    assert [role for role, _ in spoken] == ["user", "assistant"] * (len(spoken) // 2)
    taught = [piece.text for piece in example if piece.taught]
    assert taught == [content + "<|im_end|>" for role, content in spoken if role == "assistant"]
    contents = [content for _, content in spoken]
    return list(zip(contents[::2], contents[1::2], strict=True))


# --- questions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "sentence", "signature"),
    [
        ("textwrap.dedent", "Remove any common leading whitespace from every line in `text`.", "(text)"),
        ("os.path.join", "Join two or more pathname components, inserting '/' as needed.", "(a, *p)"),
        ("len", "Return the number of items in a container.", "(obj)"),
        ("str.join", "Concatenate any number of strings.", "(iterable)"),
    ],
)
def test_the_library_is_read_from_the_interpreter(
    entries: list[library.Entry], path: str, sentence: str, signature: str
) -> None:
    [entry] = [each for each in entries if each.path == path]
    assert (entry.sentences[0], entry.signature) == (sentence, signature)


def test_entries_are_many_and_sound(entries: list[library.Entry]) -> None:
    assert len(entries) > 2500
    assert len({entry.path for entry in entries}) == len(entries)
    assert len({entry.path.split(".")[0] for entry in entries if entry.kind == "module"}) > 120
    for entry in entries:
        assert all(sentence[-1] in ".!?" and "\n" not in sentence for sentence in entry.sentences), entry
        assert " at 0x" not in f"{entry.signature}{entry.example}{entry.sentences}", entry


@pytest.mark.slow
def test_the_library_reads_alike_in_every_process() -> None:
    """No text depends on the order of a set or on an address."""
    program = "from assets.training.library import library_entries; print(library_entries())"
    command = [sys.executable, "-W", "ignore", "-c", program]
    one, other = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout for _ in "12"
    )
    assert len(one) > 100_000 and one == other


def test_a_question_held_back_is_never_taught(entries: list[library.Entry]) -> None:
    few = entries[::40]
    vocabulary = ["alpha", "beta", "gamma", "delta"]
    taught = {
        question.replace("()", "")
        for example in questions.question_examples(few, vocabulary, "0")
        for question, _ in exchanges(example)
    }
    held_back = held_back_questions(few, 40, seed=3)
    assert len(held_back) == 40
    for entry, wording in held_back:
        assert wording.format(path=entry.path) not in taught
        assert sentence_found(questions.answer(entry, wording), entry, wording)


def test_an_answer_is_true_and_an_unknown_name_is_refused(
    entries: list[library.Entry], vocabulary: list[str]
) -> None:
    few = entries[::40]
    by_path = {entry.path: entry for entry in entries}
    refused = known = 0
    for example in questions.question_examples(few, vocabulary, "1"):
        for question, answer in exchanges(example):
            found = re.fullmatch(r"I do not know `(.+)`\.", answer)
            if found:
                refused += 1
                assert found[1] not in by_path and not library.exists(found[1])
                assert found[1] in question
            else:
                known += 1
                assert any(entry.path in question and entry.sentences[0] in answer for entry in few), question
    assert refused / (refused + known) == pytest.approx(questions.UNKNOWN_SHARE, abs=0.01)


def test_invented_names_of_another_seed_are_others(
    entries: list[library.Entry], vocabulary: list[str]
) -> None:
    one, other = (set(questions.unknown_names(entries, vocabulary, 300, seed)) for seed in ("a", "b"))
    assert len(one) == len(other) == 300
    assert len(one & other) < 15


# --- renames -----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["x = 1", "x = 1\n"])
def test_a_fence_closes_on_its_own_line(source: str) -> None:
    assert chat.fenced(source) == "```python\nx = 1\n```"


@pytest.mark.parametrize("name", ["path", "timeout", "retries", "answer"])
def test_a_rename_touches_no_other_name(name: str) -> None:
    edit = edits.rename_one_of(SOURCE, [name], random.Random(0))
    before, after = (re.findall(r"\w+|\W", text) for text in (edit.before, edit.after))
    assert [edit.new if word == name else word for word in before] == after
    assert edits.mentions(edit.after, name) == 0
    assert edits.rename(edit.after, edit.new, edit.old) == SOURCE


def test_a_new_name_is_new_even_when_all_names_are_taken() -> None:
    everything = " ".join(edits.NEW_NAMES)
    assert edits.fresh_name(everything, random.Random(0)) == edits.LAST_RESORT
    all_but_one = " ".join(edits.NEW_NAMES[1:])
    assert edits.fresh_name(all_but_one, random.Random(0)) == edits.NEW_NAMES[0]


def test_names_to_rename_repeat_and_are_no_keywords() -> None:
    names = edits.repeated_names(SOURCE, most=12)
    assert names == ["path", "timeout", "retries", "attempt", "path_text", "answer"]
    assert "self" not in edits.repeated_names("self.a = self.b = self.total + total", most=12)


def assert_renames(example: chat.Example) -> int:
    """Check every turn of a conversation of renames or copies; returns the number of turns."""
    parts = exchanges(example)
    opener = parts[0][0]
    code = opener[opener.index("```python\n") : opener.rindex("```") + 3]
    for question, answer in parts:
        prose = question.replace(code, "") if question == opener else question
        request = RENAME_REQUEST.findall(prose)
        assert answer == (edits.rename(code, *request[0]) if request else code)
        code = answer
    return len(parts)


@pytest.mark.slow
def test_copies_and_substitutions_are_right(vocabulary: list[str]) -> None:
    examples = list(copying.copying_examples(400, 6, vocabulary, "x"))
    assert {assert_renames(example) for example in examples} == {1, 2}
    assert examples == list(copying.copying_examples(400, 6, vocabulary, "x"))
    assert examples != list(copying.copying_examples(400, 6, vocabulary, "y"))


@pytest.mark.slow
def test_renames_of_real_code_go_on_where_the_last_answer_ended(
    files: list[corpus.SourceFile], vocabulary: list[str]
) -> None:
    examples = list(islice(renames.rename_examples(files, (3, 12), vocabulary, passes=1, seed="x"), 300))
    assert len(examples) == 300
    assert {assert_renames(example) for example in examples} == {1, 2, 3, 4}


# --- fill-in-the-middle ------------------------------------------------------------------------


def test_a_middle_ends_its_line_or_its_block(files: list[corpus.SourceFile]) -> None:
    text = files[0].text
    lines = text.splitlines(keepends=True)
    rng = random.Random(0)
    several = 0
    for first in range(1, len(lines) - 1):
        if not lines[first].strip():
            continue
        pieces = infill.cut(lines, first, rng)
        assert pieces.prefix + pieces.middle + pieces.suffix in text
        assert pieces.suffix.startswith("\n") or not pieces.suffix
        several += "\n" in pieces.middle
    assert several > 20


def test_a_fim_example_teaches_the_middle_and_its_end() -> None:
    example = infill.fim_example(infill.FimPieces("before", "between", "after"))
    assert example == [
        chat.Piece("<|fim_prefix|>before<|fim_suffix|>after<|fim_middle|>", False),
        chat.Piece("between<|endoftext|>", True),
    ]


# --- next edits --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_next_edit_carries_through_what_was_begun(
    files: list[corpus.SourceFile], vocabulary: list[str]
) -> None:
    finished = left = 0
    for prompt, answer in next_edit.next_edit_examples(files, (4, 14), vocabulary, passes=1, seed="x"):
        assert not prompt.taught and answer.taught
        parts = [part.partition("\n") for part in prompt.text.split("<|file_sep|>")[1:]]
        heads, bodies = [part[0] for part in parts], [part[2] for part in parts]
        path = heads[0].removesuffix(".diff")
        assert heads[1:] == [f"original/{path}", f"current/{path}", f"updated/{path}"]
        before, after = bodies[0].removeprefix("original:\n").removesuffix("\n").split("\nupdated:\n")
        assert before != after and before in bodies[1] and after in bodies[2]
        updated = answer.text.removesuffix("<|endoftext|>")
        assert len(updated.splitlines()) == len(bodies[2].splitlines())
        finished += updated == bodies[2]
        left += updated != bodies[2]
    assert left > 100 and finished > 10


# --- tools -------------------------------------------------------------------------------------


def render(**values: object) -> str:
    """A conversation as the chat template renders it, with transformers' form of JSON."""
    environment = jinja2.Environment()
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(chat.CHAT_TEMPLATE).render(**values)


def test_a_chat_is_what_the_template_renders() -> None:
    messages = [
        {"role": role, "content": content}
        for role, content in (("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c"))
    ]
    pieces = chat.chat_example([("a", "b")], system="s")
    expected = "".join(piece.text for piece in pieces) + chat.format_prompt("c")
    assert render(messages=messages, add_generation_prompt=True) == expected


@pytest.mark.parametrize("system", ["", "Be brief."])
def test_tools_calls_and_results_are_what_the_template_renders(system: str) -> None:
    tool = tools.Tool("get_weather", "get the weather", {"city": "string", "days": "integer"})
    arguments = {"city": "Oslo", "days": 3}
    messages: list[dict[str, object]] = [{"role": "system", "content": system}] if system else []
    messages += [
        {"role": "user", "content": "Weather in Oslo?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": tool.name, "arguments": arguments}}],
        },
        {"role": "tool", "content": '{"sky": "clear"}'},
    ]
    expected = (
        tools.system_turn([tool], system=system)
        + chat.format_prompt("Weather in Oslo?")
        + tools.call_text(tool.name, arguments)
        + "<|im_end|>\n"
        + tools.result_prompt('{"sky": "clear"}')
    )
    rendered = render(messages=messages, tools=[tool.schema()], add_generation_prompt=True)
    assert rendered == expected
    assert json.dumps(tool.schema()) in rendered


def test_a_call_is_of_a_listed_tool_with_its_parameters_types(vocabulary: list[str]) -> None:
    types = {"string": str, "integer": int, "number": float, "boolean": bool}
    for example in tools.tool_examples(200, vocabulary, iter(()), "x"):
        text = "".join(piece.text for piece in example)
        listed = re.search(r"<tools>\n(.*)\n</tools>", text, re.DOTALL)
        assert listed is not None
        schemas = {
            schema["function"]["name"]: schema["function"]["parameters"]
            for schema in map(json.loads, listed[1].splitlines())
        }
        taught = [piece.text for piece in example if piece.taught]
        if not taught:
            continue
        call = json.loads(taught[0].removeprefix("<tool_call>\n").removesuffix("\n</tool_call><|im_end|>"))
        properties = schemas[call["name"]]["properties"]
        assert set(call["arguments"]) == set(properties)
        for name, value in call["arguments"].items():
            assert type(value) is types[properties[name]["type"]]


# --- all of them -------------------------------------------------------------------------------


def test_held_back_files_are_not_trained_on() -> None:
    files = corpus.library_files(presets.SMOKE.files)
    trained, held_back = corpus.split_files(files, presets.SMOKE.hold_back_every)
    assert len(files) == presets.SMOKE.files
    assert held_back and not set(trained) & set(held_back)
    assert sorted(trained + held_back, key=lambda file: file.name) == sorted(
        files, key=lambda file: file.name
    )


@pytest.mark.parametrize("preset", list(presets.PRESETS.values()), ids=list(presets.PRESETS))
def test_every_phase_reads_streams_that_exist(preset: presets.Preset) -> None:
    names = [stream.name for stream in preset.streams]
    assert len(set(names)) == len(names)
    plans = [plan for plan in (preset.target, preset.draft) if plan is not None]
    assert {name for plan in plans for phase in plan.phases for name in phase.rows} <= set(names)
    assert all(stream.window <= preset.context for stream in preset.streams)


@pytest.mark.slow
@pytest.mark.parametrize("stream", presets.SMOKE.streams, ids=lambda stream: str(stream.name))
def test_every_stream_of_the_smoke_preset_teaches_something(stream: presets.Stream) -> None:
    examples = list(islice(Lessons(presets.SMOKE).examples(stream), 50))
    assert len(examples) == 50
    assert examples == list(islice(Lessons(presets.SMOKE).examples(stream), 50))
    assert sum(any(piece.taught for piece in example) for example in examples) > 40


def test_importing_the_lessons_needs_neither_torch_nor_tokenizers() -> None:
    program = (
        "import sys; import assets.training.lessons; "
        "print(*sorted({'torch', 'tokenizers', 'numpy', 'gguf'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (run.stdout.strip(), run.returncode) == ("", 0), run.stderr
