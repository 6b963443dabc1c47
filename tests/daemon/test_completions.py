"""Completions through a real daemon: known ones, looked ahead, warmed, replaced, and what became of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import localspec
from localspec.daemon.editors import MOST
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import REAL_DAEMON, DaemonProcess, Raw, code, raw
from tests.models.ggufs import small
from tests.waiting import until

SOURCES = {
    source: f'localspec_completions_total{{source="{source}"}}'
    for source in ("model", "cache", "type-through")
}


class Editor:
    """A client that requests completions in one file."""

    def __init__(self, client: Raw, path: str | None = "a.py", **more: Any) -> None:
        self.client, self.path, self.more = client, path, more
        self.id = 100

    async def complete(self, prefix: str, suffix: str = "", **more: Any) -> Any:
        return await self.call("completion/inline", prefix=prefix, suffix=suffix, **{**self.more, **more})

    async def call(self, method: str, **params: Any) -> Any:
        self.id += 1
        if self.path is not None and method != "completion/feedback":
            params["path"] = self.path
        return await self.client.result(self.id, method, **params)

    async def totals(self) -> dict[str, float]:
        found: dict[str, float] = (await self.client.result("metrics", "metrics"))["totals"]
        return found

    async def idle(self) -> None:
        """Wait until no worker is at work, on what was looked ahead either."""
        while True:
            status = await self.client.result("status", "daemon/status")
            if not any(model["running"] for model in status["models"]):
                return


def text(completions: Any) -> str:
    return "".join(item["text"] for item in completions["items"])


async def test_a_known_completion_is_answered_without_the_worker(client: Raw) -> None:
    editor = Editor(client, "known.py")
    first = await editor.complete("one two")
    before = await editor.totals()
    again, typed = await editor.complete("one two"), await editor.complete("one twoone")
    assert [each["source"] for each in (first, again, typed)] == ["model", "cache", "type-through"]
    assert [text(each) for each in (first, again, typed)] == ["one two", "one two", " two"]
    assert typed["result"]["text"] == " two" and typed["result"]["prompt_tokens"] == 0
    assert len({each["items"][0]["id"] for each in (first, again, typed)}) == 3
    totals = await editor.totals()
    more = {source: totals[name] - before.get(name, 0) for source, name in SOURCES.items()}
    assert more == {"model": 0, "cache": 1, "type-through": 1}
    assert (await editor.complete("one two", "\nother"))["source"] == "model"


async def test_looking_ahead_is_done_in_the_background_and_asking_is_not(client: Raw) -> None:
    editor = Editor(client, "background.py")
    assert text(await editor.complete("x\npriority")) == "completion"
    assert text(await editor.complete("x\nthen priority")) == "\npriority"
    ahead = await editor.complete("x\nthen priority\npriority")
    assert (ahead["source"], text(ahead)) == ("cache", "background")


@pytest.mark.slow
async def test_what_is_looked_ahead_ends_when_something_else_is_typed_or_the_model_unloaded(
    alone: Raw,
) -> None:
    editor = Editor(alone)
    assert text(await editor.complete("then stall")) == "\nstall"
    # While it is typed along, the work goes on: it serves a user who types to the end.
    assert text(await editor.complete("then stall\nst")) == "all"
    status = await alone.result(1, "daemon/status")
    assert (status["running"], status["models"][0]["running"]) == (0, 1)
    other = Editor(alone, "b.py")
    assert text(await other.complete("b")) == "b"
    assert (await alone.result(2, "daemon/status"))["models"][0]["running"] >= 1
    assert text(await editor.complete("other")) == "other"
    await editor.idle()
    assert text(await editor.complete("then stall")) == "\nstall"
    assert (await alone.result(3, "models/unload"))["models"] == ["bundled"]


@pytest.mark.slow
async def test_only_so_many_questions_are_looked_ahead_for_at_once(alone: Raw) -> None:
    for number in range(2 * MOST):
        assert text(await Editor(alone, f"{number}.py").complete("then stall")) == "\nstall"
    running = MOST + 1
    while running != MOST:  # a cancelled one ends, and the last one begins, in a moment
        status = await alone.result("status", "daemon/status")
        running = status["models"][0]["running"]
    await Editor(alone, f"{2 * MOST - 1}.py").complete("other")
    assert (await alone.result(1, "daemon/status"))["models"][0]["running"] <= MOST


async def test_a_known_answer_ends_what_was_looked_ahead_for_another(client: Raw) -> None:
    editor = Editor(client, "known.py")
    for _ in range(2):
        assert text(await editor.complete("one")) == "one"
        assert (await editor.complete("oneone"))["source"] == "cache"
        await editor.idle()
        assert text(await editor.complete("then stall")) == "\nstall"
    assert (await editor.complete("one"))["source"] == "cache"
    await editor.idle()


async def test_a_client_that_goes_takes_along_what_was_looked_ahead(daemon: DaemonProcess) -> None:
    async with raw(daemon) as watcher:
        async with raw(daemon) as client:
            assert text(await Editor(client, "gone.py").complete("then stall")) == "\nstall"
        await Editor(watcher).idle()


async def test_a_cancelled_one_is_neither_kept_nor_looked_ahead(client: Raw) -> None:
    editor = Editor(client, "c.py")
    for id in (1, 2):
        await client.ask(id, "completion/inline", prefix="stall", suffix="", path="c.py")
    replaced = (await client.response(1))["result"]
    assert (replaced["items"], replaced["result"]["finish_reason"]) == ([], "cancelled")
    assert text(await editor.complete("new")) == "new"
    assert (await client.response(2))["result"]["source"] == "model"


async def test_a_warm_prompt_gives_way_to_a_completion(client: Raw) -> None:
    await client.ask(1, "completion/warm", prefix="stall", suffix="", path="warm.py")
    assert text(await Editor(client, "warm.py").complete("now")) == "now"
    assert "result" in await client.response(1)


async def test_feedback_is_counted(alone: Raw) -> None:
    editor = Editor(alone)
    (item,) = (await editor.complete("one two"))["items"]
    for event, chars in (("shown", None), ("partial", 3), ("partial", 3), ("accepted", None)):
        more = {} if chars is None else {"chars": chars}
        await editor.call("completion/feedback", item=item["id"], event=event, **more)
    (other,) = (await editor.complete("three"))["items"]
    await editor.call("completion/feedback", item=other["id"], event="dismissed")
    totals = await editor.totals()
    counted = {
        event: totals[f'localspec_suggestions_total{{event="{event}"}}']
        for event in ("shown", "partial", "accepted", "dismissed")
    }
    assert counted == {"shown": 1, "partial": 2, "accepted": 1, "dismissed": 1}
    assert totals["localspec_accepted_chars_total"] == len("one two")


@pytest.mark.slow
async def test_a_real_model_completes_looks_ahead_and_reads_little_again(
    home: Path, start: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundled pair, end to end."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(home))
    with localspec.load("bundled", memory=True) as engine:
        while engine.rest():
            pass  # what a daemon finds out while no request waits: short pieces are exact with this model
    real = start(command=REAL_DAEMON)
    async with raw(real) as client:
        # Sampled, because so small a model is unsure at once.
        options = {"max_tokens": 24, "remember": False, "temperature": 0.2, "seed": 1}
        editor = Editor(client, str(home / "a.py"), options=options)
        warmed = await editor.call(
            "completion/warm", prefix="def fib(n):\n    ", suffix="\n\nprint(fib(10))", options=options
        )
        assert warmed["reprefilled_tokens"] == warmed["prompt_tokens"] > 10
        first = await editor.complete("def fib(n):\n    ", "\n\nprint(fib(10))")
        said = text(first)
        assert said == said.rstrip() and first["source"] == "model"
        assert 0 < first["reprefilled_tokens"] <= 2, "what was warmed is not read again"
        typed = await editor.complete("def fib(n):\n    " + said[:2], "\n\nprint(fib(10))")
        assert (typed["source"], text(typed)) == ("type-through", said[2:])
        accepted = await editor.complete("def fib(n):\n    " + said, "\n\nprint(fib(10))")
        assert accepted["source"] == "cache"
        other = await editor.complete("def fib(n):\n    x", "\n\nprint(fib(10))")
        assert other["source"] == "model"
        assert other["reprefilled_tokens"] <= 4, "what was looked ahead and cancelled left its prompt"
        hurried = await editor.complete("def fib(n):\n    y = ", "\n", max_ms=1)
        assert hurried["items"] == [] and hurried["result"]["finish_reason"] == "deadline"


@pytest.mark.slow
async def test_without_a_temperature_only_the_first_of_several_is_as_certain_as_was_asked_for(
    real: DaemonProcess,
) -> None:
    async with raw(real) as client:
        editor = Editor(client, None, trigger="invoked", options={"max_tokens": 16, "remember": False})
        prefix = "import os\n\n\ndef read(path):\n    "
        (one,) = (await editor.complete(prefix))["items"]
        several = await editor.complete(prefix, n=4)
        texts = [item["text"] for item in several["items"]]
        assert texts[0] == one["text"] and len(set(texts)) == len(texts) > 1
        assert [item["text"] for item in (await editor.complete(prefix, n=4))["items"]] == texts


async def test_of_several_one_that_fails_ends_the_others(client: Raw) -> None:
    options = {"temperature": 0.8, "seed": 2}
    refused = await client.call(1, "completion/inline", prefix="odd", suffix="", n=4, options=options)
    assert code(refused) == "out_of_memory"
    await Editor(client).idle()


@pytest.mark.slow
async def test_what_is_accepted_is_learnt_by_whatever_name_the_model_was_loaded(
    start: StartDaemon, home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "one.gguf"
    file.write_bytes(small())
    async with raw(start()) as client:
        await client.call(1, "models/load", model=str(file))
        model = {"model": f"{tmp_path}/./one.gguf"}
        editor = Editor(client, "/a.py", options=model)
        taught = home / "cache" / "taught"
        (private,) = (await editor.complete("two three", options={**model, "remember": False}))["items"]
        await editor.call("completion/feedback", item=private["id"], event="accepted")
        await client.call(3, "generate", prompt="hello", options=model)
        assert not taught.exists(), "the worker, which does one thing after another, did not get it"
        (item,) = (await editor.complete("x = 1\none two"))["items"]
        await editor.call("completion/feedback", item=item["id"], event="accepted")
        await until(lambda: taught.exists() and taught.read_text() != "", "it was taught")
        assert taught.read_text() == "x = 1\none twoone two"
        assert len((await client.result(2, "daemon/status"))["models"]) == 1


@pytest.mark.slow
async def test_while_a_question_waits_a_newer_one_spares_the_model(client: Raw) -> None:

    async def ask(id: int, prefix: str, **more: object) -> None:
        await client.ask(id, "completion/inline", prefix=prefix, suffix="", path="pace.py", **more)

    async def at_work() -> bool:
        status = await client.result("status", "daemon/status")
        return any(model["running"] for model in status["models"])

    async def at_work_when_replaced(id: int, after_s: float) -> bool:
        await ask(id, f"{id}\nstall")
        began, start = False, time.monotonic()
        while time.monotonic() - start < after_s:
            began = began or await at_work()
        await ask(id + 1, f"newer {id}", trigger="invoked")
        assert (await client.response(id))["result"]["result"]["finish_reason"] == "cancelled"
        assert (await client.response(id + 1))["result"]["items"]
        return began

    await ask(1, "loaded")
    assert (await client.response(1))["result"]["items"]
    assert await at_work_when_replaced(2, after_s=1.0), "the first is begun at once"
    # This model is known to be slow now. A machine that sleeps in between is given another chance.
    assert any([not await at_work_when_replaced(id, after_s=0.1) for id in range(4, 14, 2)])
    # A request with a short deadline does not wait until it.
    await ask(20, "20\nword", max_ms=250)
    assert (await client.response(20))["result"]["items"]
