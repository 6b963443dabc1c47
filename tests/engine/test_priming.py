"""Files that an editor sends are learnt line by line, once, and only where they may be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.engine.engine import Engine
from localspec.engine.learning import Learning
from localspec.engine.primer import PIECE, WAITING, Primer
from localspec.home import workspace_of_file
from localspec.memory.memory import Memory, QueueStamp, forget
from localspec.memory.ngrams import MemoryText
from localspec.protocol.options import Options
from localspec.protocol.requests import File, FimPrompt, Request
from tests.memory.hostile_repository import repository
from tests.toy import ToyBackend, ToyVocabulary
from tests.toys import rested, run_all, scripted


class Listening(Memory):
    """A memory that remembers what it was taught, too."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "toy", ToyVocabulary().piece)
        self.lessons: list[MemoryText] = []

    def learn(self, lesson: MemoryText, moment: QueueStamp | None = None) -> None:
        self.lessons.append(lesson)
        super().learn(lesson, moment)

    def taught(self) -> list[tuple[str, str]]:
        """(source, text) of what was taught since the last look."""
        noted = [(lesson.source, bytes(lesson.tokens).decode()) for lesson in self.lessons]
        self.lessons.clear()
        return noted


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = repository((tmp_path / "repo").resolve())
    (root / ".gitignore").write_text("*.log\n")
    return root


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Listening]:
    memory = Listening(tmp_path / "memory")
    yield memory
    memory.close()


@pytest.fixture
def primer(memory: Listening) -> Primer:
    return Primer(memory, ToyVocabulary())


def work(primer: Primer) -> None:
    while primer.work():
        pass


def test_all_lines_but_the_one_that_is_being_written(primer: Primer, repo: Path, memory: Listening) -> None:
    path = str(repo / "a.py")
    primer.read(FimPrompt("one\ntwo\nthr", "ee\nfour\n", path), str(repo))
    work(primer)
    assert memory.taught() == [(f"file:{path}", "one\ntwo\n"), (f"file:{path}", "four\n")]


def test_a_line_is_learnt_once_wherever_it_moves(primer: Primer, repo: Path, memory: Listening) -> None:
    path = str(repo / "a.py")
    before, after = "".join(f"a{n}\n" for n in range(9)), "".join(f"b{n}\n" for n in range(9))
    primer.read(FimPrompt(before, "\n" + after, path), str(repo))
    work(primer)
    assert [text for _, text in memory.taught()] == [before, after]
    for typed in ("n", "ne", "new"):
        primer.read(FimPrompt(before + typed, "\n" + after, path), str(repo))
        work(primer)
    assert memory.taught() == []
    primer.read(FimPrompt(before + "new\nmore\nx", "\n" + after, path), str(repo))
    work(primer)
    assert memory.taught() == [(f"file:{path}", "a7\na8\nnew\nmore\n")]
    primer.read(FimPrompt(before + "new\nmore\n" + after, "", path), str(repo))
    work(primer)
    assert memory.taught() == [(f"file:{path}", "new\nmore\nb0\n")], "it has a new neighbour"


def test_only_the_newest_text_of_a_file_is_looked_at(primer: Primer, repo: Path, memory: Listening) -> None:
    path = str(repo / "a.py")
    for n in range(20):
        primer.read(FimPrompt(f"version {n}\nx", "", path), str(repo))
    work(primer)
    assert [text for _, text in memory.taught()] == ["version 19\n"]


def test_large_files_come_in_pieces(primer: Primer, repo: Path, memory: Listening) -> None:
    primer.teach(str(repo / "a.py"), str(repo), "".join(f"line {n}\n" for n in range(PIECE * 3)))
    work(primer)
    pieces = memory.taught()
    assert len(pieces) == 3 and all(text.count("\n") <= PIECE + 2 for _, text in pieces)


def test_so_many_files_wait_and_none_that_is_too_long(primer: Primer, repo: Path, memory: Listening) -> None:
    primer.teach(str(repo / "long.py"), str(repo), "x = 1\n" * 200_000)
    for n in range(WAITING + 50):
        primer.teach(str(repo / f"{n}.py"), str(repo), f"n = {n}\n")
    work(primer)
    assert [text for _, text in memory.taught()] == [f"n = {n}\n" for n in range(50, WAITING + 50)]


def test_pieces_of_other_files_have_their_own_names(primer: Primer, repo: Path, memory: Listening) -> None:
    extra = (File(str(repo / "b.py"), "b = 1\n"), File("c.py", "c = 1\n"), File(str(repo / "b.log"), "no\n"))
    primer.read(FimPrompt("", "", None, None, extra), str(repo))
    work(primer)
    assert memory.taught() == [(f"file:{repo / 'b.py'}", "b = 1\n"), ("file:c.py", "c = 1\n")]


@pytest.mark.parametrize("name", [".env", "key.pem", "x.log", "no\0path.py", "a" * 300 + "/" + "b" * 5000])
def test_what_may_not_be_learnt_is_not(primer: Primer, repo: Path, memory: Listening, name: str) -> None:
    primer.teach(str(repo / name), str(repo), "a = 1\n")
    primer.teach("relative.py", None, "a = 1\n")
    work(primer)
    assert [source for source, _ in memory.taught() if source != f"file:{repo / name}"] == []
    assert name.startswith("aaa") or memory.taught() == []


def engine_of(memory: Memory) -> Engine:
    target = ToyBackend(scripted(b"x = 1\ny = 2\n"), n_ctx=512)
    return Engine(target, learning=Learning(target, memory=memory))


def complete(engine: Engine, prompt: FimPrompt, **options: object) -> None:
    request = Request(prompt=prompt, options=Options(temperature=0.0, **options))  # type: ignore[arg-type]
    run_all(engine, [engine.submit(request)])
    rested(engine)


def test_an_engine_learns_the_file_and_not_what_it_says_itself(repo: Path, memory: Listening) -> None:
    path = str(repo / "a.py")
    with engine_of(memory) as engine:
        complete(engine, FimPrompt("x = 1\n", "", path, tidy=True))
        assert memory.taught() == [(f"file:{path}", "x = 1\n")]
        assert [table.header.workspace for table in memory.tables(str(repo))] == [str(repo)]
        engine.teach(path, "x = 1\ny = 2", None)
        rested(engine)
        assert memory.taught() == [(f"file:{path}", "x = 1\ny = 2")]


def test_what_is_looked_ahead_or_not_to_be_remembered_leaves_no_trace(repo: Path, memory: Listening) -> None:
    prompt = FimPrompt("x = 1\nsuggested = 2\n", "", str(repo / "a.py"), tidy=True)
    with engine_of(memory) as engine:
        run_all(engine, [engine.submit(Request(prompt=prompt, priority="background"))])
        complete(engine, prompt, remember=False)
        assert memory.taught() == [] and memory.tables(str(repo)) == ()


def knows(memory: Listening, repo: Path, text: str) -> bool:
    """Return True if a table of the repository predicts the last byte of ``text``."""
    context, last = list(text.encode()[:-1]), text.encode()[-1]
    hashes = memory.hashes_of(context)
    found = [table.find(hashes) for table in memory.tables(str(repo))]
    return last in [recall.token for recall in found if recall is not None]


@pytest.mark.parametrize("what", ["all", "workspace", "source"])
def test_what_waits_is_forgotten_with_the_rest_by_any_process(
    primer: Primer, repo: Path, memory: Listening, tmp_path: Path, what: str
) -> None:
    """Forget as a command beside the daemon does, which does not notify it."""
    path, old, secret = str(repo / "a.py"), "the first line that is learnt\n", "no one shall know this!\n"

    def learn() -> None:
        work(primer)
        while memory.work():
            pass

    primer.teach(path, str(repo), old)
    learn()
    assert knows(memory, repo, old)
    primer.teach(path, str(repo), secret)
    forget(
        tmp_path / "memory",
        print,
        workspace=str(repo) if what == "workspace" else None,
        source=f"file:{path}" if what == "source" else None,
    )
    learn()
    assert not knows(memory, repo, secret) and not knows(memory, repo, old)
    primer.teach(path, str(repo), secret)
    learn()
    assert knows(memory, repo, secret), "what is taught later is learnt"
    primer.forget(f"file:{path}")
    primer.teach(path, str(repo), secret)
    learn()
    assert knows(memory, repo, secret)


def test_a_file_belongs_to_its_repository(repo: Path, tmp_path: Path) -> None:
    assert workspace_of_file(str(repo / "deep" / "a.py")) == str(repo)
    for path in (str(tmp_path / "a.py"), "a.py", None, "/\0"):
        assert workspace_of_file(path) is None
