"""Links of the repository's Markdown files hold, in place and in the built site, which needs no network."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.hygiene.source import PACKAGE, ROOT

SKIPPED = {".venv", ".editors", "build", "dist", "node_modules"}
FILES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "plugins/**/*.md", "assets/**/*.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
    if not SKIPPED & set(path.relative_to(ROOT).parts)
)
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r'\]\(([^)\s]+)\)|\s(?:src|srcset|href)="([^"]+)"')
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LOADING = ("link", "script", "img", "source", "iframe", "video", "audio")
"""elements whose address a browser loads without a click"""

needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="MkDocs is not installed: run make lint"
)


def anchors(path: Path) -> set[str]:
    """Names of a Markdown file's headings, as repositories show them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text))
    return set(plain)


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_the_links_of_a_file_hold(path: Path) -> None:
    for found in TARGET.findall(CODE.sub("", path.read_text("utf-8"))):
        target = urlsplit(found[0] or found[1])
        if target.scheme:
            continue
        place = path.parent / unquote(target.path) if target.path else path
        assert place.exists(), f"{path.name}: {target.path} does not exist"
        if target.fragment:
            assert target.fragment in anchors(place), f"{path.name}: {place.name} has no #{target.fragment}"


def test_the_map_of_the_code_has_all_packages() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"^\| `localspec/(\w+)/`", text, re.MULTILINE)
    assert sorted(named) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def test_the_order_of_reading_names_functions_that_exist() -> None:
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (.+?) \|", (ROOT / "docs/reading.md").read_text(), re.MULTILINE)
    for file, names in rows:
        text = (PACKAGE / file).read_text("utf-8")
        for name in re.findall(r"\w+", names):
            assert re.search(rf"\b(def|class) {name}\b", text), f"{file} has no {name}"
    assert len(rows) > 20


@dataclass
class Page(HTMLParser):
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.names.add(value)
            elif name in ("href", "src", "srcset") and value:
                (self.loads if tag in LOADING else self.links).append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", place),
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pages = {}
    for path in place.rglob("*.html"):
        if path.name != "404.html":  # for servers alone: its addresses begin at their root
            pages[path] = Page()
            pages[path].feed(path.read_text("utf-8"))
    return pages


@needs_mkdocs
def test_the_links_of_the_site_hold(site: dict[Path, Page]) -> None:
    assert len(site) > 25
    for path, page in site.items():
        for address in page.links + page.loads:
            target = urlsplit(address)
            if target.scheme or target.netloc:
                continue
            place = Path(os.path.normpath(path.parent / unquote(target.path))) if target.path else path
            assert place.exists(), f"{path.name}: {address}"
            if target.fragment and place in site:
                assert unquote(target.fragment) in site[place].names, f"{path.name}: {address}"


@needs_mkdocs
def test_the_site_loads_nothing_from_elsewhere(site: dict[Path, Page]) -> None:
    for path, page in site.items():
        foreign = [
            each for each in page.loads if urlsplit(each).scheme not in ("", "data") or each[:2] == "//"
        ]
        assert not foreign, f"{path.name} loads {foreign}"
    root = next(
        path.parent for path in site if path.name == "index.html" and (path.parent / "assets").exists()
    )
    sheets = "".join(path.read_text("utf-8") for path in root.rglob("*.css"))
    assert sheets and not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheets)


@needs_mkdocs
def test_links_in_code_are_not_rewritten() -> None:
    from assets.docs.site import relinked

    assert relinked("[a](../README.md) `[a](../README.md)`", "http.md") == "[a](index.md) `[a](../README.md)`"
