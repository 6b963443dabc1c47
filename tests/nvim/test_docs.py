"""The plugin's parts, tested by Lua inside of Neovim (see lua/harness.lua), and in its README and help."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.editors.found import NEOVIMS, neovim
from tests.nvim.editor import PLUGIN, ROOT
from tests.waiting import DEADLINE_S

LUA = Path(__file__).with_name("lua")


def started(version: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    program = neovim(version)
    return subprocess.run(
        (*program.command, "--headless", "-i", "NONE", "-n", *arguments),
        env={**os.environ, **program.environment, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


@pytest.mark.parametrize("version", NEOVIMS)
def test_lua(version: str, tmp_path: Path) -> None:
    variables = {"TESTS": "\n".join(map(str, sorted(LUA.glob("test_*.lua")))), "HOME": str(tmp_path)}
    commands = ("--cmd", f"set runtimepath^={PLUGIN}", "-c", f"luafile {LUA / 'harness.lua'}")
    done = started(version, "--clean", "-u", "NONE", *commands, **variables)
    assert done.returncode == 0 and " 0 failures" in done.stderr, done.stderr + done.stdout


README = (PLUGIN / "README.md").read_text("utf-8")
HELP = (PLUGIN / "doc" / "localspec.txt").read_text("utf-8")
KNOWN = """
local settings = require("localspec.settings").checked({})
local keys = settings.keys
settings.command, settings.keys = settings.command[1], true
vim.cmd("runtime plugin/localspec.lua")
io.stdout:write(vim.json.encode({
  settings = settings, keys = keys, commands = vim.fn.getcompletion("Localspec ", "cmdline"),
}))
"""
"""prints the names that exist"""


def nvim(*arguments: str, **variables: str) -> str:
    """Run the oldest Neovim; return the script's output. Its stderr must stay empty."""
    done = started(NEOVIMS[0], *arguments, "-c", "quitall!", **variables)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = tmp_path_factory.mktemp("known") / "known.lua"
    script.write_text(KNOWN)
    said = nvim("--clean", "--cmd", f"set runtimepath^={PLUGIN}", "-c", f"luafile {script}")
    found: dict[str, Any] = json.loads(said)
    return found


def lua(value: object) -> str:
    return "{}" if value in ({}, []) else "nil" if value is None else json.dumps(value)


def settings_of(known: dict[str, Any]) -> dict[str, str]:
    return {name: lua(value) for name, value in {"model": None, **known["settings"]}.items()}


def plug(name: str) -> str:
    return f"<Plug>(localspec-{name.replace('_', '-')})"


def keys_of(known: dict[str, Any]) -> dict[str, str]:
    """By the name to map: the key; an empty text for none."""
    return {plug(name): key or "" for name, key in known["keys"].items()}


def test_each_setting_is_reported_with_its_default(known: dict[str, Any]) -> None:
    table = README.partition("## Settings\n")[2].partition("\n## ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", table, re.MULTILINE)) == settings_of(known)
    section = HELP.partition("*localspec.setup()*")[2].partition("\n=====")[0]
    assert dict(re.findall(r"^(\w+) +\((.*?)\)", section, re.MULTILINE)) == settings_of(known)
    example = dict(re.findall(r"^      (\w+) = (.*),$", section, re.MULTILINE))
    assert example == {name: lua(key) for name, key in known["keys"].items()}


def test_each_key_is_reported(known: dict[str, Any]) -> None:
    rows = re.findall(r"^\| (?:`(\S+)`)? ?\|[^|]*\| `(<Plug>\S+)` \|$", README, re.MULTILINE)
    assert {plug: key for key, plug in rows} == keys_of(known)
    rows = re.findall(r"^    (\(no key\)|\S+) .*\*(<Plug>\S+)\*$", HELP, re.MULTILINE)
    assert {plug: key.replace("(no key)", "") for key, plug in rows} == keys_of(known)


def test_each_command_is_reported(known: dict[str, Any]) -> None:
    assert set(re.findall(r"^\| `:Localspec (\w+)` \|", README, re.MULTILINE)) == set(known["commands"])
    section = HELP.partition("*:Localspec*")[2].partition("\n=====")[0]
    assert set(re.findall(r"^<?:Localspec \[?(\w+)", section, re.MULTILINE)) == set(known["commands"])


def test_what_the_readme_shows_is_lua(tmp_path: Path) -> None:
    (spec,) = re.findall(r"```lua\n(.*?)```", README, re.DOTALL)
    (tmp_path / "spec.lua").write_text("return " + spec)
    found = nvim("--clean", "-c", f"lua io.stdout:write(dofile('{tmp_path}/spec.lua').dir)")
    assert found == "~/localspec/plugins/nvim"


def test_as_a_package_it_is_found_with_its_help(tmp_path: Path) -> None:
    """The README's own commands, in a home of its own."""
    (commands,) = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    (tmp_path / "localspec").symlink_to(ROOT)
    for command in commands.strip().splitlines()[:-1]:
        subprocess.run(command, shell=True, check=True, env={**os.environ, "HOME": str(tmp_path)})
    home = {"HOME": str(tmp_path)} | {
        f"XDG_{name}_HOME": str(tmp_path / place)
        for name, place in (("CONFIG", ".config"), ("DATA", ".local/share"), ("STATE", ".local/state"))
    }
    assert nvim("-c", "helptags ALL", **home) == ""
    exists = "lua io.stdout:write(vim.fn.exists(':Localspec') .. vim.fn.expand('%:t'))"
    assert nvim("-c", "help localspec-keys", "-c", exists, **home) == "2localspec.txt"
