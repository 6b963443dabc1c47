"""Reports of the server in llama.cpp's dialect: slots, properties, metrics, models."""

from __future__ import annotations

import pytest

from localspec.protocol.messages import LoadedModel
from tests.http.server import HttpServer, opened, wire
from tests.waiting import run

GREEDY = {"prompt": "def fib(n):\n", "n_predict": 16, "temperature": 0, "seed": -1}


@pytest.mark.slow
def test_slots_need_no_load() -> None:
    with opened(real=True) as http:
        before = http.ask("GET", "/slots").json()
        assert run(_loaded(http)) == ()
        http.post("/completion", GREEDY)
        assert len(run(_loaded(http))) == 1
        after = http.ask("GET", "/slots").json()
        # Their number depends on the memory that is free when the model is loaded.
        assert [slot["id"] for slot in before] == [0] and [slot["id"] for slot in after] == [
            *range(len(after))
        ]
        assert {slot["n_ctx"] for slot in before} == {slot["n_ctx"] for slot in after}


async def _loaded(http: HttpServer) -> tuple[LoadedModel, ...]:
    async with await wire(http.daemon) as client:
        return (await client.status()).models


COUNTERS = (
    *("tokens_predicted_total", "tokens_predicted_seconds_total", "prompt_tokens_total"),
    *("prompt_seconds_total", "n_decode_total", "n_tokens_max", "prompt_tokens_cached_total"),
    *("spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total"),
    "spec_decode_num_drafts_total",
)
GAUGES = (*("prompt_tokens_seconds", "predicted_tokens_seconds", "requests_processing", "requests_deferred"),)


@pytest.mark.slow
def test_what_the_server_says_of_itself(http: HttpServer) -> None:
    assert http.ask("GET", "/v1/health", authorization="").json() == {"status": "ok"}
    http.post("/completion", GREEDY)
    slots = http.ask("GET", "/slots").json()
    assert slots and all(slot["n_ctx"] == 2048 and slot["is_processing"] is False for slot in slots)
    props = http.ask("GET", "/props").json()
    assert props["total_slots"] == len(slots) and "<|im_start|>" in props["chat_template"]
    assert props["default_generation_settings"]["params"]["temperature"] == 0.7
    assert (props["bos_token"], props["eos_token"]) == ("<|endoftext|>", "<|im_end|>")
    assert props["modalities"] == {"vision": False, "video": False, "audio": False}
    assert props["chat_template_caps"]["supports_tools"] is True and props["model_ftype"] == "F16"
    metrics = http.ask("GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    before = dict(line.split() for line in metrics.text.splitlines() if line.startswith("llamacpp:"))
    timings = http.post("/completion", GREEDY)["timings"]
    text = http.ask("GET", "/metrics").text
    after = dict(line.split() for line in text.splitlines() if line.startswith("llamacpp:"))
    for name, count in (
        ("prompt_tokens_total", timings["prompt_n"]),
        ("prompt_tokens_cached_total", timings["cache_n"]),
        ("tokens_predicted_total", timings["predicted_n"]),
    ):
        assert float(after[f"llamacpp:{name}"]) - float(before[f"llamacpp:{name}"]) == count, name
    assert {name.removeprefix("llamacpp:") for name in after} == {*COUNTERS, *GAUGES}
    assert all(f"# TYPE llamacpp:{name} counter" in text for name in COUNTERS)
    for name in (*COUNTERS[:6], *GAUGES[:2]):
        assert float(after[f"llamacpp:{name}"]) > 0, name
    found = http.ask("GET", "/models").json()
    card = found["data"][0]
    meta = card["meta"]
    assert meta.items() >= {"n_ctx": 2048, "n_ctx_train": 2048, "ftype": "F16"}.items()
    assert meta["n_params"] > 1e6 and meta["size"] > 1e6
    one = http.ask("GET", f"/v1/models/{card['id']}").json()
    assert one == card and http.ask("GET", "/v1/models").json()["data"] == found["data"]


def test_there_are_as_many_slots_as_sequences(http: HttpServer) -> None:
    async def loaded() -> LoadedModel:
        async with await wire(http.daemon) as client:
            return await client.load().result()

    sequences = run(loaded()).sequences
    assert sequences >= 1 and http.ask("GET", "/props").json()["total_slots"] == sequences
    assert len(http.ask("GET", "/slots").json()) == sequences
