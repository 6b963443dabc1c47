"""Interrupted commands, killed workers and killed daemons, with real processes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import urllib.request
from pathlib import Path

import psutil
import pytest
from websockets.asyncio.client import unix_connect
from websockets.typing import Subprotocol

from localspec.errors import ExitCode
from localspec.http import server
from localspec.protocol import jsonrpc
from tests.cli.harness import CONFIG, LONG, Cli, ended
from tests.daemon.harness import INITIALIZE, gone
from tests.waiting import DEADLINE_S, until_sync


@pytest.mark.slow
@pytest.mark.parametrize("where", [(), ("--no-daemon",)])
def test_ctrl_c_leaves_the_statistics_that_were_asked_for(cli: Cli, where: tuple[str, ...]) -> None:
    process = cli.begin(*LONG, "--stats", *where)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    *_, took, speculation = stderr.decode().splitlines()
    assert process.returncode == 130 and "Traceback" not in stderr.decode()
    assert " (cancelled) · " in took
    # It may have been interrupted before its first round.
    assert "tokens per round" in speculation or speculation.startswith("no speculation")


@pytest.mark.slow
def test_ctrl_c_on_a_terminal_ends_the_line(cli: Cli) -> None:
    terminal = cli.terminal(*LONG, "--stats")
    terminal.expect("def ")
    terminal.sendintr()
    assert ended(terminal) == 130
    *_, took, speculation = str(terminal.before).splitlines()
    assert re.match(r"\d+ tokens \(cancelled\)", took) and re.match(r"[\d.]+ tokens per round", speculation)


@pytest.mark.slow
def test_an_older_daemon_at_work_is_left_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    process = cli.begin(*LONG)
    pid = cli.status()["pid"]
    for module in ("localspec.client.client", "localspec.cli.answer"):
        monkeypatch.setattr(f"{module}.__version__", "99.0.0")
    done = cli("run", "--max-tokens", "1", "hello")
    assert done.returncode == 0 and "this command is 99.0.0; the daemon is busy (requests: 1)" in done.stderr
    assert cli.status()["pid"] == pid
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    until_sync(lambda: cli.status()["running"] == 0, "it is idle")
    assert cli("run", "--max-tokens", "1", "hello").returncode == 0
    assert cli.status()["pid"] != pid


def test_a_stop_that_would_cut_an_answer_says_so_and_asks_on_a_terminal(cli: Cli) -> None:
    process = cli.begin(*LONG)
    terminal = cli.terminal("daemon", "restart")
    terminal.expect_exact("this cuts 1 running answer short. Stop the daemon? [y/N]")
    terminal.sendline()
    assert ended(terminal) == 1 and process.poll() is None
    done = cli("daemon", "stop")
    assert done.returncode == 0 and "cuts 1 running answer short.\n" in done.stderr
    process.communicate(timeout=DEADLINE_S)


def test_a_restart_is_for_settings_that_can_be_read(cli: Cli) -> None:
    pid = cli.json("daemon", "start")["pid"]
    config = cli.home / "config" / "config.toml"
    text = config.read_text()
    config.write_text("[engine")
    done = cli("daemon", "restart")
    assert done.returncode == 2 and "config.toml is not valid TOML" in done.stderr
    done = cli("models", "load", "-m", "unknown")
    assert done.returncode == 2 and "config.toml is not valid TOML" in done.stderr
    assert cli.status()["pid"] == pid
    config.write_text(text)
    assert "The daemon runs" in cli("daemon", "restart").stdout
    assert cli.status()["pid"] != pid


@pytest.mark.slow
def test_starting_twice_gives_the_same_daemon_and_stopping_twice_is_fine(cli: Cli) -> None:
    one, two = (json.loads(cli.process("daemon", "start", "--json").stdout) for _ in range(2))
    process = psutil.Process(one["pid"])
    assert one == two and set(one) == {"pid", "version", "protocol", "socket"}
    assert cli.process("daemon", "stop").returncode == 0
    assert cli.process("daemon", "stop").returncode == 0
    assert gone(process)
    done = cli("daemon", "status")
    assert done.returncode == 69 and "daemon start" in done.stderr


@pytest.mark.slow
def test_the_start_tells_of_the_http_server_once_it_is_open(cli: Cli) -> None:
    cli("config", "set", "http.enabled", "true")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cli("config", "set", "http.port", str(port))
        sentence = f"port {port} is used by another program"
        step = "Run `localspec config set http.port N` (0: any free port), then `localspec daemon restart`."
        started = cli("daemon", "start")
        assert started.returncode == 0
        assert f"localspec: HTTP server: {sentence}. {step}\n" in started.stderr
        seen = cli("daemon", "status")
        assert "HTTP server: failed\n" in seen.stdout and f"{sentence}. {step}\n" in seen.stderr
        examined = cli("doctor").stdout
        assert f"not open: {sentence}." in " ".join(examined.split())
        assert examined.count("daemon restart") == 1
    cli("config", "set", "http.port", "0")
    said = cli("daemon", "restart").stdout
    url = said.partition("The HTTP server is at ")[2].strip()
    with urllib.request.urlopen(f"{url}/health", timeout=DEADLINE_S) as answer:
        assert answer.status == 200


def test_an_http_server_that_lacks_a_package_is_not_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PACKAGES", ("starlette", "not_installed"))
    done = cli("daemon", "run", "--http")
    assert done.returncode == 69 and "not_installed cannot be imported. Install it" in done.stderr


def test_a_token_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path.resolve() / "data" / "http-token"
    path.mkdir(parents=True)
    done = Cli(tmp_path.resolve())("daemon", "token")
    assert done.returncode == 1 and f"{path} cannot be used: Is a directory. Check that" in done.stderr


@pytest.mark.slow
def test_a_daemon_that_is_full_is_said_as_such_and_stopped(cli: Cli) -> None:
    (cli.home / "config" / "config.toml").write_text(f"{CONFIG}[daemon]\nmax_connections = 1\n")
    found = cli.json("daemon", "start")
    until_sync(lambda: cli("daemon", "status").returncode == 0, "the command that started it has left")
    process = psutil.Process(found["pid"])

    async def test() -> None:
        async with unix_connect(found["socket"], subprotocols=[Subprotocol("localspec.v1")]) as socket:
            await socket.send(jsonrpc.request(1, "initialize", INITIALIZE))
            assert "result" in json.loads(await socket.recv())
            seen = await asyncio.to_thread(cli.process, "daemon", "status")
            assert seen.returncode == ExitCode.BUSY, seen
            assert "limit of open connections is reached" in seen.stderr and "max_connections" in seen.stderr
            stopped = await asyncio.to_thread(cli.process, "daemon", "stop")
            assert stopped.returncode == 0 and "No daemon" not in stopped.stdout + stopped.stderr

    asyncio.run(test())
    assert gone(process)
