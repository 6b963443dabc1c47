"""Lines on the daemon and its HTTP server, and the settings of HTTP clients."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

from localspec._version import __version__
from localspec.config import HttpConfig
from localspec.doctor import Finding, daemon
from localspec.doctor.daemon import Asked
from localspec.errors import LocalspecError, VersionSkew
from localspec.http import server
from localspec.protocol.messages import DaemonStatus, Discovery

FOUND = Discovery(7, __version__, 1, "/run/daemon.sock")
RUNNING = DaemonStatus(
    pid=7,
    version=__version__,
    protocol=1,
    uptime_s=1.0,
    socket="/run/daemon.sock",
    resident_bytes=None,
    connections=1,
    running=0,
    models=(),
    settings="current",
)
OPEN = replace(RUNNING, http="http://127.0.0.1:1")
CLOSED = replace(RUNNING, http_problem="no port", http_remedy="Free it.")
WANTED = HttpConfig(enabled=True)


def line(status: DaemonStatus | None = None, error: LocalspecError | None = None) -> Finding:
    (found,) = daemon.daemon(Asked(FOUND, status, error))
    return found


def test_one_that_runs_and_none() -> None:
    assert line(RUNNING) == Finding("daemon", "ok", f"The daemon runs (pid 7, localspec {__version__}).")
    assert line(replace(RUNNING, settings="broken")).level == "ok", "the file has a line of its own"
    (none,) = daemon.daemon(Asked())
    assert none.level == "ok" and none.sentence.startswith("No daemon runs")


@pytest.mark.parametrize(
    ("status", "error", "level", "sentence"),
    [
        (replace(RUNNING, version="0.0.1"), None, "warning", "is localspec 0.0.1, this is"),
        (replace(RUNNING, settings="changed"), None, "warning", "other settings"),
        (None, VersionSkew("it speaks protocol 9"), "warning", "It speaks protocol 9."),
        (None, None, "problem", "The daemon (pid 7) does not answer."),
    ],
)
def test_one_that_is_not_as_expected(
    status: DaemonStatus | None, error: LocalspecError | None, level: str, sentence: str
) -> None:
    found = line(status, error)
    assert found.level == level and sentence in found.sentence and found.remedy
    assert level == "problem" or "`localspec daemon restart`" in found.remedy


@pytest.mark.parametrize(
    ("config", "status", "level", "sentence"),
    [
        (HttpConfig(), None, "ok", "is closed, as configured. To open it:"),
        (HttpConfig(), RUNNING, "ok", "is closed, as configured"),
        (HttpConfig(), OPEN, "ok", "is open at http://127.0.0.1:1."),
        (WANTED, None, "ok", "is enabled; `localspec daemon restart` opens it."),
        (WANTED, OPEN, "ok", "is open at http://127.0.0.1:1."),
        (WANTED, CLOSED, "problem", "is enabled, but not open: no port."),
        (HttpConfig(), CLOSED, "problem", "is enabled, but not open: no port."),
    ],
)
def test_the_http_server(config: HttpConfig, status: DaemonStatus | None, level: str, sentence: str) -> None:
    (found,) = daemon.http(config, status)
    assert found.level == level and sentence in found.sentence
    assert (found.remedy is None) == (level == "ok")


def test_dialects_without_a_token_are_a_warning() -> None:
    config = HttpConfig(without_token=("ollama", "openai"))
    _, found = daemon.http(config, OPEN)
    assert found.level == "warning" and "ollama, openai" in found.sentence
    assert len(list(daemon.http(config, RUNNING))) == 1, "no client is accepted"


def test_settings_to_paste_have_the_address_and_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    text = daemon.clients(HttpConfig(port=4321), RUNNING)
    assert text.count("http://127.0.0.1:4321") >= 6 and not re.search(r"\bURL\b", text)
    assert text.startswith("The HTTP server is closed") and "It needs" not in text
    is_open = daemon.clients(HttpConfig(port=0), OPEN)
    assert is_open.startswith("The HTTP server is open at http://127.0.0.1:1.\nIts port changes at every")
    monkeypatch.setattr(server, "PACKAGES", ("starlette", "not_installed"))
    assert "It needs not_installed. Install it" in daemon.clients(HttpConfig(), RUNNING)
    assert ':host "127.0.0.1:4321"' in text and "HOST_PORT" not in text


def test_zeds_entry_has_all_fields_of_its_parser() -> None:
    (line,) = [
        line for line in daemon.clients(HttpConfig(), OPEN).splitlines() if '"language_models"' in line
    ]
    entry = json.loads(f"{{{line}}}")["language_models"]["openai_compatible"]["localspec"]
    (model,) = entry["available_models"]
    wanted = {"tools", "images", "parallel_tool_calls", "prompt_cache_key"}
    assert set(model["capabilities"]) == wanted and model["capabilities"]["tools"]
