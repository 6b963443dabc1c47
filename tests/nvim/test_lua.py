"""The plugin's own parts, tested by Lua inside of Neovim (see lua/harness.lua)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.editors.found import NEOVIMS, neovim
from tests.nvim.editor import PLUGIN, ROOT
from tests.waiting import DEADLINE_S

LUA = Path(__file__).with_name("lua")


@pytest.mark.parametrize("version", NEOVIMS)
def test_lua(version: str, tmp_path: Path) -> None:
    program = neovim(version)
    variables = {
        **program.environment,
        "TESTS": "\n".join(map(str, sorted(LUA.glob("test_*.lua")))),
        "TRANSCRIPTS": str(ROOT / "tests" / "transcripts"),
        "PLUGIN": str(PLUGIN),
        "HOME": str(tmp_path),
    }
    start = ("--headless", "--clean", "-u", "NONE", "-i", "NONE", "-n")
    commands = ("--cmd", f"set runtimepath^={PLUGIN}", "-c", f"luafile {LUA / 'harness.lua'}")
    done = subprocess.run(
        (*program.command, *start, *commands),
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0 and " 0 failures" in done.stderr, done.stderr + done.stdout
