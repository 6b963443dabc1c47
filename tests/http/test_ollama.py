"""Ollama's own client, on the bundled pair."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import ollama
import pytest
from msgspec.structs import replace

from localspec._version import __version__
from localspec.errors import InvalidOptions
from localspec.http.models import is_at, read_texts
from localspec.http.ollama import API_LEVEL, seconds_of
from localspec.models.model import place_of
from localspec.protocol.messages import ModelDescription
from tests.http.server import HttpServer, _status
from tests.models import ggufs
from tests.waiting import run, until_sync

PROMPT = "def fib(n):\n    "
HELLO = [{"role": "user", "content": "Sort a list."}]
SHORT: dict[str, Any] = {"num_predict": 24, "temperature": 0, "num_ctx": 4096}


@pytest.fixture(scope="module")
def client(http: HttpServer) -> Iterator[ollama.Client]:
    client = ollama.Client(host=http.url, headers={"Authorization": f"Bearer {http.token}"})
    yield client
    client._client.close()


def test_tags_and_what_is_shown_of_them(client: ollama.Client) -> None:
    models = client.list().models
    names = [model.model for model in models]
    assert {"localspec", "stdlib-6m"} <= set(names) and len(names) == len(set(names))
    for model in models:
        assert model.size and model.details is not None and model.details.family == "qwen3"
        shown = client.show(str(model.model))
        assert shown.template is not None and ".Suffix" in shown.template
        assert shown.capabilities == ["completion", "tools", "insert"]
        assert shown.modelinfo is not None and shown.modelinfo["general.architecture"] == "qwen3"


TEMPLATES = {"": [], "{{ messages }}": ["tools"], "{{ messages }}{# <think> #}": ["tools", "thinking"]}


@pytest.mark.parametrize("template", TEMPLATES)
def test_abilities_are_those_of_the_template(tmp_path: Path, template: str) -> None:
    path, own = tmp_path / "m.gguf", [ggufs.string("tokenizer.chat_template", template)] if template else []
    path.write_bytes(ggufs.gguf(own))
    assert read_texts(str(path))[1] == TEMPLATES[template]


@pytest.mark.slow
def test_the_time_that_a_model_took_to_load_is_reported(client: ollama.Client) -> None:
    client.generate("stdlib-1m", keep_alive=0)
    began = time.perf_counter()
    loaded = client.chat("stdlib-1m", HELLO, options=SHORT, keep_alive=0)
    whole = 1e9 * (time.perf_counter() - began)
    whole_ns, load_ns = loaded.total_duration, loaded.load_duration
    parts = (load_ns, loaded.prompt_eval_duration, loaded.eval_duration)
    assert whole_ns is not None and load_ns is not None and whole >= whole_ns
    assert whole_ns == pytest.approx(sum(part or 0 for part in parts), abs=3) and load_ns > whole_ns / 2


def test_a_gap(client: ollama.Client) -> None:
    said: dict[str, Any] = {"prompt": "import os\n\nprint(os.", "suffix": ")\n", "options": SHORT}
    whole = client.generate("bundled", **said)
    assert whole.response and "\n" not in whole.response and whole.done
    pieces = list(client.generate("bundled", stream=True, **said))
    assert "".join(piece.response or "" for piece in pieces) == whole.response


def test_a_chat_whole_and_as_it_comes(client: ollama.Client) -> None:
    whole = client.chat("bundled", HELLO, options=SHORT)
    assert whole.message.role == "assistant" and whole.message.content
    assert whole.done_reason in ("length", "stop")
    assert whole.eval_count and whole.eval_count <= 24 and whole.prompt_eval_count and whole.eval_duration
    pieces = list(client.chat("bundled", HELLO, options=SHORT, stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    asked = client.generate("bundled", "Sort a list.", options=SHORT)
    assert asked.response == whole.message.content, "a prompt is a chat of one question"
    seen = client.generate("bundled", "Sort a list.", system="You write Python.", options=SHORT)
    chat = client.chat("bundled", [{"role": "system", "content": "You write Python."}, *HELLO], options=SHORT)
    assert seen.response == chat.message.content


@pytest.mark.slow
def test_a_model_is_loaded_kept_and_let_go(client: ollama.Client, http: HttpServer) -> None:
    assert client.generate("bundled").done_reason == "load"
    until_sync(lambda: len(http.loaded()) == 1, "it is there, and what others have let go is not")
    kept = client.generate("bundled", PROMPT, raw=True, options=SHORT, keep_alive="5m")
    assert kept.response
    (model,) = run(_status(http.daemon)).models
    assert model.idle_left_s is not None and 200 < model.idle_left_s <= 300
    client.chat("bundled", HELLO, options=SHORT, keep_alive=-1)
    assert run(_status(http.daemon)).models[0].idle_left_s is None
    assert client.generate("bundled", PROMPT, raw=True, options=SHORT, keep_alive=0).response
    until_sync(lambda: http.loaded() == [], "it is unloaded")
    client.chat("stdlib-1m", [])
    client.chat("localspec", HELLO, options=SHORT)
    assert len(http.loaded()) == 2
    client.generate("localspec:latest", "x = ", suffix="\n", options=SHORT, keep_alive=0)
    until_sync(lambda: len(http.loaded()) < 2, "it is unloaded")
    assert http.loaded() == ["stdlib-1m"], "nothing but the one that answered"
    client.generate("stdlib-1m", keep_alive=0)
    client.chat("bundled", [])
    assert client.generate("bundled", keep_alive=0).done_reason == "unload"
    assert http.loaded() == []


@pytest.mark.parametrize(
    ("said", "status", "sentence"),
    [({"model": "not-here"}, 404, "not-here"), ({"keep_alive": "soon"}, 400, "keep_alive is not a duration")],
    ids=str,
)
def test_what_is_refused(client: ollama.Client, said: dict[str, Any], status: int, sentence: str) -> None:
    with pytest.raises(ollama.ResponseError) as refused:
        client.generate(**{"model": "bundled", "prompt": PROMPT, **said})
    assert refused.value.status_code == status and sentence in refused.value.error


def test_our_options_beside_others(client: ollama.Client, http: HttpServer) -> None:
    for place in ({"options": {**SHORT, "localspec": {"k": 3}}}, {"options": SHORT, "localspec": {"k": 3}}):
        body = {"model": "bundled", "prompt": "x = 1\n" * 9, "raw": True, "stream": False, **place}
        drafted = http.post("/api/generate", body)["localspec"]["stats"]["k_histogram"]
        assert max(map(int, drafted)) <= 3
    with pytest.raises(ollama.ResponseError, match="localspec.k takes a whole number from 1 to 20"):
        client.generate("bundled", PROMPT, raw=True, options={"localspec": {"k": 99}})


@pytest.mark.slow
def test_what_is_loaded_and_until_when(client: ollama.Client) -> None:
    client.chat("stdlib-1m", [], keep_alive="1h")
    (found,) = [model for model in client.ps().models if model.model == "stdlib-1m"]
    left_s = (found.expires_at - datetime.now(UTC)).total_seconds() if found.expires_at else 0
    assert 3000 < left_s <= 3600 and found.size and found.context_length
    assert client.show("stdlib-1m").parameters == f"num_ctx {found.context_length}"
    assert found.size == next(each.size for each in client.list().models if each.model == "stdlib-1m")
    client.generate("stdlib-1m", keep_alive=-1)
    client.generate("stdlib-1m", keep_alive=0)
    assert "stdlib-1m" not in [model.model for model in client.ps().models]


def test_the_first_request_needs_no_token(http: HttpServer) -> None:
    with httpx2.Client(trust_env=False) as unauthenticated:
        assert unauthenticated.head(http.url).status_code == unauthenticated.get(http.url).status_code == 200


def test_the_version(http: HttpServer) -> None:
    seen = http.ask("GET", "/api/version").json()
    assert seen == {"version": API_LEVEL, "localspec": __version__}
    # The least version that clients known to check it require.
    assert tuple(map(int, API_LEVEL.split("."))) >= (0, 13, 4)


def test_a_loaded_model_is_known_behind_the_links_of_its_store(tmp_path: Path) -> None:
    file, link = tmp_path / "digest", tmp_path / "m.gguf"
    file.touch()
    link.symlink_to(file)
    listed = ModelDescription(id="m", path=str(link), format="gguf", backend="llama_cpp", size=1, loaded=True)
    place = place_of(file)
    assert is_at(listed, place) and not is_at(listed, place_of(tmp_path))
    assert is_at(replace(listed, path="/other", also=(str(link),)), place)


def test_what_its_own_command_reads_of_a_model(http: HttpServer, client: ollama.Client) -> None:
    """It cuts digests at 12 of 64 digits, and takes fields of what is shown for texts and numbers."""
    listed = http.ask("GET", "/api/tags").json()["models"]
    digests = {model["name"]: model["digest"] for model in listed}
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests.values())
    client.generate("stdlib-6m", "x", options={"num_predict": 1})
    running = http.ask("GET", "/api/ps").json()["models"]
    (loaded,) = [model for model in running if model["name"] == "stdlib-6m"]
    assert loaded["digest"] == digests["stdlib-6m"] and loaded["size_vram"] == 0 < loaded["size"]
    shown = http.ask("POST", "/api/show", {"model": "stdlib-6m"}).json()
    assert shown["modelfile"].startswith("FROM /") and isinstance(shown["license"], str)
    info = shown["model_info"]
    family = info["general.architecture"]
    assert family and info["general.parameter_count"] > 1e6 and info[f"{family}.context_length"] == 2048


@pytest.mark.slow
def test_a_long_chat_is_refused_and_cut_on_request(http: HttpServer) -> None:
    turns = [{"role": role, "content": "word " * 20} for role in ("user", "assistant")] * 100
    said = {"model": "localspec", "stream": False, "options": {"num_predict": 1}}
    said |= {"messages": [*turns, {"role": "user", "content": "now"}]}
    refused = http.ask("POST", "/api/chat", said)
    assert refused.status_code == 400 and "exceeds the available context size" in refused.json()["error"]
    cut = http.post("/api/chat", said | {"truncate": True})
    assert cut["localspec"]["stats"]["truncated_messages"] > 0


DURATIONS = {None: None, 30: 30, "0": 0, "-1": -1, "1h30m": 5400, "500ms": 0.5, "-1m": -60, "+.5h": 1800}


@pytest.mark.parametrize(("said", "seconds"), [*DURATIONS.items(), ("1.s2000us", 1.002)])
def test_durations(said: str | float | None, seconds: float | None) -> None:
    assert seconds_of(said) == seconds


@pytest.mark.parametrize("given", ["1" * 4_000_000 + "x", "1.5s" * 1_000_000, "1" * 101])
def test_a_long_duration_is_refused_at_once(given: str) -> None:
    """No pattern reads what is longer than any duration: its server answers other clients meanwhile."""
    with pytest.raises(InvalidOptions, match="keep_alive is not a duration"):
        seconds_of(given)
