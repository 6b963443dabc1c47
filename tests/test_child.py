"""A child that exceeds a limit ends alone, and the next work gets another one."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from localspec import child
from localspec.child import Child
from localspec.errors import EngineError
from tests.hygiene.source import ROOT

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="these limits are kept on Linux")
BUSY = "sum(1 for _ in iter(int, 1))"


@pytest.fixture
def evaluator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    evaluator = Child("tests.children")
    yield evaluator
    evaluator.close()


def test_one_child_does_one_work_after_the_other(evaluator: Child) -> None:
    first, second = (evaluator.do(("os.getpid()", 5.0)) for _ in range(2))
    assert first == second != b""


def test_works_at_once_have_a_child_each_where_it_serves_once(evaluator: Child) -> None:
    """The end of one child spares the next one's work."""
    once = Child(evaluator._module, once=True)
    with ThreadPoolExecutor(4) as threads:
        pids = {int(each or 0) for each in threads.map(once.do, 8 * [("os.getpid()", 5.0)])}
    assert len(pids) == 8 and not any(map(psutil.pid_exists, pids))


@pytest.mark.parametrize(
    "expression",
    [BUSY, pytest.param("'a' * (1 << 40)", marks=LINUX), "os.kill(os.getpid(), 11)"],
    ids=["time", "memory", "crash"],
)
def test_a_work_that_takes_too_much_ends_its_child_alone(evaluator: Child, expression: str) -> None:
    assert evaluator.do((expression, 0.1)) is None
    assert evaluator.do(("1 + 1", 5.0)) == b"2"


def test_memory_is_watched_from_outside(evaluator: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "MOST_BYTES", 1)
    assert evaluator.do((BUSY, 600.0)) is None


def test_a_work_ends_when_it_is_cancelled(evaluator: Child) -> None:
    turns = iter((False, False))
    assert evaluator.do((BUSY, 600.0), lambda: next(turns, True)) is None


def test_a_child_that_was_killed_while_it_was_idle_is_started_again(evaluator: Child) -> None:
    killed = psutil.Process(int(evaluator.do(("os.getpid()", 5.0)) or 0))
    killed.kill()
    psutil.wait_procs([killed])
    assert evaluator.do(("1 + 1", 5.0)) == b"2"


def test_ctrl_c_in_a_terminal_does_not_reach_a_child(evaluator: Child) -> None:
    assert evaluator.do(("os.getpgid(0) == os.getpid()", 5.0)) == b"True"


def test_behind_ctrl_c_a_late_result_is_not_that_of_the_next_work(evaluator: Child) -> None:
    def interrupt() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluator.do(("time.sleep(0.5)", 5.0), interrupt)
    assert evaluator.do(("1 + 1", 5.0)) == b"2"


@LINUX
def test_a_process_with_a_thousand_files_has_children(evaluator: Child) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    copies = [os.dup(0) for _ in range(1100)]
    assert evaluator.do(("1 + 1", 5.0)) == b"2"
    for copy in copies:
        os.close(copy)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@LINUX
@pytest.mark.parametrize("expression", ["open('/etc/passwd')", "socket.socket()", "os.pipe()"])
def test_a_child_opens_nothing(evaluator: Child, expression: str) -> None:
    assert evaluator.do((expression, 5.0)) == b"Too many open files"


def test_a_child_that_fails_is_an_error(evaluator: Child) -> None:
    with pytest.raises(EngineError, match="tests.children exited with code 1"):
        evaluator.do(("nothing", 5.0))
    with pytest.raises(EngineError, match="the system ended the process tests.children by SIGKILL"):
        evaluator.do(("os.kill(os.getpid(), 9)", 5.0))
    assert evaluator.do(("1 + 1", 5.0)) == b"2"
