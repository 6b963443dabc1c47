"""An editor's requests and the server's answers; the models behind the daemon are echoes."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcRequestCancelled

from localspec.client import Client, connect
from tests.daemon.harness import DaemonProcess
from tests.lsp.editor import AUTOMATIC, Editor, Writer, editing, texts
from tests.waiting import soon, until

URI = "file:///project/a.py"


@pytest.fixture(scope="module")
def writer(echo: DaemonProcess) -> Iterator[Writer]:
    writer = Writer()
    yield writer
    writer.end()


async def running(client: Client) -> int:
    """Running requests of clients in the daemon; it may also prefetch."""
    return (await client.status()).running


async def stalls(editor: Editor, client: Client, **more: Any) -> Any:
    """Request a completion that does not come, and wait until the daemon works on it."""
    editor.open(URI, "stall")
    asked = editor.ask(URI, (0, 5), trigger=AUTOMATIC, **more)
    while not await running(client):
        pass
    return asked


async def suggestions(client: Client, event: str) -> float:
    return (await client.metrics()).totals.get(f'localspec_suggestions_total{{event="{event}"}}', 0.0)


async def chars(client: Client) -> float:
    return (await client.metrics()).totals["localspec_accepted_chars_total"]


@pytest.mark.slow
async def test_what_it_can_do(fresh: Path) -> None:
    editor = Editor()
    general = types.GeneralClientCapabilities(position_encodings=["utf-7"])
    began = await editor.begin(None, {"general": general}, {"enabled": False})
    found = began.capabilities
    assert found.position_encoding == "utf-16"
    assert found.inline_completion_provider == types.InlineCompletionOptions()
    sync = found.text_document_sync
    assert isinstance(sync, types.TextDocumentSyncOptions)
    assert sync.change is types.TextDocumentSyncKind.Incremental and sync.open_close
    assert found.execute_command_provider is not None
    assert "localspec.primeWorkspace" in found.execute_command_provider.commands
    assert await editor.end() == (0, "")


@pytest.mark.slow
async def test_positions_are_in_the_encoding_that_was_agreed_on(echo: DaemonProcess) -> None:
    general = types.GeneralClientCapabilities(position_encodings=["utf-8"])
    async with editing(general=general) as editor:
        editor.open(URI, "# 😋\r\n😋 wor\r\nend\r\n")
        editor.change(URI, (1, 4), (1, 5), "漢 ")
        editor.change(URI, (1, 11), (1, 11), "d")
        items = await editor.complete(URI, (1, 12))
        assert texts(items) == ["😋漢 word"]
        place = types.Position(1, 12)
        assert items[0].range == types.Range(place, place)


async def test_a_request_that_is_cancelled_ends_in_the_daemon(writer: Writer) -> None:
    editor = writer.editor
    async with await connect() as client:
        asked = await stalls(editor, client, id="it")
        before = (await client.metrics()).totals
        editor.client.cancel_request(types.CancelParams("it"))
        with pytest.raises(JsonRpcRequestCancelled):
            await soon(asked)
        while await running(client):
            pass
        after = (await client.metrics()).totals
        key = 'localspec_requests_total{ending="cancelled",method="completion/inline"}'
        assert after.get(key, 0) == before.get(key, 0) + 1, after


async def test_text_around_a_resting_cursor_is_read_where_the_user_edits(writer: Writer) -> None:
    editor = writer.editor

    async def until(warmed: int) -> None:
        found = 0.0
        while found < warmed:
            totals = (await client.metrics()).totals
            found = sum(totals[key] for key in totals if "completion/warm" in key)
        assert found == warmed

    async with await connect() as client:
        writer.configure()
        editor.open(URI, "line\n" * 200)
        for line in (3, 3, 100, -1, "3"):
            place = {"textDocument": {"uri": URI}, "position": {"line": line, "character": 0}}
            editor.client.protocol.notify("localspec/didRest", place)
            if line == 3:
                editor.change(URI, (0, 0), (0, 0), "x")
        await until(2)
        await editor.complete(URI, (0, 5))
        await until(2)


async def test_a_newer_request_takes_the_place_of_the_older(writer: Writer) -> None:
    editor = writer.editor
    async with await connect() as client:
        asked = await stalls(editor, client)
        editor.change(URI, (0, 0), (0, 5), "newer")
        assert texts(await editor.complete(URI, (0, 5), trigger=AUTOMATIC)) == ["newer"]
        assert await soon(asked) is None


async def test_an_answer_to_what_was_written_before_is_not_given(writer: Writer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    editor = writer.editor
    writer.configure(maxMs=600_000)
    os.mkfifo(gate)
    editor.open(URI, f"await {gate}")
    asked = editor.ask(URI, (0, len(f"await {gate}")), trigger=AUTOMATIC)
    with await soon(asyncio.to_thread(gate.open, "w")):  # once the model reads it
        editor.change(URI, (0, 0), (0, 0), "x")
        await editor.do("localspec.accepted")  # whose answer follows what the server made of the change
    assert await soon(asked) is None


async def test_a_request_is_about_the_text_at_its_arrival(writer: Writer) -> None:
    """Also where it arrives in one piece with the change behind it."""
    editor, server = writer.editor, psutil.Process(writer.editor.pid)
    server.suspend()
    try:
        await until(lambda: server.status() == psutil.STATUS_STOPPED, "it is stopped")
        editor.open(URI, "word")
        asked = editor.ask(URI, (0, 4), trigger=AUTOMATIC)
        editor.change(URI, (0, 0), (0, 0), "x")
    finally:
        server.resume()
    # None: the change was read before the model's answer came.
    assert (answer := await soon(asked)) is None or answer.items[0].insert_text == "word"


async def test_what_becomes_of_items_is_counted(writer: Writer) -> None:
    editor = writer.editor
    async with await connect() as client:
        events = ("shown", "accepted", "partial", "dismissed")
        shown, accepted, partial, dismissed = [await suggestions(client, event) for event in events]
        taken = await chars(client)
        editor.open(URI, "é😋xy\n")
        (item,) = await editor.complete(URI, (0, 5), trigger=AUTOMATIC)
        assert item.insert_text == "é😋xy" and item.command is not None
        notify = editor.client.protocol.notify
        notify("textDocument/didShowCompletion", {"item": item})
        part = {"item": item, "acceptedLength": 3}  # of UTF-16
        notify("textDocument/didPartiallyAcceptCompletion", part)

        async def counted(event: str, number: float) -> None:
            while await suggestions(client, event) != number:
                pass

        await counted("shown", shown + 1)
        await counted("partial", partial + 1)
        assert await chars(client) == taken + 2
        await editor.do(item.command.command, *(item.command.arguments or ()))
        await counted("accepted", accepted + 1)
        assert await chars(client) == taken + 4
        (other,) = await editor.complete(URI, (0, 5), trigger=AUTOMATIC)
        notify("textDocument/didShowCompletion", {"item": other})
        editor.change(URI, (0, 5), (0, 5), "else")
        await editor.complete(URI, (0, 9), trigger=AUTOMATIC)
        await counted("dismissed", dismissed + 1)
        for odd in (None, {}, {"item": 1}, {"item": item, "acceptedLength": "x"}):
            notify("textDocument/didPartiallyAcceptCompletion", odd)
        await editor.complete(URI, (0, 9), trigger=AUTOMATIC)
        assert await suggestions(client, "partial") == partial + 1


async def prompt(editor: Editor, uri: str = URI) -> dict[str, Any]:
    """Return the prompt that the model gets for a completion at the end of the text."""
    document = "prompt"
    editor.open(uri, document)
    (item,) = await editor.complete(uri, (0, len(document)), trigger=AUTOMATIC)
    received: dict[str, Any] = json.loads(str(item.insert_text))
    return received


async def test_other_files_are_given_newest_first(writer: Writer) -> None:
    editor = writer.editor
    writer.configure(excludedLanguages=["text"])
    for name in ("b.py", "c.py", ".env"):
        editor.open(f"file:///project/{name}", "".join(f"{name} {line}\n" for line in range(100)))
    editor.open("file:///project/no.txt", "no", "text")
    editor.change("file:///project/b.py", (99, 0), (99, 1), "e")
    received = await prompt(editor)
    assert [(file["path"], file["text"].partition("\n")[0]) for file in received["extra"]] == [
        ("/project/b.py", "b.py 64"),
        ("/project/c.py", "c.py 0"),
        ("/project/b.py", "b.py 0"),
    ]
    assert received["path"] == "/project/a.py" and received["language"] == "python"
    focus = {"textDocument": {"uri": "file:///project/c.py"}}
    editor.client.protocol.notify("textDocument/didFocus", focus)
    received = await prompt(editor, "file:///project/d.py")
    assert received["extra"][0]["path"] == "/project/c.py"


async def test_what_the_menu_offers_is_the_beginning(writer: Writer) -> None:
    editor = writer.editor
    editor.open(URI, "x\npri = 1")
    place = types.Range(types.Position(1, 0), types.Position(1, 3))
    selected = types.SelectedCompletionInfo(place, "print")
    items = await editor.complete(URI, (1, 3), selected=selected)
    assert texts(items) == ["printprint"] and items[0].range == place
    above = types.Range(types.Position(0, 0), types.Position(0, 1))
    elsewhere = types.SelectedCompletionInfo(above, "print")
    assert texts(await editor.complete(URI, (1, 3), selected=elsewhere)) == ["pri"]


async def test_nothing_is_sent_of_what_is_excluded(writer: Writer) -> None:
    editor = writer.editor
    writer.configure(excludedLanguages=["text"], automatic=False)
    for uri, language in (("file:///.env", "sh"), ("file:///a.txt", "text"), ("git:/a.py", "python")):
        editor.open(uri, "word", language)
        assert await editor.complete(uri, (0, 4)) == []
        for there, kind in ((uri, "Inactive"), ("file:///other.py", "Normal")):
            editor.client.protocol.notify("textDocument/didFocus", {"textDocument": {"uri": there}})
            await until(lambda kind=kind: [kind] == [each["kind"] for each in editor.states[-1:]], kind)  # type: ignore[misc]
    editor.open(URI, "word")
    assert await editor.complete(URI, (0, 4), trigger=AUTOMATIC) == []
    assert texts(await editor.complete(URI, (0, 4))) == ["word"]
    writer.configure(enabled=False)
    assert await editor.complete(URI, (0, 4)) == []
    assert editor.states[-1] == {"busy": False, "message": "off", "kind": "Inactive"}


async def test_odd_places_and_texts(writer: Writer) -> None:
    editor = writer.editor
    writer.configure()
    assert await editor.complete("file:///never.py", (0, 0)) == []
    editor.change("file:///never.py", (0, 0), (0, 0), "x")
    editor.open(URI, "one\nword\n")
    assert texts(await editor.complete(URI, (1, 2**31 - 1))) == ["word"]
    editor.changes(URI, [types.TextDocumentContentChangeWholeDocument("x = 1\n" * 200_000 + "huge")])
    assert texts(await editor.complete(URI, (10**9, 0))) == ["huge"]
    editor.changes(URI, [types.TextDocumentContentChangeWholeDocument("x" * 5_000_000 + " huge")])
    assert len(texts(await editor.complete(URI, (0, 10**9)))) == 1
    assert editor.said == []


async def test_wrong_settings_are_named(writer: Writer) -> None:
    editor = writer.editor
    writer.configure(maxms=1, enabled=7)
    await editor.hears("maxms", "did you mean 'maxMs'?")
    await editor.hears("enabled", "bool")
    editor.open(URI, "word")
    assert texts(await editor.complete(URI, (0, 4))) == ["word"]


async def test_an_error_is_shown_once_with_its_remedy(writer: Writer) -> None:
    editor = writer.editor
    writer.configure(model="broken")
    editor.open(URI, "word")
    for _ in range(2):
        assert await editor.complete(URI, (0, 4)) == []
    (said,) = editor.said
    assert said.startswith("localspec: this model is broken. ")
    assert editor.states[-1]["kind"] == "Error"
    writer.configure()
    assert texts(await editor.complete(URI, (0, 4))) == ["word"]
    assert editor.states[-1]["kind"] == "Normal" and editor.said == []


@pytest.mark.slow
async def test_a_model_that_is_loaded_is_shown(echo: DaemonProcess, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    window = types.WindowClientCapabilities(work_done_progress=True)
    async with editing(options={"model": f"gate:{gate}", "maxMs": 1000}, window=window) as editor:
        editor.open(URI, "word")
        asked = editor.ask(URI, (0, 4))
        await until(lambda: len(editor.progress) >= 2, "progress is shown")
        begin, report = editor.progress[:2]
        assert begin["kind"] == "begin" and begin["title"] == f"Loading gate:{gate}"
        assert (report["percentage"], report["message"]) == (50, "weights")
        assert editor.states[-1]["message"] == f"loading gate:{gate} 50%" and editor.states[-1]["busy"]
        await asyncio.sleep(1.2)  # longer than a completion may take
        gate.write_text("go")
        assert texts((await soon(asked)).items) == ["word"]
        await until(lambda: editor.progress[-1]["kind"] == "end", "it ends")
