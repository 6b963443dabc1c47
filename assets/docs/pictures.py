"""Pictures of the built documentation in a headless Chromium: ``python -m assets.docs.pictures OUT [PAGE…]``.

Needs the site that `make docs` builds, and Chromium, which `make editors` installs. The first screen of each
PAGE, of every page if none is given, becomes ``OUT/PAGE.png``.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

SITE = Path(__file__).parent.parent.parent / "build" / "docs"
SCREEN = {"width": 1280, "height": 900}
LOCAL = ("data:", "blob:")
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


class Shown(NamedTuple):
    """A page as a browser shows it."""

    page: str
    complaints: list[str]
    """errors of the console, and requests that failed or left the site"""
    overflow: int
    """pixels by which the page is wider than the window"""


def pages(site: Path) -> list[str]:
    """Return the site's pages, relative to it."""
    found = (path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    return sorted(page for page in found if page != "404.html")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve the files of ``site``; yields the address that pages stand behind."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def watched(tab: Any, address: str) -> list[str]:
    """Return a list that receives script errors, failed requests, and requests to other sites."""
    complaints: list[str] = []

    def requested(request: Any) -> None:
        if not request.url.startswith((address, *LOCAL)):
            complaints.append(request.url)

    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("requestfailed", lambda request: complaints.append(request.url))
    tab.on("request", requested)
    return complaints


def show(site: Path, names: list[str], out: Path, executable: str | None = None) -> Iterator[Shown]:
    """Open each page over HTTP on loopback, and write its picture."""
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    with served(site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(OPTIONS))
        for name in names:
            tab = browser.new_page(viewport=SCREEN)  # type: ignore[arg-type]
            complaints = watched(tab, address)
            tab.goto(address + name)
            overflow = tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            tab.screenshot(path=out / f"{name.removesuffix('.html').replace('/', '-')}.png")
            tab.close()
            yield Shown(name, complaints, max(0, overflow))
        browser.close()


def main() -> None:
    from tests.editors.found import chromium

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("pages", nargs="*")
    given = parser.parse_args()
    for shown in show(SITE, given.pages or pages(SITE), given.out, chromium()):
        print(f"{shown.page}: {shown.overflow} pixels too wide, {len(shown.complaints)} complaints")
        for complaint in shown.complaints:
            print(f"  {complaint}")


if __name__ == "__main__":
    main()
