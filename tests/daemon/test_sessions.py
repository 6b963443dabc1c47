"""Sessions over the wire: kept, changed while they are answered, private, and through crashes."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from localspec.config import load_config
from localspec.daemon.server import DaemonServer
from localspec.http.server import serve_http
from tests.daemon.conftest import StartDaemon
from tests.daemon.echo_daemon import WORKER
from tests.daemon.harness import REAL_DAEMON, DaemonProcess, Frame, Raw, code, raw, texts, write_config
from tests.daemon.test_history import content, open_session, stored
from tests.daemon.test_store import anywhere, fill
from tests.daemon.test_streams import Lines, begin
from tests.waiting import soon


async def get(client: Raw, session: str) -> dict[str, Any]:
    found: dict[str, Any] = await client.result("get", "session/get", session=session)
    return found


async def ids(client: Raw, session: str) -> list[int]:
    return [message["id"] for message in (await get(client, session))["messages"]]


async def options_used(client: Raw, session: str) -> dict[str, Any]:
    answer = await client.call("options", "chat/send", session=session, content="options")
    used: dict[str, Any] = json.loads(answer["result"]["text"])
    return used


@pytest.mark.slow
async def test_a_session_keeps_and_uses_what_it_is_set_to(start: StartDaemon) -> None:
    async with raw(start()) as client:
        session = await open_session(client, options={"model": "a", "temperature": 0.1, "k": 3})
        used = await options_used(client, session)
        assert (used["model"], used["temperature"], used["k"]) == ("a", 0.1, 3)
        await client.call(1, "session/configure", session=session, options={"model": "b", "seed": 5})
        used = await options_used(client, session)
        assert (used["model"], used["seed"]) == ("b", 5) and "temperature" not in used and "k" not in used
        await client.call(2, "daemon/shutdown")
        await client.close_code()
    async with raw(start()) as client:
        assert (await options_used(client, session))["model"] == "b"
        assert (await get(client, session))["options"] == {"model": "b", "seed": 5}


async def test_what_cannot_be_set_changes_nothing(client: Raw) -> None:
    session = await open_session(client, options={"seed": 1})
    for options, error in (
        ({"model": "broken"}, "model_invalid"),
        ({"regex": "a", "choice": ["b"]}, "invalid_options"),
        ({"workspace": "relative"}, "invalid_options"),
    ):
        refused = await client.call(1, "session/configure", session=session, options=options)
        assert code(refused) == error
    assert (await get(client, session))["options"] == {"seed": 1}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["session/open", "session/configure"])
async def test_a_draft_stays_with_the_model_it_was_paired_with(
    own: DaemonProcess, home: Path, how: str
) -> None:
    """Named without a model, it went with the configured one; that may be another one later."""
    async with raw(own) as client:
        options: dict[str, Any] = {"draft": "small.gguf"} if how == "session/open" else {}
        session = await open_session(client, options=options)
        if how == "session/configure":
            options = {"draft": "small.gguf", "temperature": 0.5}
            await client.call(1, "session/configure", session=session, options=options)
    own.stop()
    again = DaemonProcess(home, options={"model": "another"})
    async with raw(again) as client:
        used = await options_used(client, session)
        assert (used["model"], used["draft"]) == ("bundled", "small.gguf")
        plain = await open_session(client)
        used = await options_used(client, plain)
        assert (used["model"], used["draft"]) == ("another", "auto")
        params = {"session": session, "content": "options", "options": {"model": "third"}}
        used = json.loads((await client.result(1, "chat/send", **params))["text"])
        assert (used["model"], used["draft"]) == ("third", "auto")
    assert again.stop() == 0


async def test_calls_and_their_results_stay_in_the_chat(client: Raw) -> None:
    tools = [{"name": "weather", "parameters": {"type": "object"}}]
    calls = [
        {"id": "call_1", "name": "weather", "arguments": '{"city": "Oslo"}'},
        {"id": "call_2", "name": "time", "arguments": "{}"},
    ]
    results = [
        {"role": "tool", "content": "", "tool_call_id": "call_1"},
        {"role": "tool", "content": "prompt", "tool_call_id": "call_2"},
    ]
    sent = [{key: each[key] for key in ("content", "tool_call_id")} for each in results]
    said: list[dict[str, Any]] = [
        {"role": "user", "content": "call"},
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
    ]
    session = await open_session(client)
    called = await client.result(1, "chat/send", session=session, content="call", tools=tools)
    assert called["finish_reason"] == "tool_calls" and called["tool_calls"] == calls
    for wrong in (sent[:1], sent[::-1]):
        refused = await client.call(2, "chat/results", session=session, results=wrong)
        assert code(refused) == "invalid_options" and "call_1, call_2" in refused["error"]["message"]
    answer = await client.result(3, "chat/results", session=session, results=sent, tools=tools)
    asked = {"type": "chat", "messages": said + results, "tools": tools, "parallel_tool_calls": False}
    assert json.loads(answer["text"]) == asked
    instead = await client.result(7, "chat/regenerate", session=session, instead="call", tools=tools)
    assert json.loads(instead["text"]) == asked | {"tool_choice": "required"}
    instead = await client.result(8, "chat/regenerate", session=session, instead="words")
    assert instead["text"].startswith('call weather {"city": "Oslo"} returned: time'), "the model echoes"
    answer = await client.result(9, "chat/regenerate", session=session, instead="call", tools=tools)
    assert code(await client.call(4, "chat/results", session=session, results=sent)) == "invalid_options"
    copy = (await client.result(5, "session/fork", session=session))["session"]
    again = json.loads((await client.result(6, "chat/send", session=copy, content="prompt"))["text"])
    said += [*results, {"role": "assistant", "content": answer["text"]}]
    assert again["messages"] == [*said, {"role": "user", "content": "prompt"}]
    stored = (await get(client, copy))["messages"][:5]
    assert [{key: each[key] for key in each if key in {*said[1], *results[0]}} for each in stored] == said
    # The results of an answer that is generated anew are dropped; without them, its calls are left out.
    question = stored[0]["id"]
    await client.result(7, "chat/regenerate", session=copy, message=question, tools=tools)
    again = json.loads((await client.result(8, "chat/send", session=copy, content="prompt"))["text"])
    assert again["messages"] == [
        *(said[0], {"role": "assistant", "content": "I look."}, {"role": "user", "content": "prompt"})
    ]


async def test_an_edit_waits_for_the_answer_that_streams(client: Raw, other: Raw) -> None:
    session = await open_session(client)
    await client.begin(1, "chat/send", session=session, content="stall")
    (question, answer) = await ids(client, session)
    await other.ask(1, "chat/edit", session=session, message=question, content="edited")
    await other.ask(2, "chat/regenerate", session=session, message=answer)
    await other.notice("stream/progress")
    assert [m["status"] for m in (await get(client, session))["messages"]] == ["complete", "streaming"]
    await client.cancel(1)
    assert (await other.response(1))["result"]["text"] == "edited "
    # Its answer is no longer there when its turn has come.
    assert code(await other.response(2)) == "message_not_found"
    assert await content(client, session) == [("user", "edited"), ("assistant", "edited ")]


@pytest.mark.parametrize("private", [False, True])
async def test_deleting_a_session_ends_its_answers(client: Raw, other: Raw, private: bool) -> None:
    session = await open_session(client, private=private)
    stream = await begin(client, session, "stall")
    await other.ask(1, "chat/send", session=session, content="waits for its turn")
    await other.notice("stream/progress")
    assert "result" in await other.call(2, "session/delete", session=session)
    for who in (client, other):
        assert (await who.response(1))["result"]["finish_reason"] == "cancelled"
    assert code(await other.call(3, "stream/resume", stream=stream)) == "gone"
    left = await other.call(4, "session/get", session=session)
    assert code(left) == "session_not_found"
    assert code(await other.call(5, "chat/send", session=session, content="x")) == "session_not_found"


async def test_a_copy_of_a_session_that_is_being_answered_has_what_is_stored(client: Raw) -> None:
    session = await open_session(client, system="be brief", options={"seed": 3})
    await begin(client, session, "stall")
    copy = (await client.result(2, "session/fork", session=session))["session"]
    found = await get(client, copy)
    assert [(m["role"], m["status"]) for m in found["messages"]] == [
        ("user", "complete"),
        ("assistant", "cancelled"),
    ]
    assert (found["system"], found["options"], found["title"]) == ("be brief", {"seed": 3}, "stall")
    await client.notify("$/cancelRequest", id=1)
    await client.response(1)
    assert len(await ids(client, session)) == 2


async def test_what_happens_to_a_session_is_reported(client: Raw, other: Raw) -> None:
    await subscribe(other)
    session = await open_session(client)
    await client.call(1, "session/rename", session=session, title="t")
    await client.call(2, "session/configure", session=session, options={"seed": 1})
    copy = (await client.result(3, "session/fork", session=session))["session"]
    await client.call(5, "session/delete", session=session)
    await other.call(1, "daemon/status")
    shown = [(e["session"], e["change"]) for e in events(other.seen)]
    changes = ["opened", "renamed", "changed", "deleted"]
    assert [change for who, change in shown if who == session] == changes
    assert [change for who, change in shown if who == copy] == ["opened"]


@pytest.mark.slow
async def test_of_a_private_session_nothing_is_on_disk_ever(start: StartDaemon, home: Path) -> None:
    """On the real daemon and model: no history, no memory, no log, at no time from its opening on."""
    marker = "zanzibarquux"
    daemon = start(command=REAL_DAEMON)
    async with raw(daemon) as client, raw(daemon) as other:
        await subscribe(other)
        session = await open_session(client, private=True, system=f"{marker} system")
        params = {"session": session, "options": {"max_tokens": 16, "temperature": 0}}
        said = f"{marker} " * 40
        first = await client.result(1, "chat/send", content=said, **params)
        assert anywhere(home, marker) == []
        (question, _) = await ids(client, session)
        await client.call(2, "chat/edit", message=question, content=f"{marker} edited", **params)
        await client.call(3, "chat/regenerate", **params)
        await client.call(4, "session/rename", session=session, title=f"{marker} title")
        copy = (await client.result(5, "session/fork", session=session))["session"]
        assert (await get(client, copy))["private"] is True
        assert anywhere(home, marker) == []
        for id in (session, copy):
            await client.call(6, "session/delete", session=id)
            assert code(await client.call(7, "session/get", session=id)) == "session_not_found"
        assert first["completion_tokens"] > 0
        assert (await client.result(8, "session/list", query=marker))["sessions"] == []
        await other.call(1, "daemon/status")
        assert events(other.seen) == []
        assert (await client.result(9, "memory/stats"))["tables"] == []
    assert daemon.stop() == 0, daemon.log()
    assert anywhere(home, marker) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_whenever_the_daemon_is_killed_every_question_is_kept(start: StartDaemon, seed: int) -> None:
    """And of the answers what was stored, about each second: a beginning of them."""
    chance = random.Random(seed)

    def check(found: list[tuple[str, str, str]], asked: list[str], restarted: bool = False) -> None:
        assert [text for role, text, _ in found if role == "user"] == asked
        assert [role for role, *_ in found] == ["user", "assistant"] * len(asked)
        for (_, question, _), (_, answer, status) in zip(found[::2], found[1::2], strict=True):
            whole = "x" * 60_000 if question.startswith("flood") else question + " "
            assert whole.startswith(answer)
            assert status in (("complete", "failed") if restarted else ("complete", "failed", "streaming"))
            assert status != "complete" or answer == whole

    session, asked = "", []
    for life in range(3):
        daemon = start()
        async with raw(daemon) as client:
            session = session or await open_session(client)
            for turn in range(chance.randrange(4)):
                asked.append(f"said {life} {turn}")
                await client.call(turn, "chat/send", session=session, content=asked[-1])
            if life and chance.random() < 0.5:
                place, deltas = chance.randrange(len(asked)), 1
                asked[place:] = [f"edited {life}"]
                message = (await ids(client, session))[2 * place]
                await client.ask("x", "chat/edit", session=session, message=message, content=asked[-1])
            else:
                asked.append("flood 20000 3")
                deltas = chance.randrange(1, 40)
                await client.ask("x", "chat/send", session=session, content=asked[-1])
            for _ in range(deltas):
                await client.notice("stream/delta")
            daemon.stop(signal.SIGKILL)
        check(stored(daemon), asked)
    async with raw(start()) as client:
        check([(m["role"], m["content"], m["status"]) for m in (await get(client, session))["messages"]],
              asked, restarted=True)  # fmt: skip
        assert "result" in await client.call(1, "chat/regenerate", session=session, options={"k": 2})


async def test_a_full_disk_takes_no_answer_from_its_reader(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(home))
    write_config(home)
    lines = Lines(home / "lines")
    lines.write("one")
    server, ready = DaemonServer(load_config(), WORKER, serve_http=serve_http), asyncio.Event()
    living = asyncio.create_task(server.run(ready.set))
    await soon(ready.wait())
    daemon = cast(DaemonProcess, SimpleNamespace(socket=str(home / "runtime" / "daemon.sock")))
    history = server._daemon.history
    async with raw(daemon) as client:
        await subscribe(client)
        session = await open_session(client)
        stream = await begin(client, session, f"lines {lines.path}")
        assert stream
        await fill(history)
        lines.write(*["y" * 4000] * 50)
        lines.end()
        result = (await client.response(1))["result"]
        assert (result["text"], result["finish_reason"]) == ("one" + "y" * 200_000, "stop")
        assert texts(client.seen, 1) == result["text"]
        changes = [event["change"] for event in events(client.seen)]
        assert changes == ["opened", "changed", "unsaved"]
        refused = await client.call(2, "chat/send", session=session, content="z" * 50_000)
        assert code(refused) == "disk_full" and "disk space" in refused["error"]["data"]["remedy"]
        await fill(history, pages=100_000)
        assert "result" in await client.call(3, "chat/send", session=session, content="there is room")
        statuses = [m["status"] for m in (await get(client, session))["messages"]]
        assert statuses == ["complete", "failed", "complete", "complete"]
        await client.call(4, "daemon/shutdown")
    await soon(living)


def events(frames: Sequence[Frame]) -> list[dict[str, Any]]:
    return [frame["params"] for frame in frames if frame.get("method") == "event"]


async def subscribe(client: Raw) -> None:
    assert await client.result("subscribe", "events/subscribe") == {}


async def test_events_of_chats_hold_no_text_and_private_chats_have_none(client: Raw, other: Raw) -> None:
    await subscribe(other)
    opened = []
    for private in (True, False):
        session = (await client.result(1, "session/open", private=private))["session"]
        await client.call(2, "chat/send", session=session, content="confidential")
        opened.append(session)
    await other.result("status", "daemon/status")
    told = events(other.seen)
    assert [event.pop("change") for event in told] == ["opened", "changed", "changed"]
    assert told == 3 * [{"kind": "session", "session": opened[1]}]
    assert events(client.seen) == []


async def test_edits_of_many_connections_leave_one_straight_history(daemon: DaemonProcess) -> None:
    async def one(session: str, seed: int) -> set[str]:
        chance, endings = random.Random(seed), set()
        async with raw(daemon) as client:
            for id in range(12):
                known = await ids(client, session)
                said: dict[str, Any] = {"content": f"said {seed} {id}"}
                message: dict[str, Any] = {"message": chance.choice(known or [1])}
                methods = {
                    "chat/send": said,
                    "chat/edit": said | message,
                    "chat/regenerate": message,
                    "session/fork": message,
                }
                method, params = chance.choice(list(methods.items()))
                answer = await client.call(id, method, session=session, **params)
                endings.add("ok" if "result" in answer else code(answer))
        return endings

    async with raw(daemon) as client:
        session = await open_session(client)
        endings = set().union(*await asyncio.gather(*(one(session, seed) for seed in range(6))))
        assert "ok" in endings and endings <= {"ok", "message_not_found", "invalid_options"}
        messages = (await get(client, session))["messages"]
        assert [m["role"] for m in messages] == ["user", "assistant"] * (len(messages) // 2)
        for question, answer in zip(messages[::2], messages[1::2], strict=True):
            assert answer["content"] == question["content"] + " "
            assert answer["status"] == question["status"] == "complete"
        assert [m["id"] for m in messages] == sorted({m["id"] for m in messages})
    assert "Traceback" not in daemon.log()
