"""Requests that run: streamed, cancelled, timed out, replaced; tokens of texts."""

from __future__ import annotations

import base64
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import localspec
from tests.daemon.handshake import masked, request, text_frame
from tests.daemon.harness import INITIALIZE, DaemonProcess, Raw, code, raw, texts
from tests.waiting import until


async def test_a_prompt_goes_through_the_template_unless_raw(client: Raw) -> None:
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
            {"type": "chat", "messages": [{"role": "assistant", "content": "prompt"}], "prefilled": True},
        ),
    ):
        result = await client.result(1, "generate", **params)
        assert json.loads(result["text"]) == expected


async def test_tokens_go_as_they_are_and_one_kind_of_prompt_is_given(client: Raw) -> None:
    assert (await client.result(1, "generate", tokens=[3, 1]))["text"] == "3 1 "
    wrong: tuple[dict[str, Any], ...] = (
        {"tokens": [1], "prompt": "x"},
        {"messages": []},
        {},
        {"messages": [{"role": "user", "content": "x"}], "prefilled": True},
    )
    for params in wrong:
        assert code(await client.call(2, "generate", **params)) == "invalid_options"


@pytest.mark.parametrize(
    "params", [{"prompt": "x", "variables": {"a": [10**30]}}, {"tokens": [10**30]}, {"tokens": [2**31]}]
)
async def test_numbers_that_no_frame_can_hold_are_refused(client: Raw, params: dict[str, object]) -> None:
    answer = await client.call(1, "generate", **params)
    assert answer["error"]["code"] in (-32000, -32602), answer
    status = await client.result(2, "daemon/status")
    assert status["running"] == 0


async def test_options_are_merged_over_the_configuration(client: Raw) -> None:
    wanted = {"seed": 7, "max_tokens": 9, "draft": "none"}
    result = await client.result(1, "generate", prompt="options", options=wanted)
    expected = {"model": "bundled", "proposer": "auto", "backend": "auto", **wanted}
    assert json.loads(result["text"]) == expected


async def test_a_request_can_be_cancelled_before_its_model_is_loaded(client: Raw, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    options = {"model": f"gate:{gate}"}
    await client.ask(1, "generate", prompt="hello", options=options)
    await client.ask(2, "generate", prompt="hello", options=options)
    await client.notice("model/progress")
    await client.notify("$/cancelRequest", id=1)
    result = (await client.response(1))["result"]
    assert (result["finish_reason"], result["text"]) == ("cancelled", "")
    gate.write_text("open")
    assert (await client.response(2))["result"]["text"] == "hello "


async def test_the_deadline_counts_the_load(client: Raw, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = {"model": f"gate:{gate}"}
    params = {"prefix": "x", "suffix": "", "max_ms": 50, "options": slow}
    result = await client.result(1, "completion/inline", **params)
    assert (result["items"], result["result"]["finish_reason"]) == ([], "deadline")
    result = await client.result(2, "completion/inline", prefix="max_ms", suffix="", max_ms=600_000)
    assert 300_000 < int(result["items"][0]["text"]) <= 600_000
    slowly = params | {"max_ms": 60_000, "max_prompt_ms": 50}
    result = await client.result(3, "completion/inline", **slowly)
    assert (result["items"], result["result"]["finish_reason"]) == ([], "deadline")
    limits = {"suffix": "", "max_prompt_ms": 600_000, "max_predict_ms": 7}
    shown = [
        (await client.result(id, "completion/inline", prefix=prefix, **limits))["items"]
        for id, prefix in ((4, "max_prompt_ms"), (5, "max_predict_ms"))
    ]
    prompt_ms, predict_ms = (int(item["text"]) for (item,) in shown)
    assert 300_000 < prompt_ms <= 600_000 and predict_ms == 7
    gate.write_text("open")


async def test_completions_come_whole(client: Raw) -> None:
    params = {"prefix": "prompt", "suffix": "b", "path": "x.py", "extra": [{"path": "y", "text": "z"}]}
    result = await client.result(1, "completion/inline", **params)
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
    items = (await client.result(2, "completion/inline", **several))["items"]
    assert {json.loads(item["text"])["seed"] for item in items} == {5, 6, 7}
    assert len({item["id"] for item in items}) == 3


async def test_a_newer_completion_for_a_path_replaces_the_older(client: Raw, other: Raw) -> None:
    await other.ask(1, "completion/inline", prefix="stall", suffix="", path="a.py")
    await client.ask(1, "completion/inline", prefix="stall", suffix="", path="a.py")
    await client.ask(2, "completion/inline", prefix="stall", suffix="", path="b.py")
    await client.ask(3, "completion/inline", prefix="new", suffix="", path="a.py")
    replaced = (await client.response(1))["result"]
    assert replaced["result"]["finish_reason"] == "cancelled"
    assert (await client.response(3))["result"]["items"][0]["text"] == "new"
    assert (await client.result(4, "daemon/status"))["running"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("prompt", ["stall", "flood 100000000 100"])
async def test_a_client_that_says_goodbye_and_stays_is_cut_off(daemon: DaemonProcess, prompt: str) -> None:
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(daemon.socket)
        wire.sendall(request({}) + text_frame(1, "initialize", **INITIALIZE))
        wire.sendall(text_frame(2, "generate", prompt=prompt))
        async with raw(daemon) as watcher:
            status = await watcher.result(1, "daemon/status")
            while status["running"] != 1:
                status = await watcher.result(1, "daemon/status")
            wire.sendall(masked(8, b"\x03\xe8"))
            said = time.monotonic()
            while status["running"] or status["connections"] != 1:
                status = await watcher.result(1, "daemon/status")
            assert time.monotonic() - said < 1


async def test_models_are_listed_with_what_is_loaded(client: Raw) -> None:
    await client.call(1, "generate", prompt="x", options={"model": "stdlib-1m", "backend": "llama_cpp"})
    models = (await client.result(2, "models/list"))["models"]
    assert [(m["id"], m["loaded"]) for m in models] == [("stdlib-6m", False), ("stdlib-1m", True)]
    options = {"model": models[0]["path"], "backend": "llama_cpp", "draft": models[1]["path"]}
    await client.result(3, "generate", prompt="x", options=options)
    models = (await client.result(4, "models/list"))["models"]
    assert [(m["id"], m["placement"] is None) for m in models if m["loaded"]] == [
        ("stdlib-6m", False),
        ("stdlib-1m", False),
    ]


@pytest.mark.slow
async def test_metrics_count_requests_and_tokens(alone: Raw) -> None:
    await alone.call(1, "generate", prompt="one two")
    await alone.call(2, "generate", prompt="fail")
    await alone.call(3, "no/such")
    metrics = await alone.result(4, "metrics")
    totals = metrics["totals"]
    assert totals['localspec_requests_total{ending="stop",method="generate"}'] == 1
    assert totals['localspec_requests_total{ending="out_of_memory",method="generate"}'] == 1
    assert totals['localspec_requests_total{ending="-32601",method="refused"}'] == 1
    assert totals['localspec_tokens_total{kind="completion"}'] == 2
    assert totals['localspec_accepted_tokens_total{proposer="prompt-lookup"}'] == 3
    assert totals["localspec_connections"] == 1
    assert 'localspec_tokens_total{kind="completion"} 2.0' in metrics["prometheus"]


@pytest.mark.slow
async def test_logs_hold_no_prompt_and_no_answer(own: DaemonProcess) -> None:
    async with raw(own) as client:
        for prompt in ("confidential fail", "kill SIGKILL confidential", "confidential"):
            await client.call(1, "generate", prompt=prompt)
        await client.call(2, "generate", prompt="confidential", options={"k": "confidential"})
    await until(lambda: "worker" in own.log(), "something is logged")
    assert "confidential" not in own.log()


TEXT = "def grüße(🐻): # <|im_end|>"


@pytest.mark.slow
@pytest.mark.parametrize("special", [False, True])
async def test_they_are_those_of_the_engine(real: DaemonProcess, special: bool) -> None:
    async with raw(real) as client:
        found = await client.result(1, "tokenize", text=TEXT, special=special, pieces=True)
        with localspec.load("bundled", draft="none") as engine:
            vocabulary = engine.target.vocabulary
            assert found["tokens"] == vocabulary.encode(TEXT, special=special)
        assert b"".join(map(base64.b64decode, found["pieces"])).decode() == TEXT
