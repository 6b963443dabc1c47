"""The extension's own tests, of its parts that need no editor, pass; they play all golden conversations."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from tests.editors.found import ROOT
from tests.vscode.build import npm, package

TRANSCRIPTS = ROOT / "tests" / "transcripts"


@pytest.mark.slow
def test_the_extensions_own_tests_pass_and_play_every_transcript() -> None:
    said = npm("test")
    played = set(re.findall(r"^ok \d+ - transcript (\S+)$", said, re.MULTILINE))
    assert played == {path.name for path in TRANSCRIPTS.glob("*.jsonl")}
    assert re.search(r"^# fail 0$", said, re.MULTILINE) and re.search(r"^# skipped 0$", said, re.MULTILINE)


@pytest.mark.slow
def test_what_is_shipped_is_the_source_and_what_it_says_of_itself(tmp_path: Path) -> None:
    with zipfile.ZipFile(package(tmp_path)) as shipped:
        names = {name.removeprefix("extension/") for name in shipped.namelist()}
    sources = {f"out/src/{path.stem}.js" for path in (ROOT / "plugins/vscode/src").glob("*.ts")}
    told = {"package.json", "readme.md", "changelog.md", "LICENSE.txt", "images/icon.png", "images/ghost.png"}
    assert names == sources | told | {"extension.vsixmanifest", "[Content_Types].xml"}
