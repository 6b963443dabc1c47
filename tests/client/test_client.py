"""The client's public face, over real connections to real daemons, and events as a program reads them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, unix_serve
from websockets.typing import Subprotocol

from localspec import errors
from localspec.client import Client, Stream, connect, discovery
from localspec.client.client import initialize
from localspec.client.wire import UNREAD, Subscription, open_socket
from localspec.errors import DaemonUnavailable, InvalidOptions, SessionNotFound
from localspec.home import socket_path
from localspec.protocol import jsonrpc, messages
from localspec.protocol.messages import ChatRegenerate, ChatSend
from localspec.protocol.options import Options
from localspec.protocol.requests import Message, SessionEvent, Tool
from tests.client.conftest import begun, echo
from tests.waiting import soon


async def test_streams_text_and_gives_the_result(shared: Path, client: Client) -> None:
    stream = client.generate("one two three")
    assert "".join([delta.text async for delta in stream]) == "one two three "
    result = await stream.result()
    assert (result.text, result.finish_reason, result.stats.accepted) == ("one two three ", "stop", 3)
    stream = client.generate(messages=(Message("user", "hi"),), options=Options(seed=1))
    assert (await stream.result()).text == "hi "


async def test_events_tell_of_loading_queueing_prefill_and_text(home: Path, client: Client) -> None:
    events = [event async for event in client.generate("degrade").events()]
    assert [type(event) for event in events if not isinstance(event, messages.StreamDelta)] == [
        messages.StreamProgress,
        messages.ModelProgress,
        messages.ModelProgress,
        messages.StreamProgress,
        messages.SpeculationDegraded,
    ]
    opening = client.open(options=Options(model="other"))
    assert [event async for event in opening.events()] == [messages.ModelProgress("other", "weights", 0.5)]
    assert (await opening.result()).pairing.target == "other"


async def test_streams_side_by_side(shared: Path, client: Client) -> None:
    stalled = await begun(client.generate("stall"))
    streams = [client.generate(f"number {n}") for n in range(20)]
    assert [(await s.result()).text for s in streams] == [f"number {n} " for n in range(20)]
    result = await soon(stalled.cancel())
    assert (result.text, result.finish_reason) == ("stalling", "cancelled")
    assert await stalled.cancel() == result


@pytest.mark.parametrize("read", [0, 1])
async def test_what_is_closed_has_ended_at_the_daemon_whether_it_was_read_or_not(
    shared: Path, client: Client, read: int
) -> None:
    stream = client.generate("stall")
    for _ in range(read):
        await soon(anext(aiter(stream)))
    await soon(stream.aclose())
    assert (await client.status()).running == 0
    assert (await stream.result()).finish_reason == "cancelled"
    await soon(stream.aclose())


async def test_what_failed_can_be_closed(shared: Path, client: Client) -> None:
    async with contextlib.aclosing(client.chat(ChatSend(session="none", content="x"))) as stream:
        pass
    with pytest.raises(SessionNotFound):
        await stream.result()


async def test_chats(home: Path, client: Client) -> None:
    opened = await client.open(system="be brief", options=Options(proposer="none")).result()
    assert opened.pairing.proposer == "none"
    await client.chat(ChatSend(session=opened.session, content="hello")).result()
    text = (await client.chat(ChatSend(session=opened.session, content="prompt")).result()).text
    assert len(json.loads(text)["messages"]) == 4
    assert [s.session for s in await client.sessions()] == [opened.session]
    content = await client.session(opened.session)
    assert content.title == "hello"
    assert [(m.role, m.content) for m in content.messages[:2]] == [("user", "hello"), ("assistant", "hello ")]
    with pytest.raises(SessionNotFound):
        await client.session("none")


async def test_completions(shared: Path, client: Client) -> None:
    done = await client.complete("def f", "\n", path="a.py", max_ms=9000).result()
    assert [item.text for item in done.items] == ["def f"]
    assert (done.result.finish_reason, done.source) == ("stop", "model")
    await client.feedback(done.items[0].id, "accepted")
    warmed = await client.warm(messages.CompletionWarm(path="a.py", prefix="def g", suffix="")).result()
    assert warmed.prompt_tokens == warmed.reprefilled_tokens == 1


async def test_models_status_and_metrics(home: Path, client: Client) -> None:
    await client.generate("hello").result()
    assert "stdlib-6m" in {model.id for model in await client.models()}
    status = await client.status()
    assert (status.connections, status.running, len(status.models)) == (1, 0, 1)
    assert (await client.metrics()).totals['localspec_tokens_total{kind="completion"}'] == 1
    assert (await client.request("daemon/status", dict))["pid"] == status.pid


async def test_errors_are_typed(shared: Path, client: Client) -> None:
    with pytest.raises(errors.OutOfMemory, match="no memory"):
        await client.generate("fail").result()
    with pytest.raises(errors.EngineCrashed):
        async for _ in client.generate("kill"):
            pass
    with pytest.raises(errors.ModelInvalid):
        await client.open(options=Options(model="broken")).result()
    with pytest.raises(InvalidOptions, match="exactly one of prompt, tokens and messages"):
        await client.generate().result()
    with pytest.raises(InvalidOptions, match="tools need the chat template"):
        await client.generate("x", raw=True, tools=(Tool("now"),)).result()
    with pytest.raises(InvalidOptions, match="surrogate"):
        await client.generate("\ud800").result()
    with pytest.raises(InvalidOptions, match="verbose"):
        await client.request("daemon/status", dict, {"verbose": True})
    with pytest.raises(errors.LocalspecError, match="no method") as caught:
        await client.request("no/such", dict)
    assert caught.value.code == "internal"


@pytest.mark.slow
async def test_a_lost_daemon_ends_every_stream(home: Path, client: Client) -> None:
    streams = [await begun(client.generate("stall")) for _ in range(3)]
    pid = (await client.status()).pid
    os.kill(pid, signal.SIGKILL)
    for stream in streams:
        with pytest.raises(DaemonUnavailable):
            await soon(stream.result())
    with pytest.raises(DaemonUnavailable):
        await client.status()
    with pytest.raises(DaemonUnavailable):
        async for _ in client.generate("hello"):
            pass
    async with await echo() as again:
        assert (await again.status()).pid != pid


async def test_clients_send_no_pings_of_their_own(home: Path) -> None:
    """Silence ends no connection: a daemon stands still while its machine is suspended."""
    async with await echo():
        socket = await open_socket()
        assert socket.ping_interval is None
        await socket.close()


async def test_shutdown_ends_the_daemon(home: Path) -> None:
    async with await echo() as client:
        await client.shutdown()
        with pytest.raises(DaemonUnavailable, match="the daemon is stopping"):
            await client.status()
    assert discovery.find() is None
    with pytest.raises(DaemonUnavailable, match="no daemon is running"):
        await connect(start=False)


async def test_closing_ends_the_requests(shared: Path) -> None:
    async with await echo() as watcher:
        async with await echo() as client:
            stream = await begun(client.generate("stall"))
        with pytest.raises(DaemonUnavailable):
            await stream.result()
        while (await watcher.status()).running:
            pass


async def refuse(socket: ServerConnection) -> None:
    """As a daemon of another protocol does."""
    call = jsonrpc.decode(await socket.recv())
    assert isinstance(call, jsonrpc.Call)
    await socket.send(jsonrpc.failure(call.id, errors.VersionSkew("this daemon speaks 2")))


async def babble(socket: ServerConnection) -> None:
    await socket.send("hello")


@pytest.mark.parametrize(
    ("say", "error", "what"),
    [(refuse, errors.VersionSkew, "speaks 2"), (babble, DaemonUnavailable, "does not speak")],
)
async def test_a_server_of_another_protocol_or_none_is_reported(
    home: Path,
    say: Callable[[ServerConnection], Awaitable[None]],
    error: type[errors.LocalspecError],
    what: str,
) -> None:
    async def handle(socket: ServerConnection) -> None:
        await say(socket)
        await socket.wait_closed()

    async with unix_serve(handle, str(socket_path()), subprotocols=[Subprotocol("localspec.v1")]):
        with pytest.raises(error, match=what):
            await initialize(await open_socket(), "test")


@pytest.mark.slow
async def test_sessions_are_searched_set_copied_and_ended(home: Path, client: Client) -> None:
    session = (await client.open().result()).session
    await client.chat(ChatSend(session=session, content="hello")).result()
    question, answer = (await client.session(session)).messages
    edit = messages.ChatEdit(session=session, message=question.id, content="edited")
    assert (await client.chat(edit).result()).text == "edited "
    assert (await client.chat(ChatRegenerate(session=session)).result()).text == "edited "
    with pytest.raises(errors.MessageNotFound):
        await client.chat(ChatRegenerate(session=session, message=answer.id)).result()
    await client.rename_session(session, "a name")
    assert await client.configure_session(session, Options(seed=1)) is None
    pairing = await client.configure_session(session, Options(model="other"))
    assert pairing is not None and pairing.target == "other"
    copy = await client.fork_session(session)
    assert (await client.session(copy)).options == Options(model="other")
    assert {found.session for found in await client.sessions("A NAME")} == {session, copy}
    assert len(await client.sessions(limit=1)) == 1 and not await client.sessions(offset=2)
    await client.delete_session(copy)
    await client.delete_session(session)
    with pytest.raises(SessionNotFound):
        await client.session(session)


async def test_a_stream_is_resumed_by_a_new_connection(shared: Path) -> None:
    client = await echo()
    session = (await client.open().result()).session
    lost = client.chat(ChatSend(session=session, content="stall"))
    assert lost.name is None and lost.seq == -1
    first = [(await begun(lost)).seq]
    await client.close()
    with pytest.raises(DaemonUnavailable):
        await lost.result()
    assert lost.name is not None and first == [0]
    async with await echo() as again, await echo() as other:
        resumed = again.resume(lost.name, lost.seq)
        replayed = other.resume(lost.name)
        await begun(replayed)
        assert (await replayed.cancel()).text == "stalling"
        with pytest.raises(errors.Gone):
            await resumed.result()
        assert (replayed.name, replayed.seq) == (lost.name, 0)
        assert (await replayed.result()).finish_reason == "cancelled"
        with pytest.raises(errors.Gone):
            await again.resume("unknown").result()


@pytest.mark.parametrize("progress", [(), (messages.ModelProgress("toy", "target", 1.0),)])
async def test_a_stream_knows_if_it_awaited_its_model(progress: tuple[messages.ModelProgress, ...]) -> None:
    stream = Stream[None](1, lambda: None)
    for event in progress:
        stream.feed(event)
    stream.feed(messages.StreamProgress(1, "prefill", 0.0))
    assert (stream.loaded_s is None) == (not progress)


async def test_a_new_subscription_takes_the_place_of_the_old_one(home: Path, client: Client) -> None:
    old = await client.subscribe()
    new = await client.subscribe()
    opened = await client.open().result()
    assert [event async for event in old] == []
    assert await soon(anext(aiter(new))) == SessionEvent(opened.session, "opened")


async def test_it_ends_with_the_connection_however_often_it_is_asked(home: Path) -> None:
    async with await echo() as client, await echo() as other:
        events = await client.subscribe()
        await other.shutdown()
        for _ in range(2):
            assert [event async for event in events] == []


async def test_a_slow_reader_loses_the_oldest() -> None:
    events = Subscription()
    sent = [SessionEvent(str(number), "changed") for number in range(UNREAD + 10)]
    for event in sent:
        events.feed(event)
    events.feed(None)
    assert [event async for event in events] == sent[11:]
