"""Requests that run: streamed, cancelled, timed out, replaced."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from tests.daemon.conftest import StartDaemon
from tests.daemon.handshake import masked, request, text_frame
from tests.daemon.harness import INITIALIZE, DaemonProcess, code, raw, texts
from tests.waiting import run, until


def test_streams_the_text_and_ends_with_it(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            result = (await client.call(1, "generate", prompt="one two three"))["result"]
            assert result["text"] == "one two three " == texts(client.seen, 1)
            assert result["finish_reason"] == "stop"
            stages = [f["params"]["stage"] for f in client.seen if f.get("method") == "stream/progress"]
            assert stages == ["queued", "prefill"]

    run(test())


def test_a_prompt_goes_through_the_template_unless_raw(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            chat = {"type": "chat", "messages": [{"role": "user", "content": "prompt"}]}
            for params, expected in (
                ({"prompt": "prompt"}, chat),
                ({"messages": chat["messages"]}, chat),
                ({"prompt": "prompt", "raw": True}, {"type": "text", "text": "prompt"}),
                (
                    {"prompt": "prompt", "variables": {"enable_thinking": False}},
                    {**chat, "variables": {"enable_thinking": False}},
                ),
                (
                    {"messages": [{"role": "assistant", "content": "prompt"}], "prefilled": True},
                    {
                        "type": "chat",
                        "messages": [{"role": "assistant", "content": "prompt"}],
                        "prefilled": True,
                    },
                ),
            ):
                result = (await client.call(1, "generate", **params))["result"]
                assert json.loads(result["text"]) == expected

    run(test())


def test_tokens_go_as_they_are_and_one_kind_of_prompt_is_given(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            assert (await client.call(1, "generate", tokens=[3, 1]))["result"]["text"] == "3 1 "
            for params in (
                {"tokens": [1], "prompt": "x"},
                {},
                {"messages": [{"role": "user", "content": "x"}], "prefilled": True},
            ):
                assert code(await client.call(2, "generate", **params)) == "invalid_options"

    run(test())


@pytest.mark.parametrize(
    "params", [{"prompt": "x", "variables": {"a": [10**30]}}, {"tokens": [10**30]}, {"tokens": [2**31]}]
)
def test_numbers_that_no_frame_can_hold_are_refused(daemon: DaemonProcess, params: dict[str, object]) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            answer = await client.call(1, "generate", **params)
            assert answer["error"]["code"] in (-32000, -32602), answer
            status = (await client.call(2, "daemon/status"))["result"]
            assert status["running"] == 0

    run(test())


def test_options_are_merged_over_the_configuration(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            wanted = {"seed": 7, "max_tokens": 9, "draft": "none"}
            result = (await client.call(1, "generate", prompt="options", options=wanted))["result"]
            expected = {"model": "bundled", "proposer": "auto", "backend": "auto", **wanted}
            assert json.loads(result["text"]) == expected

    run(test())


def test_cancel_is_a_result_and_the_only_one(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            await client.ask(1, "generate", prompt="stall")
            await client.notice("stream/delta")
            for _ in range(3):
                await client.notify("$/cancelRequest", id=1)
            result = (await client.response(1))["result"]
            assert (result["finish_reason"], result["text"]) == ("cancelled", "stalling")
            client.seen.clear()
            await client.call(2, "generate", prompt="hello")
            assert [f for f in client.seen if f.get("id") == 1] == []
            assert texts(client.seen, 1) == ""

    run(test())


def test_a_request_can_be_cancelled_before_its_model_is_loaded(daemon: DaemonProcess, tmp_path: Path) -> None:
    async def test() -> None:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        options = {"model": f"gate:{gate}"}
        async with raw(daemon) as client:
            await client.ask(1, "generate", prompt="hello", options=options)
            await client.ask(2, "generate", prompt="hello", options=options)
            await client.notice("model/progress")
            await client.notify("$/cancelRequest", id=1)
            result = (await client.response(1))["result"]
            assert (result["finish_reason"], result["text"]) == ("cancelled", "")
            gate.write_text("open")
            assert (await client.response(2))["result"]["text"] == "hello "

    run(test())


def test_the_deadline_counts_the_load(daemon: DaemonProcess, tmp_path: Path) -> None:
    async def test() -> None:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        async with raw(daemon) as client:
            slow = {"model": f"gate:{gate}"}
            params = {"prefix": "x", "suffix": "", "max_ms": 50, "options": slow}
            result = (await client.call(1, "completion/inline", **params))["result"]
            assert (result["items"], result["result"]["finish_reason"]) == ([], "deadline")
            result = (await client.call(2, "completion/inline", prefix="max_ms", suffix="", max_ms=60_000))[
                "result"
            ]
            assert 50_000 < int(result["items"][0]["text"]) <= 60_000
            slowly = params | {"max_ms": 60_000, "max_prompt_ms": 50}
            result = (await client.call(3, "completion/inline", **slowly))["result"]
            assert (result["items"], result["result"]["finish_reason"]) == ([], "deadline")
            limits = {"suffix": "", "max_prompt_ms": 60_000, "max_predict_ms": 7}
            told = [
                (await client.call(id, "completion/inline", prefix=prefix, **limits))["result"]["items"]
                for id, prefix in ((4, "max_prompt_ms"), (5, "max_predict_ms"))
            ]
            prompt_ms, predict_ms = (int(item["text"]) for (item,) in told)
            assert 50_000 < prompt_ms <= 60_000 and predict_ms == 7
            gate.write_text("open")

    run(test())


def test_completions_come_whole(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            params = {
                "prefix": "prompt",
                "suffix": "b",
                "path": "x.py",
                "extra": [{"path": "y", "text": "z"}],
            }
            result = (await client.call(1, "completion/inline", **params))["result"]
            (item,) = result["items"]
            assert json.loads(item["text"]) == {
                "type": "fim",
                "language": None,
                "multiline": True,
                "invoked": False,
                "tidy": True,
                **params,
            }
            assert texts(client.seen, 1) == ""
            several = {"prefix": "options", "suffix": "", "n": 3, "options": {"temperature": 1, "seed": 5}}
            items = (await client.call(2, "completion/inline", **several))["result"]["items"]
            assert {json.loads(item["text"])["seed"] for item in items} == {5, 6, 7}
            assert len({item["id"] for item in items}) == 3

    run(test())


def test_a_newer_completion_for_a_path_replaces_the_older(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client, raw(daemon) as other:
            await other.ask(1, "completion/inline", prefix="stall", suffix="", path="a.py")
            await client.ask(1, "completion/inline", prefix="stall", suffix="", path="a.py")
            await client.ask(2, "completion/inline", prefix="stall", suffix="", path="b.py")
            await client.ask(3, "completion/inline", prefix="new", suffix="", path="a.py")
            replaced = (await client.response(1))["result"]
            assert replaced["result"]["finish_reason"] == "cancelled"
            assert (await client.response(3))["result"]["items"][0]["text"] == "new"
            assert (await client.call(4, "daemon/status"))["result"]["running"] == 2

    run(test())


def test_failures_and_degradation_are_told(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            assert code(await client.call(1, "generate", prompt="fail")) == "out_of_memory"
            client.seen.clear()
            assert "result" in await client.call(2, "generate", prompt="degrade")
            (degraded,) = [f for f in client.seen if f.get("method") == "speculation/degraded"]
            assert degraded["params"] == {
                "request": 2,
                "from": "draft",
                "to": "prompt-lookup",
                "reason": "the draft is slow",
            }

    run(test())


def test_a_lost_client_takes_its_requests_along(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as watcher:
            async with raw(daemon) as client:
                await client.ask(1, "generate", prompt="stall")
                await client.notice("stream/delta")
                client.socket.transport.abort()
            running = 1
            while running:
                running = (await watcher.call(2, "daemon/status"))["result"]["running"]

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("prompt", ["stall", "flood 100000000 100"])
def test_a_client_that_says_goodbye_and_stays_is_cut_off(daemon: DaemonProcess, prompt: str) -> None:
    async def test() -> None:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.connect(daemon.socket)
            wire.sendall(request({}) + text_frame(1, "initialize", **INITIALIZE))
            wire.sendall(text_frame(2, "generate", prompt=prompt))
            async with raw(daemon) as watcher:
                status = (await watcher.call(1, "daemon/status"))["result"]
                while status["running"] != 1:
                    status = (await watcher.call(1, "daemon/status"))["result"]
                wire.sendall(masked(8, b"\x03\xe8"))
                said = time.monotonic()
                while status["running"] or status["connections"] != 1:
                    status = (await watcher.call(1, "daemon/status"))["result"]
                assert time.monotonic() - said < 1

    run(test())


def test_models_are_listed_with_what_is_loaded(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            await client.call(
                1, "generate", prompt="x", options={"model": "stdlib-1m", "backend": "llama_cpp"}
            )
            models = (await client.call(2, "models/list"))["result"]["models"]
            assert [(m["id"], m["loaded"]) for m in models] == [("stdlib-6m", False), ("stdlib-1m", True)]
            options = {"model": models[0]["path"], "backend": "llama_cpp", "draft": "none"}
            await client.call(3, "generate", prompt="x", options=options)
            models = (await client.call(4, "models/list"))["result"]["models"]
            assert [m["id"] for m in models if m["loaded"]] == ["stdlib-6m", "stdlib-1m"]

    run(test())


@pytest.mark.slow
def test_metrics_count_requests_and_tokens(start: StartDaemon) -> None:
    async def test() -> None:
        async with raw(start()) as client:
            await client.call(1, "generate", prompt="one two")
            await client.call(2, "generate", prompt="fail")
            await client.call(3, "no/such")
            metrics = (await client.call(4, "metrics"))["result"]
            totals = metrics["totals"]
            assert totals['localspec_requests_total{ending="stop",method="generate"}'] == 1
            assert totals['localspec_requests_total{ending="out_of_memory",method="generate"}'] == 1
            assert totals['localspec_requests_total{ending="-32601",method="refused"}'] == 1
            assert totals['localspec_tokens_total{kind="completion"}'] == 2
            assert totals['localspec_accepted_tokens_total{proposer="prompt-lookup"}'] == 3
            assert totals["localspec_connections"] == 1
            assert 'localspec_tokens_total{kind="completion"} 2.0' in metrics["prometheus"]

    run(test())


@pytest.mark.slow
def test_logs_hold_no_prompt_and_no_answer(start: StartDaemon) -> None:
    async def test() -> None:
        daemon = start()
        async with raw(daemon) as client:
            for prompt in ("confidential fail", "kill confidential", "confidential"):
                await client.call(1, "generate", prompt=prompt)
            await client.call(2, "generate", prompt="confidential", options={"k": "confidential"})
        await until(lambda: "worker" in daemon.log(), "something is logged")
        assert "confidential" not in daemon.log()

    run(test())
