"""The log as a file: everything goes there, and it stays small."""

from __future__ import annotations

import logging
import os
import stat
import sys
from pathlib import Path

import pytest

from localspec.daemon import logs
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import ECHO_DAEMON, DaemonProcess, raw

WITH_LOG = (*ECHO_DAEMON, "--log")
LINE = b"0123456789abcde\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(logs, "MAX_BYTES", 4 * len(LINE))
    return tmp_path / "daemon.log"


def older(file: Path) -> tuple[Path, ...]:
    return tuple(file.with_name(f"{file.name}.{number}") for number in (1, 2, 3))


def test_a_short_log_is_left_alone(file: Path) -> None:
    logs.cut(file, older(file))
    assert list(file.parent.iterdir()) == []
    file.write_bytes(4 * LINE)
    logs.cut(file, older(file))
    assert list(file.parent.iterdir()) == [file]


def test_so_many_older_ones_are_kept_and_no_more(file: Path) -> None:
    for number in range(5):
        file.write_bytes(5 * f"{number}123456789abcde\n".encode())
        logs.cut(file, older(file))
        assert file.read_bytes() == b""
    assert [path.read_bytes()[:1] for path in older(file)] == [b"4", b"3", b"2"]
    assert len(list(file.parent.iterdir())) == 4
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in older(file))


def test_of_one_that_grew_at_a_stroke_the_end_is_kept(file: Path) -> None:
    file.write_bytes(b"beginning\n" + 100 * LINE)
    logs.cut(file, older(file))
    assert older(file)[0].read_bytes() == 4 * LINE


@pytest.mark.parametrize("name", ["a\nERROR forged", "\x1b[2J", "\x9b2J", "\r", "\u2028"])
def test_a_name_neither_begins_a_line_nor_commands_a_terminal(name: str) -> None:
    record = logging.LogRecord("it", logging.INFO, "", 0, "loads %s, café", (name,), None)
    said = logs.OneLine().format(record)
    assert said.endswith(f"INFO it: loads {ascii(name)[1:-1]}, café") and said.splitlines() == [said]


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("of no use")
    except ValueError:
        record = logging.LogRecord("it", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    assert logs.OneLine().format(record).splitlines()[1].startswith("Traceback")


def test_a_writer_that_has_it_open_goes_on_in_it(file: Path) -> None:
    with open(file, "ab", buffering=0) as writer:
        writer.write(5 * LINE)
        logs.cut(file, older(file))
        writer.write(LINE)
    assert file.read_bytes() == LINE


def test_it_stays_small_where_nothing_can_be_kept(file: Path) -> None:
    file.write_bytes(5 * LINE)
    older(file)[0].mkdir()
    (older(file)[0] / "something").touch()
    older(file)[1].mkdir()
    logs.cut(file, older(file))
    assert file.read_bytes() == b""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc to look into")
async def test_what_workers_say_goes_there_too(start: StartDaemon) -> None:
    daemon = start(command=WITH_LOG)
    path = daemon.home / "state" / "daemon.log"
    async with raw(daemon) as client:
        await client.call(1, "generate", prompt="hello")
        (worker,) = daemon.workers()
        for pid in (daemon.process.pid, worker.pid):
            assert os.path.samefile(f"/proc/{pid}/fd/2", path)
            assert os.path.samefile(f"/proc/{pid}/fd/1", path)
    assert "listens on" in path.read_text() and daemon.log() == ""


@pytest.mark.slow
def test_a_daemon_cuts_what_others_left(start: StartDaemon, home: Path) -> None:
    path = home / "state" / "daemon.log"
    path.parent.mkdir()
    path.write_bytes(b"x" * (logs.MAX_BYTES + 1))
    path.chmod(0o644)
    start(command=WITH_LOG)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (home / "state" / "daemon.log.1").stat().st_size == logs.MAX_BYTES
    assert path.stat().st_size < 1000


@pytest.mark.slow
def test_a_log_that_cannot_be_written_is_reported(home: Path) -> None:
    (home / "state" / "daemon.log").mkdir(parents=True)
    with pytest.raises(AssertionError, match="cannot be used"):
        DaemonProcess(home, command=WITH_LOG)
