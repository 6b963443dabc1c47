"""A real VS Code in a real browser, with the packaged extension and a localspec home of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from tests.editors.found import ROOT, CodeServer, code_server
from tests.vscode.build import package
from tests.waiting import DEADLINE_S, until_sync

SETTINGS: dict[str, Any] = {
    "chat.disableAIFeatures": True,
    "editor.quickSuggestions": {"other": False, "comments": False, "strings": False},
    "editor.minimap.enabled": False,
    "extensions.ignoreRecommendations": True,
    "files.autoSave": "off",
    "files.hotExit": "off",
    "telemetry.telemetryLevel": "off",
    "window.menuBarVisibility": "hidden",
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.tips.enabled": False,
}
CHROMIUM = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
KEYS = [
    {"key": "ctrl+alt+l", "command": "editor.action.inlineSuggest.acceptNextLine"},
    {"key": "ctrl+alt+w", "command": "workbench.action.closeActiveEditor"},
]
ITEM = "#localspec\\.localspec\\.localspec\\.status"

BEFORE = """def bisect(a, x, lo=0, hi=None):
    if lo < 0:
        raise ValueError('lo must be non-negative')
    if hi is None:
        hi = len(a)
    if """
"""a file that the bundled model goes on with"""


VIEW = {"width": 1000, "height": 640}
START_MS = 4000 * DEADLINE_S
"""for a window and its extension host to start, on a machine that does other things beside"""


class Editor:
    def __init__(self, root: Path, page: Any, url: str) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.home = root / "home"
        self.page = page
        self._url = url

    def start(self, name: str, text: str = "") -> None:
        """Open the page with a file, once the extension is there."""
        path = self.write(name, text)
        payload = json.dumps([["openFile", f"vscode-remote://{self._url.split('//')[1]}{path}"]])
        self.page.goto(f"{self._url}/?folder={quote(str(self.workspace))}&payload={quote(payload)}")
        self.page.wait_for_selector(f'.tab.active[data-resource-name="{name}"]', timeout=START_MS)
        self.page.wait_for_selector(ITEM, timeout=START_MS)
        self.focus(name)

    def write(self, name: str, text: str) -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def open(self, name: str, text: str = "") -> None:
        """Write a file, and have it in the editor with the cursor at its end."""
        self.write(name, text)
        self.ask("Control+P", str(self.workspace / name))
        self.page.wait_for_selector(f'.quick-input-list .monaco-list-row.focused[aria-label*="{name}"]')
        self.page.keyboard.press("Enter")
        self.focus(name)

    def focus(self, name: str) -> None:
        self.page.wait_for_selector(f'.tab.active[data-resource-name="{name}"]')
        self.page.locator(".editor-group-container.active .view-lines").first.click()
        self.page.wait_for_selector(".monaco-editor.focused")
        self.page.keyboard.press("Control+End")

    def ask(self, key: str, text: str) -> None:
        self.page.keyboard.press(key)
        self.page.wait_for_selector(".quick-input-box input:focus")
        self.page.keyboard.insert_text(text)

    def choose(self, label: str) -> None:
        self.page.locator(f'.quick-input-list .monaco-list-row[aria-label*="{label}"]').first.click()

    def command(self, title: str) -> None:
        self.ask("F1", title)
        self.page.wait_for_selector(f'.quick-input-list .monaco-list-row.focused[aria-label*="{title}"]')
        self.page.keyboard.press("Enter")

    def ghost(self) -> str:
        return str(self.page.evaluate(GHOST))

    def until_ghost(self, condition: Callable[[str], bool] = bool, what: str = "ghost text is shown") -> str:
        seen: list[str] = [""]

        def holds() -> bool:
            seen[0] = self.ghost()
            return condition(seen[0])

        try:
            until_sync(holds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; shown is {seen[0]!r}; {self.facts()}") from None
        return seen[0]

    def status(self) -> str:
        return str(self.page.locator(ITEM).inner_text()).strip()

    def facts(self) -> str:
        """Return the status item's label for screen readers, which has the server's status."""
        return str(self.page.locator(f"{ITEM} a").get_attribute("aria-label"))

    def notices(self) -> list[str]:
        return list(self.page.locator(".notification-list-item-message").all_inner_texts())

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def saved(self, name: str) -> str:
        self.page.keyboard.press("Control+S")
        self.page.wait_for_selector(f'.tab.active[data-resource-name="{name}"]:not(.dirty)')
        return (self.workspace / name).read_bytes().decode()


GHOST = r"""() => {
  const lines = [...document.querySelectorAll('.view-line')].map(line =>
    [...line.querySelectorAll('[class*="ghost-text-decoration"]')].map(span => span.textContent).join(''))
  const more = [...document.querySelectorAll('.suggest-preview-text')].map(block =>
    [...block.querySelectorAll('.view-line')].map(line => line.textContent).join('\n'))
  return [lines.join(''), ...more.filter(Boolean)].join('\n').replaceAll('\u00a0', ' ').replaceAll('·', ' ')
}"""


@contextmanager
def editing(root: Path) -> Iterator[Editor]:
    """VS Code on ``root / "workspace"``, to be started with a file; all ends with it. Skips the test where
    something is not installed."""
    server = code_server()
    missing = "playwright is not installed: run `make editors`"
    sync_api = pytest.importorskip("playwright.sync_api", reason=missing)
    for name in ("workspace", "user/.local/bin", "home/config", "data/User"):
        (root / name).mkdir(parents=True, exist_ok=True)
    config = root / "home" / "config" / "config.toml"
    if not config.exists():
        config.write_text("[engine]\nthreads = 1\n")
    (root / "data" / "User" / "settings.json").write_text(json.dumps(SETTINGS))
    (root / "data" / "User" / "keybindings.json").write_text(json.dumps(KEYS))
    put_command(root)
    install(root, server)
    try:
        with serving(root, server) as url, sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=server.chromium, args=list(CHROMIUM))
            page = browser.new_page(viewport=VIEW)
            page.set_default_timeout(1000 * DEADLINE_S)
            yield Editor(root, page, url)
            browser.close()
    finally:
        # It would start the daemon again.
        until_sync(lambda: not servers(root), "the extension's process ends")
        localspec(root, "daemon", "stop")


def command_of(root: Path) -> Path:
    return root / "user" / ".local" / "bin" / "localspec"


def put_command(root: Path) -> None:
    """Write the command in one step: an editor may look for it at any time."""
    unfinished = command_of(root).with_suffix(".part")
    unfinished.write_text(f'#!/bin/sh\nexec {sys.executable} -m localspec "$@"\n')
    unfinished.chmod(0o755)
    unfinished.replace(command_of(root))


def servers(root: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            is_server = process.cmdline()[-2:] == ["localspec", "lsp"]
            if is_server and process.environ().get("LOCALSPEC_HOME") == str(root / "home"):
                found.append(process)
        except psutil.Error:  # it has ended, or is of another user
            continue
    return found


def localspec(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "localspec", *words),
        env=environment(root),
        capture_output=True,
        text=True,
        check=True,
    )


def environment(root: Path) -> dict[str, str]:
    python_path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        **{f"XDG_{kind}_HOME": str(root / "xdg" / kind) for kind in ("CACHE", "CONFIG", "DATA", "STATE")},
        "HOME": str(root / "user"),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(python_path),
        "LOCALSPEC_HOME": str(root / "home"),
    }


def install(root: Path, server: CodeServer) -> None:
    options = server_options(root)
    subprocess.run(
        (*server.command, *options, "--install-extension", package(root)),
        env=environment(root),
        capture_output=True,
        check=True,
    )


def server_options(root: Path) -> tuple[str, ...]:
    config = root / "code-server.yaml"
    config.write_text("")
    return (
        *("--config", str(config), "--user-data-dir", str(root / "data")),
        *("--extensions-dir", str(root / "extensions")),
    )


@contextmanager
def serving(root: Path, server: CodeServer) -> Iterator[str]:
    port = free_port()
    command = (
        *(*server.command, *server_options(root), "--auth", "none"),
        *("--bind-addr", f"127.0.0.1:{port}", "--disable-telemetry", "--disable-update-check"),
        *("--disable-workspace-trust", "--reconnection-grace-time", "5", "--log", "debug"),
        str(root / "workspace"),
    )
    with open(root / "server.log", "wb") as log:
        process = subprocess.Popen(command, env=environment(root), stdout=log, stderr=log, cwd=root)
    try:
        until_sync(lambda: answers(port), "code-server answers")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1):
            return True
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
