"""Other decoders of the bundled model give the same answers as ours."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from localspec.bench.references import (
    SETTINGS,
    Answer,
    LlamaPromptLookup,
    LlamaServer,
    Question,
    RawLoop,
    Reference,
    Setting,
    draft_simple,
    find_llama_server,
    ngram_mod,
    ngram_simple,
    question_of,
)
from localspec.bench.references.setting import PLAIN
from localspec.bench.workload import load_workload, request_of
from localspec.engine.engine import Engine
from localspec.engine.load import load
from localspec.errors import (
    BackendUnavailable,
    ContextExceeded,
    EngineCrashed,
    EngineError,
    InvalidOptions,
    ModelNotFound,
)
from localspec.models.bundled import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options
from localspec.protocol.requests import Request, TextPrompt
from localspec.protocol.results import Result

TARGET, DRAFT = bundled_model(BUNDLED_TARGET), bundled_model(BUNDLED_DRAFT)
CONFIG = EngineConfig(n_ctx=2048, parallel=1, threads=1)
REQUESTS = [
    request_of(case.turns[0])
    for name in ("edit-short", "edit-long", "fim")
    for case in load_workload(name)[:2]
]
EDITED = 4
"""of the first requests most of the answer is a copy of the prompt"""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with load("bundled", draft="none", proposer="none", n_ctx=2048, parallel=1, threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def questions(engine: Engine) -> list[Question]:
    return [question_of(request, engine.target.vocabulary, 2048) for request in REQUESTS]


@pytest.fixture(scope="module")
def ours(engine: Engine) -> list[Result]:
    return [engine.stream(request).finish() for request in REQUESTS]


@pytest.fixture
def program() -> Path:
    try:
        return find_llama_server()
    except BackendUnavailable as error:
        pytest.skip(f"{error.message}. {error.remedy}")


def open_raw() -> Reference:
    return RawLoop(TARGET, CONFIG)


def open_lookup() -> Reference:
    return LlamaPromptLookup(TARGET, CONFIG)


IN_PROCESS = pytest.mark.parametrize("open_reference", [open_raw, open_lookup])


# --- questions --------------------------------------------------------------------------------


def test_a_question_is_what_our_engine_makes_of_a_request(engine: Engine, questions: list[Question]) -> None:
    for request, question in zip(REQUESTS, questions, strict=True):
        sequence = engine.submit(request)
        assert question.tokens == tuple(sequence.tokens)
        assert question.end_tokens == sequence.end_tokens
        engine.cancel(sequence.id)
        engine.step()
        assert (question.max_tokens, question.temperature) == (request.options.max_tokens, 0.0)


def test_a_question_without_a_limit_may_fill_the_context(engine: Engine) -> None:
    request = Request(prompt=TextPrompt("def f("), options=Options(temperature=0.5, seed=7))
    question = question_of(request, engine.target.vocabulary, 64)
    assert question.max_tokens + len(question.tokens) == 64
    assert (question.temperature, question.seed) == (0.5, 7)


def test_a_question_whose_answer_does_not_fit(engine: Engine) -> None:
    request = Request(prompt=TextPrompt("def f("), options=Options(max_tokens=64))
    with pytest.raises(ContextExceeded, match="64"):
        question_of(request, engine.target.vocabulary, 64)


def test_an_answer_of_one_token_has_no_speed() -> None:
    assert Answer("a", (1,), ttft_s=0.5, decode_s=0.0, decoded=0).tokens_per_s is None
    assert Answer("abc", (1, 2, 3), ttft_s=0.5, decode_s=0.5, decoded=2).tokens_per_s == 4.0


# --- in this process --------------------------------------------------------------------------


@pytest.mark.slow
@IN_PROCESS
def test_greedy_text_is_ours(
    questions: list[Question], ours: list[Result], open_reference: Callable[[], Reference]
) -> None:
    with closing(open_reference()) as reference:
        answers = [reference.answer(question) for question in questions]
        assert [answer.text for answer in answers] == [result.text for result in ours]
        assert [a.completion_tokens for a in answers] == [r.completion_tokens for r in ours]
        for answer in answers:
            assert answer.ttft_s > 0 and answer.decode_s > 0
            assert answer.decoded == answer.completion_tokens - 1


@pytest.mark.slow
@IN_PROCESS
def test_an_answer_does_not_depend_on_what_was_asked_before(
    questions: list[Question], open_reference: Callable[[], Reference]
) -> None:
    with closing(open_reference()) as reference:
        first = reference.answer(questions[0])
        reference.answer(questions[1])
        reference.fresh()
        again = reference.answer(questions[0])
        assert (again.tokens, again.drafted, again.accepted) == (first.tokens, first.drafted, first.accepted)


@IN_PROCESS
def test_an_answer_ends_at_its_limit(
    questions: list[Question], open_reference: Callable[[], Reference]
) -> None:
    with closing(open_reference()) as reference:
        for limit in (1, 2, 9):
            answer = reference.answer(questions[0]._replace(max_tokens=limit))
            assert answer.completion_tokens == limit


@IN_PROCESS
def test_an_answer_may_end_at_once(
    questions: list[Question], open_reference: Callable[[], Reference]
) -> None:
    with closing(open_reference()) as reference:
        [first] = reference.answer(questions[0]._replace(max_tokens=1)).tokens
        answer = reference.answer(questions[0]._replace(end_tokens=frozenset({first})))
        assert (answer.text, answer.tokens, answer.tokens_per_s) == ("", (), None)


@pytest.mark.slow
@IN_PROCESS
def test_a_sample_depends_on_its_seed(
    questions: list[Question], open_reference: Callable[[], Reference]
) -> None:
    with closing(open_reference()) as reference:
        asked = questions[EDITED]._replace(temperature=1.0, max_tokens=24, end_tokens=frozenset())
        said = [reference.answer(asked._replace(seed=seed)).tokens for seed in (1, 1, 2)]
        assert said[0] == said[1] != said[2]


@IN_PROCESS
def test_a_model_is_freed_once(open_reference: Callable[[], Reference]) -> None:
    reference = open_reference()
    reference.close()
    reference.close()


@pytest.mark.slow
def test_lookup_counts_its_drafts(questions: list[Question]) -> None:
    with LlamaPromptLookup(TARGET, CONFIG, k=4, ngram=3) as reference:
        assert "n=3 k=4" in reference.name
        for question in questions[:EDITED]:
            answer = reference.answer(question)
            assert 0.3 * answer.completion_tokens < answer.accepted < answer.completion_tokens
            assert answer.accepted < answer.drafted
            rounds = answer.completion_tokens - answer.accepted
            assert answer.drafted <= 4 * rounds


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    for open_one in (RawLoop, LlamaPromptLookup, LlamaServer):
        with pytest.raises(ModelNotFound):
            open_one(tmp_path / "none.gguf")


# --- llama-server -----------------------------------------------------------------------------


def test_settings_are_told_apart() -> None:
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
    assert SETTINGS[0] == PLAIN
    assert {ngram_simple(), ngram_mod(), draft_simple()} < set(SETTINGS)
    assert all(setting.needs_draft == ("draft" in setting.name) for setting in SETTINGS)
    assert all(setting.remembers == ("mod" in setting.name) for setting in SETTINGS)


def test_a_server_that_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("LOCALSPEC_LLAMA_SERVER", raising=False)
    with pytest.raises(BackendUnavailable, match="llama-server") as caught:
        find_llama_server()
    assert "LOCALSPEC_LLAMA_SERVER" in caught.value.remedy
    with pytest.raises(BackendUnavailable, match="no-server"):
        find_llama_server(tmp_path / "no-server")


def test_a_server_is_found_by_its_variable_before_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("llama-server", "other"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("LOCALSPEC_LLAMA_SERVER", raising=False)
    assert find_llama_server() == tmp_path / "llama-server"
    monkeypatch.setenv("LOCALSPEC_LLAMA_SERVER", str(tmp_path / "other"))
    assert find_llama_server() == tmp_path / "other"
    assert find_llama_server(tmp_path / "llama-server") == tmp_path / "llama-server"


def test_a_program_that_is_no_server() -> None:
    program = Path(shutil.which("false") or "/bin/false")
    with pytest.raises(EngineError, match="ended with code 1"):
        LlamaServer(TARGET, config=CONFIG, program=program)


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_bytes(b"\x7fELF and nothing else")
    program.chmod(0o755)
    with pytest.raises(BackendUnavailable, match="cannot be run"):
        LlamaServer(TARGET, config=CONFIG, program=program)


def test_a_setting_without_its_draft_model() -> None:
    with pytest.raises(InvalidOptions, match="draft-simple"):
        LlamaServer(TARGET, draft_simple(), config=CONFIG)


def test_a_plain_server_says_what_we_say(
    program: Path, questions: list[Question], ours: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "64")  # of no concern to a server of ours
    with LlamaServer(TARGET, config=CONFIG, program=program) as server:
        answers = [server.answer(question) for question in questions]
    assert [answer.text for answer in answers] == [result.text for result in ours]
    assert [a.completion_tokens for a in answers] == [r.completion_tokens for r in ours]
    for answer in answers:
        assert answer.ttft_s > 0 and answer.decode_s > 0 and answer.drafted == 0
        # The token that ends an answer is counted by llama-server.
        assert answer.decoded - (answer.completion_tokens - 1) in (0, 1)


@pytest.mark.parametrize(
    "setting", [ngram_simple(2, 4), ngram_mod(8, 2, 8), draft_simple()], ids=lambda setting: setting.name
)
def test_a_server_that_speculates(program: Path, questions: list[Question], setting: Setting) -> None:
    """Its text may differ at a near-tie, so it is not compared."""
    with LlamaServer(TARGET, setting, draft=DRAFT, config=CONFIG, program=program) as server:
        assert setting.name in server.name
        for question in questions[:EDITED]:
            answer = server.answer(question)
            assert 0 < answer.accepted < answer.drafted
            assert answer.completion_tokens > 64


def test_a_server_remembers_until_it_is_fresh(program: Path, questions: list[Question]) -> None:
    with LlamaServer(TARGET, ngram_mod(8, 2, 8), config=CONFIG, program=program) as server:
        first, second = server.answer(questions[0]), server.answer(questions[0])
        assert second.accepted > first.accepted
        server.fresh()
        assert server.answer(questions[0]).accepted == first.accepted


def test_a_server_that_remembers_nothing_is_always_fresh(program: Path, questions: list[Question]) -> None:
    with LlamaServer(TARGET, ngram_simple(3, 8), config=CONFIG, program=program) as server:
        before = children()
        first = server.answer(questions[0])
        server.fresh()
        assert children() == before
        again = server.answer(questions[0])
        assert (again.drafted, again.accepted) == (first.drafted, first.accepted)


def test_no_server_stays_behind(program: Path) -> None:
    before = children()
    with pytest.raises(RuntimeError), LlamaServer(TARGET, config=CONFIG, program=program):
        assert len(children() - before) == 1
        raise RuntimeError
    assert children() == before


def test_a_server_that_died(program: Path, questions: list[Question]) -> None:
    before = children()
    with LlamaServer(TARGET, config=CONFIG, program=program) as server:
        [pid] = children() - before
        psutil.Process(pid).kill()
        with pytest.raises(EngineCrashed, match="did not answer"):
            server.answer(questions[0])


def test_a_server_that_refuses(program: Path, questions: list[Question]) -> None:
    with LlamaServer(TARGET, config=CONFIG, program=program) as server:
        with pytest.raises(EngineError, match="400"):
            server.answer(questions[0]._replace(tokens=questions[0].tokens * 40))
        assert server.answer(questions[0]._replace(max_tokens=2)).completion_tokens == 2


def test_a_server_samples(program: Path, questions: list[Question]) -> None:
    with LlamaServer(TARGET, config=CONFIG, program=program) as server:
        asked = questions[EDITED]._replace(temperature=1.0, max_tokens=24)
        said = [server.answer(asked._replace(seed=seed)).tokens for seed in (1, 1, 2)]
        assert said[0] == said[1] != said[2]
        assert math.isfinite(server.answer(asked).decode_s)


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}
