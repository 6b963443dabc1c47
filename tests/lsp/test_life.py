"""Start and end of the server, and its work while there is no daemon."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pexpect
import psutil
import pytest

from localspec.client import connect, discovery
from tests.daemon.harness import DaemonProcess, write_config
from tests.lsp.editor import AUTOMATIC, COMMAND, editing, texts
from tests.waiting import DEADLINE_S, soon, until

URI = "file:///project/a.py"
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}
EXIT = {"jsonrpc": "2.0", "method": "exit"}


def frame(message: Any) -> bytes:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def begun() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(frame(INITIALIZE))
    process.stdin.flush()
    assert process.stdout.readline().startswith(b"Content-Length: ")
    return process


def said(*messages: Any) -> tuple[list[dict[str, Any]], int, bytes]:
    """All that is answered to these, the exit code, and what was written to stderr."""
    done = subprocess.run(
        COMMAND, input=b"".join(map(frame, messages)), capture_output=True, timeout=DEADLINE_S
    )
    answers, rest = [], done.stdout
    while rest:
        header, _, rest = rest.partition(b"\r\n\r\n")
        length = int(header.partition(b"Content-Length: ")[2].split()[0])
        answers.append(json.loads(rest[:length]))
        rest = rest[length:]
    return answers, done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGINT])
def test_it_ends_without_a_word_with_its_editor_or_by_a_signal(
    fresh: Path, number: signal.Signals | None
) -> None:
    process = begun()
    if number is not None:
        process.send_signal(number)
    _, log = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, log) == (-(number or 0), b"")


@pytest.mark.slow
def test_what_is_no_request_is_refused_and_the_rest_is_answered(fresh: Path) -> None:
    asked = {"jsonrpc": "2.0", "method": "textDocument/inlineCompletion"}
    answers, code, log = said(
        *(b"{no json", b"\xff", b"[" * 100_000, [], {"id": 1}),
        {**asked, "id": 2, "params": {}},
        {**asked, "id": 3, "params": {"position": {"line": -1}}},
        {"jsonrpc": "2.0", "id": 4, "method": "no/such"},
        {"jsonrpc": "2.0", "method": "textDocument/didChange", "params": {"textDocument": 1}},
        INITIALIZE,
        EXIT,
    )
    failed = [line for line in log.splitlines() if line.startswith(b"a message from the editor failed: ")]
    assert b"UnicodeDecodeError" in failed[1] and len(failed) == 8, log
    codes = [(each["id"], each.get("error", {}).get("code")) for each in answers if "id" in each]
    assert codes == [(2, -32602), (3, -32602), (4, -32601), (1, None)]
    assert not any("method" in each for each in answers), "the editor is not initialized"
    assert code == 1, "there was no shutdown"


@pytest.mark.slow
def test_one_socket_may_be_stdin_and_stdout(fresh: Path) -> None:
    own, other = socket.socketpair()
    fd = other.fileno()
    with own, other, subprocess.Popen(COMMAND, stdin=fd, stdout=fd) as process:
        for message in (INITIALIZE, {**INITIALIZE, "method": "shutdown"}):
            own.sendall(frame(message))
            assert own.recv(1 << 16)
        own.sendall(frame(EXIT))
        assert process.wait(DEADLINE_S) == 0


def test_a_terminal_is_refused_as_no_editor(fresh: Path) -> None:
    terminal = pexpect.spawn(COMMAND[0], list(COMMAND[1:]), encoding="utf-8", timeout=DEADLINE_S)
    terminal.expect("is for editors.*plugins/lsp/README.md")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 2


@pytest.mark.slow
async def test_a_daemon_that_was_killed_is_replaced_at_the_next_request(fresh: Path) -> None:
    first = DaemonProcess(fresh)
    second: list[DaemonProcess] = []
    async with editing() as editor:
        editor.open(URI, "stall")
        asked = editor.ask(URI, (0, 5), trigger=AUTOMATIC)
        async with await connect() as client:
            while not any(model.running for model in (await client.status()).models):
                pass
        first.process.kill()
        first.process.wait()
        assert not (await soon(asked)).items
        second.append(DaemonProcess(fresh))
        editor.change(URI, (0, 0), (0, 5), "again")
        assert texts(await editor.complete(URI, (0, 5), trigger=AUTOMATIC)) == ["again"]
        assert editor.said == []
    assert second[0].stop() == 0


@pytest.mark.slow
async def test_where_no_daemon_can_start_it_says_so_once(fresh: Path) -> None:
    write_config(fresh, sections="[engine]\nthreads = -1\n")
    async with editing() as editor:
        editor.open(URI, "word")
        for _ in range(3):
            assert await editor.complete(URI, (0, 4)) == []
        assert len(editor.said) == 1 and "engine.threads" in editor.said[0]
        assert editor.states[-1]["kind"] == "Error"
        await editor.do("localspec.restartDaemon")
        assert len(editor.said) == 2, "a command reports it again"
    assert discovery.find() is None


@pytest.mark.slow
async def test_a_daemon_that_hangs_ends_at_the_deadline(fresh: Path) -> None:
    daemon = DaemonProcess(fresh)
    async with editing(options={"maxMs": 1}) as editor:
        editor.open(URI, "word")
        await editor.complete(URI, (0, 4))
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            assert await editor.complete(URI, (0, 4)) == []
            assert editor.said == []
        finally:
            daemon.process.send_signal(signal.SIGCONT)
    assert daemon.stop() == 0


@pytest.mark.slow
async def test_the_daemon_is_started_restarted_and_starts_again(fresh: Path) -> None:
    async with editing() as editor:
        await until(lambda: discovery.find() is not None, "the daemon has started")
        found = discovery.find()
        assert found is not None
        await editor.do("localspec.restartDaemon")
        await editor.hears("The daemon has started again")
        after = discovery.find()
        assert after is not None and after.pid != found.pid
        psutil.Process(after.pid).kill()
        editor.open(URI, "import os\n")
        while discovery.find() in (after, None):
            await editor.complete(URI, (1, 0))
        assert await editor.complete(URI, (1, 0)) != []
