"""A page in a real browser gets nothing from the HTTP server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.editors.found import chromium
from tests.http.server import SECTION, _status, opened
from tests.vscode.editor import CHROMIUM
from tests.waiting import run

pytestmark = pytest.mark.slow

ASK = "([url, how]) => fetch(url, how).then(answer => answer.type, error => 'nothing')"
PROMPT = '{"model": "localspec", "prompt": "then word"}'
JSON = {"Content-Type": "application/json", "Authorization": "Bearer x"}
FETCHES: list[tuple[str, dict[str, Any], str]] = [
    ("/", {}, "nothing"),
    ("/health", {"mode": "no-cors"}, "opaque"),
    ("/v1/models", {}, "nothing"),
    ("/api/generate", {"mode": "no-cors", "method": "POST", "body": PROMPT}, "opaque"),
    ("/v1/completions", {"method": "POST", "body": PROMPT, "headers": JSON}, "nothing"),
]
"""and what the page sees of each answer"""


class Page(BaseHTTPRequestHandler):
    """A page of another site."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>a page</title>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A site on this machine, which browsers think as near as can be."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_a_page_is_refused_even_where_no_token_is_asked_for(elsewhere: str) -> None:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = chromium()
    with opened(section=f'{SECTION}without_token = ["openai", "ollama"]\n') as http:
        with driver.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=executable, args=list(CHROMIUM))
            page = browser.new_page()
            page.goto(elsewhere)
            answers: dict[str, int] = {}
            page.on("response", lambda answer: answers.update({answer.url: answer.status}))
            for path, how, seen in FETCHES:
                assert page.evaluate(ASK, [http.url + path, how]) == seen, path
            # The browser itself tells of those alone that the page may have without seeing them.
            assert answers == {http.url + path: 403 for path, _, seen in FETCHES if seen == "opaque"}
            assert page.goto(f"{http.url}/health").status == 200, "an address that was typed"
            browser.close()
        assert run(_status(http.daemon)).models == (), "no model was asked"
