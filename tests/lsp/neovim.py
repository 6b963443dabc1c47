"""A real Neovim without a screen of its own: keys go in, what it draws comes out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.editors.found import ROOT, Program
from tests.waiting import DEADLINE_S, until_sync

README = ROOT / "plugins" / "lsp" / "README.md"
SCREEN = """
vim.cmd('redraw!')
local lines = {}
for row = 1, vim.o.lines do
  local line = ''
  for column = 1, vim.o.columns do
    line = line .. vim.fn.screenstring(row, column)
  end
  lines[row] = line
end
return lines
"""
READY = """
local group = ('nvim.lsp.inline_completion:%d'):format(vim.api.nvim_get_current_buf())
local listens = pcall(vim.api.nvim_get_autocmds, { group = group })
local client = vim.lsp.get_clients({ name = 'localspec', bufnr = 0 })[1]
return listens and client ~= nil and client.initialized == true
"""


class Neovim:
    """One that is started, and spoken to in its own protocol."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._last = 0

    def call(self, method: str, *arguments: Any) -> Any:
        """A function of its API."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._last += 1
        self._process.stdin.write(msgspec.msgpack.encode([0, self._last, method, arguments]))
        self._process.stdin.flush()
        data = b""
        while True:
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            assert chunk, "Neovim has ended"
            data += chunk
            try:
                _, id, error, result = msgspec.msgpack.decode(data)
            except msgspec.DecodeError:
                continue  # there is more to come
            assert (id, error) == (self._last, None), error
            return result

    def lua(self, code: str, *arguments: Any) -> Any:
        return self.call("nvim_exec_lua", code, arguments)

    def type(self, keys: str) -> None:
        self.call("nvim_input", keys)

    @property
    def screen(self) -> list[str]:
        """Return the lines on the screen."""
        return [line.rstrip() for line in self.lua(SCREEN)]

    @property
    def text(self) -> str:
        """Return the text of the buffer."""
        return "".join(f"{line}\n" for line in self.call("nvim_buf_get_lines", 0, 0, -1, True))

    def shows(self, *lines: str) -> None:
        """Wait until these lines are drawn, one below the other."""

        def seen() -> bool:
            screen = self.screen
            return any(screen[at : at + len(lines)] == list(lines) for at in range(len(screen)))

        until_sync(seen, f"Neovim shows {lines}; it shows {self.screen}")


def snippet() -> str:
    """The configuration from the README."""
    (found,) = re.findall(r"```lua\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


@contextmanager
def neovim(program: Program, home: Path, file: Path, more: str = "") -> Iterator[Neovim]:
    """Neovim with the README's configuration and ``more``, on a file, once the server is there."""
    (home / "init.lua").write_text(snippet() + more)
    places = {f"XDG_{name}_HOME": str(home / name) for name in ("CONFIG", "DATA", "STATE", "CACHE")}
    process = subprocess.Popen(
        (
            *program.command,
            "--embed",
            "--headless",
            "-i",
            "NONE",
            "-n",
            "-u",
            str(home / "init.lua"),
            str(file),
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **program.environment, **places, "PATH": path_with_command(home)},
    )
    editor = Neovim(process)
    try:
        until_sync(lambda: bool(editor.lua(READY)), "the server is there")
        yield editor
    finally:
        process.communicate(timeout=DEADLINE_S)


def path_with_command(home: Path) -> str:
    """A PATH on which `localspec` is the one that is tested."""
    command = home / "bin" / "localspec"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m localspec "$@"\n')
    command.chmod(0o755)
    return f"{command.parent}:{os.environ['PATH']}"
