"""The plugin's own parts, tested by Lua inside of Neovim (see lua/harness.lua)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from localspec.memory.secret_names import COPIES, NAMES, is_secret
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


def names() -> list[str]:
    """For each pattern of names that mark secrets, some that it fits, and some that look alike."""
    patterns = [*NAMES["secret"], *NAMES["harmless"], *NAMES["always"]]
    fitting = [pattern.replace("*", filler) for pattern in patterns for filler in ("", "rsa", "a.b")]
    alike = [
        form
        for name in fitting
        for form in (name.upper(), name + ".pub", name + ".py", name + "x", "x" + name)
    ]
    alike += [name + end for name in ("server.pem", "notes.txt", "x.pub") for end in (*COPIES, "~.bak", "~x")]
    return sorted({*fitting, *alike, ".env", ".environment", "notes.txt", "README", "日本.PEM"})


@pytest.mark.slow
@pytest.mark.parametrize("version", NEOVIMS)
def test_secrets_are_those_that_are_never_learnt(version: str, tmp_path: Path) -> None:
    program = neovim(version)
    given, found = tmp_path / "names", tmp_path / "secret"
    given.write_text("\n".join(names()) + "\n")
    pick = f"vim.tbl_filter(require('localspec.secrets').is_secret, vim.fn.readfile('{given}'))"
    commands = (
        "--cmd",
        f"set runtimepath^={PLUGIN}",
        "-c",
        f"lua vim.fn.writefile({pick}, '{found}')",
        "-c",
        "quit",
    )
    start = (*program.command, "--headless", "--clean", "-i", "NONE", "-n")
    environment = {**os.environ, **program.environment, "HOME": str(tmp_path)}
    subprocess.run((*start, *commands), env=environment, timeout=DEADLINE_S, check=True)
    expected = [name for name in names() if is_secret(name)]
    assert len(expected) > 50
    assert found.read_text().splitlines() == expected
