"""There is one version, and the changelog has it."""

from __future__ import annotations

import re
from importlib.metadata import version

from localspec._version import __version__
from tests.hygiene.source import ROOT

CHANGELOG = ROOT / "CHANGELOG.md"


def test_the_version_has_three_numbers() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_the_installed_package_has_the_version_of_the_source() -> None:
    assert version("localspec") == __version__


def test_the_version_is_a_heading_of_the_changelog() -> None:
    headings = re.findall(r"^#+ \[?v?([^\s\]]+)", CHANGELOG.read_text("utf-8"), re.MULTILINE)
    assert __version__ in headings
