"""The daemon's settings: changed, broken or as they were, and those for one model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.config import load_config
from localspec.daemon.daemon import SettingsFile
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import Raw, raw
from tests.models.ggufs import TARGET

SECTIONS = '[models."a"]\nk = 1\n[models."b"]\nk = 2\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "config.toml"


def test_the_same_said_otherwise_is_no_change(file: Path) -> None:
    settings = SettingsFile(load_config())
    assert settings.state() == "current"
    file.write_text('# as it was\nauto_pull = "off"\n[engine]\nn_ctx = 0\n')
    assert settings.state() == "current"
    file.unlink()
    assert settings.state() == "current"


def test_what_changes_and_changes_back_and_breaks(file: Path) -> None:
    file.write_text(SECTIONS)
    settings = SettingsFile(load_config())
    one, other = SECTIONS[: len(SECTIONS) // 2], SECTIONS[len(SECTIONS) // 2 :]
    for text, state in (
        (f"[engine]\nn_ctx = 64\n{SECTIONS}", "changed"),
        ("[engine", "broken"),
        (SECTIONS, "current"),
        (other + one, "changed"),  # of two sections of one model the later goes first
    ):
        file.write_text(text)
        assert settings.state() == settings.state() == state
    file.unlink()
    assert settings.state() == "changed"


def test_a_change_before_the_first_look_is_seen(file: Path) -> None:
    config = load_config()
    file.write_text(SECTIONS)
    assert SettingsFile(config).state() == "changed"


def test_it_is_the_file_that_was_read(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SettingsFile(load_config())
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "other"))
    file.write_text(SECTIONS)
    assert settings.state() == "changed"


OF_ONE_MODEL = """
[models."stdlib-6m"]
n_ctx = 64
k = 2
draft = "none"
[models."other"]
threads = 3
"""


async def asked(client: Raw, what: str, **options: Any) -> dict[str, Any]:
    """Return the settings that the worker got: the request's ``options``, or the ``engine``'s settings."""
    answer = await client.call(f"{what} {options}", "generate", prompt=what, options=options)
    found: dict[str, Any] = json.loads(answer["result"]["text"])
    return found


@pytest.mark.slow
async def test_one_model_has_one_process_and_one_way_to_be_loaded_by_all_of_its_names(
    start: StartDaemon,
) -> None:
    async with raw(start(sections=OF_ONE_MODEL)) as client:
        for name in ("stdlib-6m", "bundled", str(TARGET), f"{TARGET.parent}/./{TARGET.name}"):
            given = await asked(client, "engine", model=name, backend="llama_cpp")
            assert (given["n_ctx"], given["threads"]) == (64, 0)
            options = await asked(client, "options", model=name, backend="llama_cpp")
            assert (options["k"], options["draft"]) == (2, "none")
        status = (await client.call("s", "daemon/status"))["result"]
        assert len(status["models"]) == 1 and status["settings"] == "current"
        assert (await asked(client, "engine", model="other"))["threads"] == 3


@pytest.mark.slow
async def test_of_two_completions_for_one_file_the_newer_is_answered(start: StartDaemon) -> None:
    async with raw(start(sections=OF_ONE_MODEL)) as client:
        for number in range(20):
            await client.ask(f"old {number}", "completion/inline", prefix="stall", suffix="", path="/work/a")
            new = await client.call(
                number, "completion/inline", prefix=f"{number}", suffix="", path="/work/a"
            )
            assert new["result"]["result"]["finish_reason"] == "stop"
            old = await client.response(f"old {number}")
            assert old["result"]["result"]["finish_reason"] == "cancelled"
