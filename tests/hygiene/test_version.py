"""There is one version, and the changelog has it."""

from __future__ import annotations

import re
from importlib.metadata import version

from localspec._version import __version__
from tests.hygiene.source import ROOT


def test_the_version_is_that_of_the_installed_package_and_a_heading_of_the_changelog() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__) and version("localspec") == __version__
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^#+ \[?v?([^\s\]]+)", text, re.MULTILINE)
    assert __version__ in headings
