"""A real Neovim with a screen attached: keys go in, and what is seen comes out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

import msgspec

from localspec.client import connect
from localspec.client.client import Where
from tests.editors.found import neovim
from tests.nvim.screen import Screen
from tests.waiting import DEADLINE_S

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "plugins" / "nvim"
COMMAND = [sys.executable, "-m", "localspec"]
GHOST = frozenset({"LocalspecSuggestion", "Comment"})
"""a group that is linked goes by the other's name"""
REQUEST, RESPONSE, NOTIFICATION = 0, 1, 2
LISTEN = """
local server = require("localspec.server")
local complete, notify, execute = server.complete, server.notify, server.execute
SPOKEN, EVENTS = {}, {}
function server.complete(trigger, answered)
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  local lines = vim.api.nvim_buf_get_lines(0, 0, row, false)
  lines[row] = lines[row]:sub(1, column)
  local said = { is_invoked = trigger == 1, prefix = table.concat(lines, "\\n") }
  SPOKEN[#SPOKEN + 1] = said
  return complete(trigger, function(items)
    said.items = items
    answered(items)
  end)
end
function server.notify(method, params)
  local events = { didShowCompletion = "shown", didPartiallyAcceptCompletion = "partial" }
  local event = events[method:match("[^/]+$")]
  EVENTS[#EVENTS + 1] = event and { event, params.acceptedLength }
  return notify(method, params)
end
function server.execute(command, ...)
  EVENTS[#EVENTS + 1] = command == "localspec.accepted" and { "accepted" } or nil
  return execute(command, ...)
end
"""
"""keeps the plugin's requests for completions with the answers, and what it reports of items"""


SINGLE = "class Foo:\n    def __init__(self, name):\n        self."
"""the bundled model goes on by itself, on one line"""
MULTI = "def fib(n):\n    if n < 2:\n        return n\n    return "
"""… on several"""
NONE = "if __name__ == "
"""… not at all"""


class Editor:
    def __init__(self, process: subprocess.Popen[bytes], size: tuple[int, int]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process = process
        self._in, self._out = process.stdin, process.stdout
        self._last = 0
        self._received = b""
        self._responses: dict[int, tuple[Any, Any]] = {}
        self.screen = Screen(*size)
        options = {"ext_linegrid": True, "ext_hlstate": True, "rgb": True}
        self.call("nvim_ui_attach", *size, options)

    def call(self, method: str, *arguments: Any) -> Any:
        self._last += 1
        id = self._last
        self._in.write(msgspec.msgpack.encode([REQUEST, id, method, arguments]))
        self._in.flush()
        deadline = time.monotonic() + DEADLINE_S
        while id not in self._responses:
            assert time.monotonic() < deadline, f"{method} does not answer:\n{self.picture()}"
            self.receive(0.1)
        error, result = self._responses.pop(id)
        assert error is None, error
        return result

    def receive(self, seconds: float) -> None:
        """Take what has come, waiting for so long if nothing has."""
        if select.select([self._out], [], [], seconds)[0]:
            data = os.read(self._out.fileno(), 1 << 16)
            assert data, "Neovim has ended"
            self._received += data
            while (message := self._message()) is not None:
                self._take(message)

    def _message(self) -> list[Any] | None:
        """Take the first message out of what was received; None if its end has not come yet."""
        end = len(self._received)
        try:
            msgspec.msgpack.decode(self._received)
        except msgspec.DecodeError as error:
            if (found := re.search(r"trailing characters \(byte (\d+)\)", str(error))) is None:
                return None
            end = int(found[1])
        message: list[Any] = msgspec.msgpack.decode(self._received[:end])
        self._received = self._received[end:]
        return message

    def _take(self, message: list[Any]) -> None:
        kind, *rest = message
        if kind == RESPONSE:
            id, error, result = rest
            self._responses[id] = error, result
        elif kind == NOTIFICATION and rest[0] == "redraw":
            self.screen.redraw(rest[1])

    def lua(self, code: str, *arguments: Any) -> Any:
        return self.call("nvim_exec_lua", code, arguments)

    def expr(self, expression: str) -> Any:
        return self.call("nvim_eval", expression)

    def keys(self, keys: str) -> None:
        """Press keys, as ``:help keycodes`` names them."""
        self.call("nvim_input", keys)

    def type(self, text: str) -> None:
        for letter in text:
            self.keys({"<": "<lt>", "\n": "<CR>", "\t": "<Tab>"}.get(letter, letter))

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + DEADLINE_S
        while not (found := condition()):
            assert time.monotonic() < deadline, f"waited too long until {what}:\n{self.picture()}"
            self.receive(0.02)
        return found

    def picture(self) -> str:
        said = self.screen.lines()
        return "\n".join(["┌" + "─" * 78, *("│" + line for line in said if line.strip("~ ")), "└" + "─" * 78])

    @property
    def ghost(self) -> list[str]:
        return [row for row in self.screen.drawn_as(GHOST) if row.strip()]

    @property
    def text(self) -> str:
        return "\n".join(self.call("nvim_buf_get_lines", 0, 0, -1, False))

    @property
    def cursor(self) -> tuple[int, int]:
        """Line from 1, column in bytes from 0."""
        row, column = self.call("nvim_win_get_cursor", 0)
        return row, column

    def until_ghost(self) -> list[str]:
        return list(self.until(lambda: self.ghost, "a suggestion is drawn"))

    def until_text(self, text: str) -> None:
        self.until(lambda: self.text == text, f"the text is {text!r}, not {self.text!r}")

    def until_suggested(self, path: Path, prefix: str = SINGLE) -> list[str]:
        """Type the last letter of ``prefix`` in a new file; the rows that are drawn then."""
        self.open(path, prefix[:-1] + "\n")
        self.type(prefix[-1])
        return self.until_ghost()

    def until_no_ghost(self) -> None:
        self.until(lambda: not self.ghost, "no suggestion is drawn")

    def settled(self) -> None:
        """Wait until Neovim has taken all keys, and drawn what they do."""
        self.until(lambda: not self.expr("getchar(1)"), "all keys are taken")

    def setup(self, **settings: Any) -> None:
        """Set the plugin up, for this very localspec; a busy machine is waited for."""
        defaults = {"command": COMMAND, "max_ms": 60_000}
        self.lua("require('localspec').setup(...)", {**defaults, **settings})

    def open(self, path: Path, text: str) -> None:
        """Edit a new file with this text, the cursor at its very end, inserting."""
        path.write_text(text, newline="")
        self.keys("<Esc>")
        self.settled()
        # Without the other files, which would be sent, too.
        self.lua("vim.cmd('silent! %bwipeout!'); vim.cmd('edit! ' .. vim.fn.fnameescape(...))", str(path))
        self.lua("SPOKEN, EVENTS = {}, {}")
        self.keys("GA")
        self.until(lambda: self.expr("mode()") == "i", "text is inserted")

    @property
    def asked(self) -> list[Any]:
        return list(self.lua("return SPOKEN"))

    @property
    def reported(self) -> list[tuple[Any, ...]]:
        """The reports of items since then: the event, and the units accepted."""
        return [tuple(event) for event in self.lua("return EVENTS")]

    def notices(self) -> list[str]:
        """Return the plugin's messages to the user, and any error of its own."""
        if self.call("nvim_get_mode")["blocking"]:  # a message found no room, and waits for a key
            self.keys("<CR>")
        said = str(self.lua("return vim.api.nvim_exec('messages', true)"))
        return [line for line in said.splitlines() if "localspec" in line]

    def until_notice(self, text: str) -> None:
        self.until(lambda: any(text in each for each in self.notices()), f"{text!r} is reported")


@contextmanager
def editing(
    version: str, home: Path, *files: Path, init: str = "", size: tuple[int, int] = (80, 24), **settings: Any
) -> Iterator[Editor]:
    """A Neovim with the plugin and nothing else, on the daemon of ``home``; ``init``: Lua before setup."""
    program = neovim(version)
    variables = {
        **os.environ,
        **program.environment,
        "LOCALSPEC_HOME": str(home),
        "PYTHONPATH": str(ROOT),
        **{f"XDG_{name}_HOME": str(home / "xdg") for name in ("CONFIG", "DATA", "STATE", "CACHE")},
    }
    command = (*program.command, "--embed", "--clean", "-i", "NONE", "-n", *map(str, files))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables)
    try:
        editor = Editor(process, size)
        editor.lua("vim.opt.runtimepath:prepend(...); vim.cmd('runtime plugin/localspec.lua')", str(PLUGIN))
        editor.lua(LISTEN + init)
        editor.setup(**settings)
        yield editor
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def completions(prefix: str, suffix: str = "\n", **where: Unpack[Where]) -> list[str]:
    async def ask() -> list[str]:
        told: Where = {"language": "python", "path": "/asked.py", "max_ms": 60_000, **where}
        async with await connect() as client:
            answer = await client.complete(prefix, suffix, **told).result()
            return [item.text for item in answer.items]

    return asyncio.run(ask())


def completion(prefix: str, suffix: str = "\n", **where: Unpack[Where]) -> str:
    (text,) = completions(prefix, suffix, **where)
    return text
