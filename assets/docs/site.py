"""MkDocs hooks: pages made from the code, files of the repository as pages, and links that hold in both.

A page in ``docs/`` links to ``../CONTRIBUTING.md`` or ``../assets/pictures/neovim.svg``, as a reader of the
repository needs it; in the site these files have places of their own, and the links are rewritten.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from assets.docs import reference

ROOT = Path(__file__).parent.parent.parent
PAGES = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "README.md": "index.md",
    "assets/bench/README.md": "project/measurements.md",
    "assets/models/MODEL_CARD.md": "project/models.md",
    **{f"plugins/{name}/README.md": f"plugins/{name}.md" for name in ("llm", "lsp", "nvim", "vscode")},
}
"""files outside of ``docs/`` by their place in the site; the site has a first page of its own for README"""
PICTURES = ("assets/pictures", "plugins/vscode/images")
"""folders whose pictures go to ``pictures/`` under their own names"""
SUFFIXES = (".png", ".svg")
LINK = re.compile(r'(\]\(|\s(?:src|srcset|href)=")(?![a-z]+:|#|/)([^)"#\s]+)')
FENCE = re.compile(r"^ {0,8}```.*?^ {0,8}```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
"""code, in which nothing is a link"""


def _extra() -> dict[str, str]:
    """Files outside of ``docs/`` by their place in the site."""
    pictures = [path for folder in PICTURES for path in sorted((ROOT / folder).iterdir())]
    found = {str(p.relative_to(ROOT)): f"pictures/{p.name}" for p in pictures if p.suffix in SUFFIXES}
    return {place: file for file, place in (PAGES | found).items() if place != "index.md"}


EXTRA = _extra()
PLACES = {file: place for place, file in EXTRA.items()} | {"README.md": "index.md"}


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and the files from outside of ``docs/``."""
    for place, text in reference.pages().items():
        files.append(File.generated(config, place, content=text))
    for place, file in EXTRA.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / file)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links to files outside of ``docs/``, and those of pages that come from there."""
    return relinked(markdown, page.file.src_uri)


def relinked(markdown: str, place: str) -> str:
    """Return the text of the page at ``place`` of the site, with links that hold there."""
    source = EXTRA.get(place, f"docs/{place}")

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        target = PLACES.get(target, target.removeprefix("docs/"))
        return match[1] + posixpath.relpath(target, posixpath.dirname(place) or ".")

    parts, end = [], 0
    for code in FENCE.finditer(markdown):
        parts += [LINK.sub(link, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, LINK.sub(link, markdown[end:])])
