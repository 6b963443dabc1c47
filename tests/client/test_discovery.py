"""Finding a daemon, and starting one."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from msgspec.structs import replace

from localspec.client import Client, connect, discovery
from localspec.errors import DaemonUnavailable, InvalidOptions
from localspec.home import discovery_path, log_path, starter_path
from localspec.protocol.messages import ChatSend, Discovery
from tests.client.conftest import begun, echo
from tests.daemon.harness import ECHO_DAEMON, write_config
from tests.waiting import run


async def test_clients_that_start_at_once_share_one_daemon(home: Path) -> None:
    clients = await asyncio.gather(*(echo() for _ in range(4)))
    assert len({(await client.status()).pid for client in clients}) == 1
    for client in clients:
        await client.close()
    log = log_path()
    assert log.read_text().count("listens on") == 1
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_a_start_is_reported_before_it_happens_and_a_restart_has_a_reason(home: Path) -> None:
    shown: list[object] = []

    def note(why: str) -> None:
        shown.append(why or discovery.find())

    for k in (None, None, 3):
        if k is not None:
            write_config(home, options={"k": k})
        async with await connect(on_start=note, command=ECHO_DAEMON):
            pass
    assert shown == [None, "config.toml has changed"]


async def test_the_daemon_is_detached(home: Path, client: Client) -> None:
    process = psutil.Process((await client.status()).pid)
    assert os.getsid(process.pid) == process.pid
    assert process.cwd() == "/"


STALE = Discovery(1, "0", 1, "/nowhere")


@pytest.mark.parametrize("content", [b'{"pid": 1}', b"\xff", b""])
def test_a_damaged_announcement_is_none(home: Path, content: bytes) -> None:
    discovery_path().write_bytes(content)
    assert discovery.find() is None


async def test_no_socket_but_the_home_s_is_used(home: Path) -> None:
    """Another user may listen where the discovery file of a killed daemon says."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as other:
        other.bind(str(home / "other"))
        other.listen()
        discovery_path().write_bytes(msgspec.json.encode(replace(STALE, socket=str(home / "other"))))
        with pytest.raises(DaemonUnavailable):
            await connect(start=False)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_an_announcement_that_is_no_file_is_not_waited_for(home: Path) -> None:
    os.mkfifo(discovery_path())
    os.mkfifo(starter_path())
    assert discovery.find() is None and not discovery._start_service()


def test_a_broken_configuration_is_reported_before_a_daemon_is_started(home: Path) -> None:
    write_config(home, max_frame=-1)
    with pytest.raises(InvalidOptions, match=r"daemon\.max_frame"):
        run(echo())


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ((sys.executable, "-c", "raise SystemExit('no such')"), "ended during its start.*no such"),
        (("/no/such/program",), "cannot be started"),
    ],
)
def test_one_that_dies_or_is_no_program_says_why(home: Path, command: tuple[str, ...], what: str) -> None:
    with pytest.raises(DaemonUnavailable, match=f"(?s){what}"):
        run(connect(command=command))


def test_a_log_that_cannot_be_written_is_reported(home: Path) -> None:
    (home / "state" / "daemon.log").mkdir(parents=True)
    with pytest.raises(DaemonUnavailable, match=r"cannot be started.*state/daemon\.log") as error:
        run(echo())
    assert "LOCALSPEC_HOME" in error.value.remedy


@pytest.mark.slow
async def test_an_idle_older_daemon_is_replaced(
    home: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (await client.status()).pid
    monkeypatch.setattr("localspec.client.client.__version__", "99.0.0")
    stream = await begun(client.generate("stall"))
    async with await echo() as busy:
        assert (await busy.status()).pid == first
    await stream.cancel()
    async with await echo() as idle:
        assert (await idle.status()).pid != first
        # The daemon started is no newer than the first: it is not replaced for ever.
        assert await idle.sessions() == ()


@pytest.mark.slow
async def test_an_idle_daemon_of_other_settings_is_replaced_once_and_keeps_its_sessions(
    home: Path, client: Client
) -> None:
    first = (await client.status()).pid
    session = (await client.open().result()).session
    await client.chat(ChatSend(session=session, content="hello")).result()
    write_config(home, options={"k": 3})
    stream = await begun(client.generate("stall"))
    async with await echo() as busy:
        assert (await busy.status()).pid == first and busy.welcome.settings == "changed"
    await stream.cancel()
    clients = await asyncio.gather(*(echo() for _ in range(4)))
    (second,) = {(await each.status()).pid for each in clients}
    assert second != first
    assert {each.welcome.settings for each in clients} == {"current"}
    content = await clients[0].session(session)
    assert [message.content for message in content.messages] == ["hello", "hello "]
    for each in clients:
        await each.close()


@pytest.mark.slow
async def test_a_daemon_whose_file_is_broken_by_now_is_left_alone(
    home: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config" / "config.toml").write_text("[engine")
    async with await echo() as other:
        assert (await other.status()).pid == (await client.status()).pid
        assert other.welcome.settings == "broken"
    # None that is newer would start.
    monkeypatch.setattr("localspec.client.client.__version__", "99.0.0")
    async with await echo() as newer:
        assert newer.outdated and (await newer.status()).pid == (await client.status()).pid


@pytest.mark.slow
async def test_a_newer_daemon_is_not_replaced_by_an_older_one(
    home: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(home, options={"k": 3})
    monkeypatch.setattr("localspec.client.client.__version__", "0.0.1")
    async with await echo() as older:
        assert older.welcome.settings == "changed"
        assert (await older.status()).pid == (await client.status()).pid


@pytest.mark.slow
async def test_a_daemon_with_a_private_session_is_left_alone(home: Path) -> None:
    async with await echo() as client:
        first, session = (await client.status()).pid, (await client.open(private=True).result()).session
    write_config(home, options={"k": 3})
    # The client of a running request may have lost the connection, and come back.
    async with await echo() as other:
        assert (await other.status()).pid == first and "private" in other.kept_for
        await other.delete_session(session)
    async with await echo() as other:
        assert (await other.status()).pid != first


async def test_where_the_client_keeps_its_settings_makes_no_difference(
    home: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon is compared with the file that it has read: another would never be that of this client."""
    first = (await client.status()).pid
    monkeypatch.setattr("localspec.home.config_dir", lambda: tmp_path)
    (tmp_path / "config.toml").write_text("[options]\nk = 7\n")
    async with await echo() as other:
        assert (await other.status()).pid == first


STARTS_AT_THE_SECOND_TIME = """
import pathlib, subprocess, sys
asked, *command = sys.argv[1:]
times = pathlib.Path(asked)
times.write_text(times.read_text() + "." if times.exists() else ".")
if times.read_text() == "..":
    subprocess.Popen(command, start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
"""
"""as a service manager does that has the last daemon to end first, and starts no second one after that"""


def starter(home: Path, *command: str, prefix: str = sys.prefix) -> None:
    (home / "state").mkdir(exist_ok=True)
    file = home / "localspec.service"
    file.write_text("as it was installed\n")
    content = msgspec.json.encode(discovery.Starter(prefix, str(file), file.read_text(), command))
    (home / "state" / "service.json").write_bytes(content)


@pytest.mark.slow
async def test_an_installed_service_starts_it(home: Path) -> None:
    command = (sys.executable, "-c", STARTS_AT_THE_SECOND_TIME, str(home / "asked"), *ECHO_DAEMON)
    starter(home, *command)
    async with await connect(command=("/no/such/program",)) as client:
        assert (await client.generate("hello").result()).text == "hello "
    assert (home / "asked").read_text().startswith("..")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [("false",), ("/no/such/program",), ()], ids=["fails", "is gone", "is none"]
)
def test_a_service_that_does_not_start_it_is_no_obstacle(home: Path, command: tuple[str, ...]) -> None:
    starter(home, *command)
    assert run(pid_of_new()) is not None


@pytest.mark.parametrize(
    "change", ["environment", *(pytest.param(c, marks=pytest.mark.slow) for c in ("changed", "gone"))]
)
def test_a_service_that_is_another_is_left_alone(home: Path, change: str) -> None:
    prefix = "/another" if change == "environment" else sys.prefix
    starter(home, sys.executable, "-c", f"open({str(home / 'asked')!r}, 'w')", prefix=prefix)
    file = home / "localspec.service"
    if change == "changed":
        file.write_text("for another home\n")
    elif change == "gone":
        file.unlink()
    assert run(pid_of_new()) is not None and not (home / "asked").exists()


async def pid_of_new() -> int:
    async with await echo() as client:
        return (await client.status()).pid
