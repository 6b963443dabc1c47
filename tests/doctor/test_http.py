"""Lines on the HTTP server."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

from localspec.config import Config, HttpConfig
from localspec.daemon import http_server
from localspec.doctor import http
from localspec.errors import INSTALL_HTTP
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.messages import DaemonStatus, LoadedModel

RUNNING = DaemonStatus(
    pid=7,
    version="1",
    protocol=1,
    uptime_s=1.0,
    socket=None,
    url=None,
    resident_bytes=None,
    connections=0,
    running=0,
    models=(),
)
OPEN = replace(RUNNING, http="http://127.0.0.1:1")
CLOSED = replace(RUNNING, http_problem="no port", http_remedy="Free it.")


def told(config: HttpConfig, status: DaemonStatus | None = None) -> list[tuple[str, str]]:
    return [(each.level, each.sentence) for each in http.server_findings(config, status)]


def test_closed_open_and_in_between() -> None:
    wanted = HttpConfig(enabled=True)
    assert "is closed, as configured" in told(HttpConfig())[0][1]
    assert "is closed, as configured" in told(HttpConfig(), RUNNING)[0][1]
    assert told(wanted)[0][0] == "ok" and "opens with the daemon, at port 8012" in told(wanted)[0][1]
    assert told(wanted, RUNNING) == [("warning", "The HTTP server is enabled, but closed.")]
    for config in (wanted, HttpConfig()):
        assert told(config, CLOSED) == [("problem", "The HTTP server is enabled, but not open: no port.")], (
            "by a flag, too"
        )
    (found,) = http.server_findings(wanted, CLOSED)
    assert found.remedy == "Free it."
    assert told(wanted, OPEN)[0][1].startswith("The HTTP server is open at http://127.0.0.1:1.")
    assert told(HttpConfig(), OPEN)[0][0] == "ok", "a flag may have opened it"


def test_what_is_missing_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "PACKAGES", ("starlette", "nobody_has_this"))
    steps = "`localspec config set http.enabled true`, `localspec daemon restart`."
    assert told(HttpConfig())[0][1].endswith(f" To open it: `make install` (in a checkout), {steps}")
    assert INSTALL_HTTP in http.clients(HttpConfig(), None)
    (found,) = http.server_findings(HttpConfig(enabled=True), None)
    assert found.level == "problem" and "nobody_has_this" in found.sentence and found.remedy == INSTALL_HTTP


def test_the_step_before_opening_is_that_of_the_way_of_installation() -> None:
    assert http._install("/home/me/.local/pipx/venvs/localspec") == "`pipx install --force '.[http]'`"
    assert http._install("/home/me/.local/share/uv/tools/localspec") == "`uv tool install --force '.[http]'`"
    assert http._install("/work/.venv") == "`make install`"


def test_dialects_without_a_token_are_a_warning() -> None:
    config = HttpConfig(without_token=("ollama", "openai"))
    level, sentence = told(config, OPEN)[-1]
    assert level == "warning" and "ollama, openai" in sentence
    assert [level for level, _ in told(config, RUNNING)] == ["ok"], "nobody comes in"


def test_what_is_pasted_names_the_port_and_says_whether_it_is_open() -> None:
    text = http.clients(HttpConfig(port=4321), RUNNING)
    assert text.count("http://127.0.0.1:4321") >= 6 and not re.search(r"\bURL\b", text)
    assert text.startswith("The HTTP server is closed: `localspec config set http.enabled true`")
    is_open = http.clients(HttpConfig(port=0), OPEN)
    assert is_open.startswith("The HTTP server is open at http://127.0.0.1:1.\nIts port changes at every")
    programs = ("curl", "llama.vim", "minuet", "CodeCompanion", "gptel", "aider", "AI SDK")
    for program in (*programs, "Continue", "Zed", "Helix", "llm"):
        assert program in text
    assert ':host "127.0.0.1:4321"' in text and "HOST_PORT" not in text


def test_zeds_entry_has_all_that_its_parser_wants() -> None:
    (line,) = [line for line in http.clients(HttpConfig(), OPEN).splitlines() if '"language_models"' in line]
    entry = json.loads(f"{{{line}}}")["language_models"]["openai_compatible"]["localspec"]
    (model,) = entry["available_models"]
    wanted = {"tools", "images", "parallel_tool_calls", "prompt_cache_key"}
    assert set(model["capabilities"]) == wanted and not any(model["capabilities"].values())


def test_the_address_stands_where_it_belongs_alone() -> None:
    (line,) = [line for line in http.clients(HttpConfig(), OPEN).splitlines() if "createOpenAI" in line]
    assert f'baseURL: "{OPEN.http}/v1"' in line


def test_a_context_too_small_for_agents_is_a_warning_where_they_may_come_in() -> None:
    def found(config: Config, status: DaemonStatus | None = None, trained: int | None = None) -> list[str]:
        return [each.sentence for each in http.context(config, status, trained)]

    wanted = Config(http=HttpConfig(enabled=True))
    assert found(Config()) == found(Config(), RUNNING) == []
    (sentence,) = found(wanted)
    assert "8,192 tokens; agents" in sentence and "16,000" in sentence and found(Config(), OPEN) == [sentence]
    assert found(replace(wanted, engine=EngineConfig(n_ctx=16_384))) == []
    loaded = LoadedModel(model="m", draft=None, pid=1, resident_bytes=None, running=0, n_ctx=2048)
    assert "2,048" in found(wanted, replace(OPEN, models=(loaded,)))[0]
    assert found(wanted, replace(OPEN, models=(replace(loaded, n_ctx=32_768),))) == []
    assert "2,048" in found(wanted, trained=2048)[0]
    small = replace(wanted, engine=EngineConfig(n_ctx=2048))
    for trained, step in (
        (
            2048,
            "This model has at most 2,048 tokens of context: choose another one of `localspec models list`.",
        ),
        (20_000, "Run `localspec config set n_ctx 20000`."),
        (None, "Run `localspec config set n_ctx 32768`, if the model was trained for it."),
    ):
        assert [each.remedy for each in http.context(small, None, trained)] == [step]
