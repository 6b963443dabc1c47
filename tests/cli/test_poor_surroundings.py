"""Users that the system does not know, terminals of ASCII, few files: each gets a proper answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localspec import errors
from tests.cli.harness import Cli
from tests.daemon.conftest import StartDaemon, home, start
from tests.daemon.harness import REAL_DAEMON, code, raw
from tests.models import ggufs
from tests.waiting import DEADLINE_S

__all__ = ["home", "start"]

UNKNOWN = ("unshare", "--user", "--map-user=54321", "--map-group=54321")


def is_possible() -> bool:
    try:
        return subprocess.run((*UNKNOWN, "true"), capture_output=True).returncode == 0
    except OSError:
        return False


unknown_user = pytest.mark.skipif(not is_possible(), reason="no user of another number can be had here")


def as_unknown(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*UNKNOWN, sys.executable, "-m", "localspec", *words),
        env={"PATH": os.environ["PATH"], **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


@pytest.mark.slow
@unknown_user
@pytest.mark.parametrize("given", [{}, {"LOCALSPEC_HOME": "~/there"}], ids=["none", "tilde"])
@pytest.mark.parametrize("words", [("models", "list"), ("run", "Hello"), ("config", "path")], ids=" ".join)
def test_a_user_without_a_home_is_said_what_to_set(given: dict[str, str], words: tuple[str, ...]) -> None:
    done = as_unknown(*words, **given)
    assert done.returncode == 1 and done.stdout == ""
    assert "the home directory is unknown" in done.stderr and "54321" in done.stderr
    assert "Set HOME" in done.stderr and "LOCALSPEC_HOME" in done.stderr


@pytest.mark.slow
@unknown_user
def test_a_user_without_a_home_may_say_where_files_go(tmp_path: Path) -> None:
    place = {"LOCALSPEC_HOME": str(tmp_path / "home")}
    assert "bundled" in as_unknown("models", "list", **place).stdout
    assert as_unknown("run", "--no-daemon", "--max-tokens", "2", "Hello", **place).returncode == 0
    for words in (("--install-completion", "--shell", "bash"), ("doctor",), ("service", "status")):
        assert "RuntimeError" not in "".join((done := as_unknown(*words, **place)).stdout + done.stderr)


def test_json_for_a_stdout_of_ascii_is_json(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "home")
    (tmp_path / "é").mkdir()
    broken = tmp_path / "é" / "ä😀.gguf"
    broken.write_bytes(ggufs.gguf([ggufs.string("general.architecture", "ñ")]))
    cli("config", "set", "model_dirs", json.dumps([str(broken.parent)]))
    cli.environment |= {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = cli.process("models", "list", "--json")
    assert done.returncode == 0 and done.stdout.isascii()
    assert any("ä😀" in (model["path"] or "") for model in json.loads(done.stdout)["models"])


@pytest.mark.parametrize("files", [15, 16])
async def test_what_too_few_files_prevent_is_said(start: StartDaemon, files: int) -> None:
    daemon = start(command=("sh", "-c", f'ulimit -n {files}; exec "$@"', "-", *REAL_DAEMON))
    async with raw(daemon) as client:
        for method, params in (
            ("memory/stats", {}),
            ("generate", {"prompt": "Hi", "raw": True, "options": {"max_tokens": 2}}),
        ):
            seen = await client.call(method, method, **params)
            assert code(seen) == errors.TooManyFiles.code and "ulimit" in seen["error"]["data"]["remedy"]
    assert daemon.stop() == 0 and "Traceback" not in daemon.log()


def test_a_command_with_too_few_files_is_said() -> None:
    done = subprocess.run(
        ("sh", "-c", 'ulimit -n 6; exec "$@"', "-", sys.executable, "-m", "localspec", "daemon", "start"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 75 and "too many files are open" in done.stderr and "ulimit" in done.stderr
